from __future__ import annotations

import itertools
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compat.nova import primitives
from compat.nova.primitives import check, dumps, loads, strtime, to_primitive

AT = datetime(2012, 3, 4, 5, 6, 7)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def shown(value: Any) -> str:
    """For the name of a test, which is the same in each run: without an object's address."""
    return str(value).partition(" at 0x")[0]


class Row:
    """A database row as SQLAlchemy's models of that time had it."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def iteritems(self):
        return iter(self._values.items())


class Plain:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


# --- what is taken ------------------------------------------------------------------------------


@given(JSON)
def test_what_json_has_stays_as_it_is(value):
    assert loads(dumps(value)) == value
    assert to_primitive(value) == value
    check(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AT, "2012-03-04T05:06:07.000000"),
        (datetime(2012, 3, 4, 5, 6, 7, 8), "2012-03-04T05:06:07.000008"),
        (datetime(33, 3, 4), "0033-03-04T00:00:00.000000"),
        (AT.replace(tzinfo=UTC), "2012-03-04T05:06:07.000000"),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (range(3), [0, 1, 2]),
        (iter("ab"), ["a", "b"]),
        ((n * n for n in (1, 2)), [1, 4]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.items(), [["a", 1]]),
        (b"bytes", "bytes"),
        (Row(id=1, at=AT), {"id": 1, "at": "2012-03-04T05:06:07.000000"}),
        (int, "<class 'int'>"),
        (itertools.count(), "count(0)"),
        ("text is no iterable", "text is no iterable"),
    ],
    ids=shown,
)
def test_what_is_converted(value, expected):
    assert loads(dumps({"args": {"value": [value]}})) == {"args": {"value": [expected]}}


def test_a_netaddr_address_is_text(monkeypatch):
    class Address:
        def __str__(self) -> str:
            return "10.0.0.1"

    monkeypatch.setitem(__import__("sys").modules, "netaddr", Plain(IPAddress=Address))
    assert loads(dumps([Address()])) == ["10.0.0.1"]


def test_times_are_text_whatever_the_year():
    assert strtime(datetime(9, 1, 1, microsecond=1)) == "0009-01-01T00:00:00.000001"


def test_keys_are_jsons():
    assert loads(dumps({1: {None: AT}})) == {"1": {"null": strtime(AT)}}


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"server": [1, 2, object()]}, "args.server[2]"),
        ({"server": {"a": [AT, {"deep": Plain(x=1)}]}}, "args.server.a[1].deep"),
        ({"row": Row(one=1, two=object())}, "args.row.two"),
        ({"once": (each for each in [1, object()])}, "args.once[1]"),
        ({"day": date(2012, 3, 4)}, "args.day"),
        ({"raw": b"\xff"}, "args.raw"),
        ({"keys": {("a", "b"): 1}}, "args.keys"),
        ({"mute": Mute()}, "args.mute"),
    ],
)
def test_what_cannot_be_sent_is_named(args, path):
    with pytest.raises(TypeError) as caught:
        dumps({"method": "run", "args": args})
    assert str(caught.value).startswith(f"{path} cannot be sent: ")


def test_the_value_itself_is_named_too():
    with pytest.raises(TypeError, match=r"the value cannot be sent: object <object"):
        dumps(object())


def test_long_values_are_cut_short():
    class Long:
        def __repr__(self) -> str:
            return "x" * 1000

    with pytest.raises(TypeError) as caught:
        dumps([Long()])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("use", [dumps, check])
def test_what_contains_itself_is_refused(use):
    value: dict[str, Any] = {"list": []}
    value["list"].append(value)
    with pytest.raises(ValueError, match=r"(?i)circular|contains itself"):
        use(value)


@pytest.mark.parametrize("use", [dumps, check])
@pytest.mark.parametrize("bottom", [None, AT])
def test_what_is_too_deep_is_refused(use, bottom):
    value: Any = bottom
    for _ in range(100_000):
        value = [value]
    with pytest.raises((ValueError, TypeError)):
        use(value)


def test_an_error_within_an_iterable_goes_on():
    def broken():
        yield 1
        raise LookupError("gone")

    with pytest.raises(LookupError):
        dumps({"args": broken()})


@pytest.mark.parametrize("value", [AT, {1}, Row(a=1), range(2)], ids=shown)
def test_before_folsom_nothing_was_converted(value):
    with pytest.raises(TypeError, match=r"args\.x\[0\]"):
        check({"args": {"x": [value]}})


def test_plain_values_take_the_fast_path(monkeypatch):
    monkeypatch.setattr(primitives, "_Conversion", None)
    value = {"method": "run", "args": {"names": ["a", "b"], "n": 1.5, "none": None, "pair": (1, 2)}}
    assert loads(dumps(value)) == json.loads(json.dumps(value))


# --- to_primitive -------------------------------------------------------------------------------


def test_to_primitive_leaves_what_it_does_not_know():
    value = Plain(a=1)
    assert to_primitive({"x": [value]}) == {"x": [value]}


def test_to_primitive_takes_instances_when_asked():
    assert to_primitive({"x": Plain(a=Plain(b=AT))}, convert_instances=True) == {"x": {"a": {"b": strtime(AT)}}}


def test_to_primitive_ends_in_a_cycle():
    value = Plain(name="a")
    value.me = value  # type: ignore[attr-defined]
    converted = to_primitive(value, convert_instances=True)
    assert converted["me"]["me"]["name"] == "a"
    assert "?" in json.dumps(converted)


def test_to_primitive_does_not_recurse_into_text():
    assert to_primitive("abc") == "abc"
    assert to_primitive(["abc", {"a": "bcd"}]) == ["abc", {"a": "bcd"}]
