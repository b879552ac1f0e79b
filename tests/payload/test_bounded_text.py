"""Text is made at a cost that whoever made the value cannot choose: a test of this that fails does not end."""

from __future__ import annotations

import json
import logging
import traceback
from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.errors import PayloadError, RemoteError
from rpcmq.payload import Codec, ExceptionRegistry, Format
from rpcmq.payload.bounded_text import (
    exception_text,
    exception_traceback,
    printable_exception,
    short_repr,
)
from rpcmq.payload.printed_size import is_printable
from rpcmq.payload.remote_exception import MAX_RECORD, MAX_TEXT, MAX_TRACEBACK
from tests.payload.samples import InstanceError


@dataclass
class Node:
    left: Any
    right: Any


@dataclass(slots=True)
class SlottedNode:
    left: Any
    right: Any


class Pair(NamedTuple):
    left: Any
    right: Any


class Shows:
    """Its ``__repr__`` is its own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Shows({self.value!r})"


class ShownError(Exception):
    def __init__(self, value: Any) -> None:
        super().__init__("shown")
        self.value = value

    def __str__(self) -> str:
        return f"shown: {self.value}"


def shared(join: Any = lambda each: [each, each], times: int = 60) -> Any:
    """Some thousand bytes, and 2 to the power of ``times`` characters when it is printed."""
    value: Any = "x"
    for _ in range(times):
        value = join(value)
    return value


JOINS: dict[str, Any] = {
    "list": lambda each: [each, each],
    "tuple": lambda each: (each, each),
    "dict": lambda each: {"a": each, "b": each},
    "ordered dict": lambda each: OrderedDict(a=each, b=each),
    "deque": lambda each: deque((each, each)),
    "dataclass": lambda each: Node(each, each),
    "slots": lambda each: SlottedNode(each, each),
    "named tuple": lambda each: Pair(each, each),
    "exception": lambda each: ValueError(each, each),
    "list within an object": lambda each: Shows([each, each]) if each == "x" else [each, each],
}
HOSTILE = {name: shared(join) for name, join in JOINS.items()}
HOSTILE["object of lists"] = Shows(shared())
HOSTILE["long string, often"] = ["x" * 1_000_000] * 1_000_000
HOSTILE["integer that Python does not print"] = 1 << 1_000_000
HOSTILE["long decimal"] = Decimal("7" * 3_000_000)
HOSTILE["decimals"] = [Decimal("7" * 40_000)] * 100
HOSTILE["long name of a time zone"] = timezone(timedelta(0), "x" * 3_000_000)
HOSTILE["time in such a zone"] = datetime(2024, 2, 29, tzinfo=HOSTILE["long name of a time zone"])
HOSTILE["array"] = array("i", range(1_000_000))
HOSTILE["keys of a dict"] = {"x" * 3_000_000: 1}.keys()
HOSTILE["slice"] = slice("x" * 3_000_000)
HOSTILE["method of a value"] = Node(shared(), 1).__eq__
HOSTILE["long name of a class"] = type("x" * 3_000_000, (), {})
HOSTILE["numpy, many axes"] = numpy.zeros((2,) * 20)
HOSTILE["numpy, long items"] = numpy.array(["x" * 3_000_000])
HOSTILE["numpy, one item"] = numpy.void(b"x" * 3_000_000)
HOSTILE["numpy, long name of a field"] = numpy.zeros(1, [("x" * 3_000_000, "i4")])
HOSTILE["deep"] = shared(lambda each: [each], 100_000)


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_value_whose_repr_never_ends_is_recognised_and_shown_briefly(value: Any) -> None:
    assert not is_printable(value)
    assert len(short_repr(value)) <= 80
    assert len(short_repr(value, 5000)) <= 5000


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, ShownError, InstanceError])
def test_an_exception_that_holds_one_is_described_encoded_and_logged(
    kind: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if kind is InstanceError:
        error = InstanceError(7)
        error.args = (value, value)
    else:
        error = kind(value)
    error.__cause__ = ValueError(value)
    error.held = value  # type: ignore[attr-defined]
    assert len(exception_text(error, 1000)) <= 1000
    assert len(exception_traceback(error, 5000)) <= 5000
    logging.getLogger("rpcmq.service").error("failed", exc_info=printable_exception(error))
    assert kind.__name__ in caplog.text
    codec = Codec(exceptions=ExceptionRegistry([InstanceError]))
    format, payload = codec.encode_exception(error, "node-7")
    assert len(payload) < MAX_RECORD
    shows_in_bounds(codec.decode_exception(format, payload))


def shows_in_bounds(error: BaseException) -> None:
    assert len(repr(error)) + len("".join(traceback.format_exception(error))) < 10 * MAX_RECORD
    try:
        text = str(error)
    except ValueError as refusal:
        raise AssertionError("str() of it raises") from refusal
    assert len(text) < 2 * MAX_RECORD


def test_an_argument_that_cannot_be_encoded_is_shown_briefly() -> None:
    for value in HOSTILE.values():
        with pytest.raises(PayloadError) as raised:
            Codec().encode({"args": {"bad": lambda: 0, "value": value}})
        assert len(str(raised.value)) < 1000


def fault(**record: Any) -> tuple[int, bytes]:
    return 1, json.dumps({"type": "builtins:ValueError", **record}).encode()


@pytest.mark.parametrize(
    "record",
    [
        {"args": [{"$": "int", "v": "f" * 1_000_000}]},
        {"attributes": {"__notes__": [{"$": "int", "v": "f" * 1_000_000}]}},
        {"attributes": {"__cause__": 1, "with_traceback": 1, "args": [1], "__class__": "x"}},
        {"type": "builtins:SyntaxError", "args": ["m", {"$": "tuple", "v": ["f", 1, 1, "text", 1, 10**15]}]},
        {"type": "builtins:SyntaxError", "args": ["m", ["f", 1, 1, "text", 1, 10**15]]},
        {"type": "builtins:IndentationError", "args": ["m", ["f", 1, 1.5, "text", 1, "x"]]},
        {"text": "x" * 1_000_000, "traceback": "y" * 500_000, "host": "z" * 100_000},
        {"type": "x" * 1_000_000},
        {"causes": [["a" * 1000, "b" * 10_000]] * 100, "hops": [["a" * 1000] * 5 + [{"k": "v" * 9000}]] * 100},
        {"args": [[[]] * 60_000]},
        {"args": list(range(100_000)), "attributes": {f"a{n}": n for n in range(50_000)}},
    ],
    ids=range(11),
)
@pytest.mark.parametrize("registry", [ExceptionRegistry(), ExceptionRegistry(defaults=False)])
def test_a_hostile_record_makes_an_exception_that_can_be_printed(registry: ExceptionRegistry, record: Any) -> None:
    error: Any = Codec(exceptions=registry).decode_exception(*fault(**record))
    shows_in_bounds(error)
    assert len("".join(traceback.format_exception(error))) < 4 * (MAX_TEXT + MAX_TRACEBACK) + 3_000_000
    assert callable(error.with_traceback) and len(error.args) <= 32
    assert len(vars(error).get("remote_causes", ())) <= 8
    assert error.__cause__ is None or isinstance(error.__cause__, RemoteError)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["ValueError", "SyntaxError", "OSError", "UnicodeDecodeError", "KeyError"]
RPCMQ_NAMES = ["CallTimeout", "NestedCallError", "RemoteError", "UnknownMethod"]
names = st.sampled_from([*(f"builtins:{n}" for n in NAMES), *(f"rpcmq.errors:{n}" for n in RPCMQ_NAMES), "os:system"])
members = st.sampled_from(
    ["args", "attributes", "text", "traceback", "host", "causes", "hops", "left_out", "ran", "other"]
)


@settings(max_examples=40)
@given(names | json_values, st.dictionaries(members, json_values, max_size=6))
def test_any_record_makes_an_exception(name: Any, record: dict[str, Any]) -> None:
    error = Codec().decode_exception(1, json.dumps({**record, "type": name}).encode())
    assert isinstance(error, Exception)
    shows_in_bounds(error)


@given(json_values, st.integers(4, 200))
def test_brief_shows_what_repr_does(value: Any, limit: int) -> None:
    text = short_repr(value, limit)
    whole = repr(value)
    assert text == whole if len(whole) <= limit else len(text) <= limit
    assert is_printable(value)


@pytest.mark.parametrize("value", [set(), frozenset(), {1}, frozenset({1}), (), (1,), Decimal(1), SimpleNamespace(a=1)])
def test_brief_of_other_values_is_their_repr(value: Any) -> None:
    assert short_repr(value) == repr(value)


def test_text_of_an_ordinary_exception_is_its_own() -> None:
    class HttpError(OSError):
        pass

    error = HttpError("404 not found")
    error.response = SimpleNamespace(body=b"x" * 10_000_000, parent=None)  # type: ignore[attr-defined]
    error.response.parent = error.response  # type: ignore[attr-defined]
    assert exception_text(error, 1000) == "404 not found"
    assert printable_exception(error) is error
    assert exception_traceback(error, 5000) == "".join(traceback.format_exception(error))
    for each in (KeyError("k"), OSError(2, "gone", "/x"), ShownError([1]), ExceptionGroup("g", [ValueError(1)])):
        assert exception_text(each, 1000) == str(each)
        assert exception_traceback(each, 5000) == "".join(traceback.format_exception(each))


def test_a_long_chain_is_cut() -> None:
    error: BaseException = ValueError(0)
    for n in range(10_000):
        outer = ValueError(n)
        outer.__context__ = error
        error = outer
    text = exception_traceback(error, 5000)
    assert text.endswith("ValueError: 9999\n\n") and text.count("Traceback") == 8


@pytest.mark.parametrize("name", ["list", "tuple", "dict", "exception", "long string, often"])
def test_json_does_not_write_out_what_is_shared_without_end(name: str) -> None:
    codec = Codec(prefer=Format.JSON)
    with pytest.raises(PayloadError, match=r"are shared so often|nested more than"):
        codec.encode({"args": HOSTILE[name]})


def test_json_writes_what_is_only_large_or_shared_a_little() -> None:
    codec = Codec(prefer=Format.JSON)
    one = [{"a": 1}] * 1000
    for value in ([[0] * 1000 for _ in range(1100)], [one] * 300, ["x" * 100_000] * 100, ["x" * 10_000_000]):
        assert codec.decode(*codec.encode(value)) == value
