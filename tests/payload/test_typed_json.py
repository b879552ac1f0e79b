from __future__ import annotations

import collections
import datetime as dt
import enum
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload import typed_json
from rpcmq.payload.exception_registry import ExceptionRegistry
from rpcmq.payload.tags import Malformed
from rpcmq.payload.typed_json import TypedJson, check_depth
from tests.payload.samples import VALUES, Instance, InstanceError, Point, same

typed = TypedJson()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (17, "17"),
        (-(2**53) + 1, "-9007199254740991"),
        (2**53, '{"$":"int","v":"20000000000000"}'),
        (-(2**53), '{"$":"int","v":"-20000000000000"}'),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (float("inf"), '{"$":"float","v":"inf"}'),
        (float("-inf"), '{"$":"float","v":"-inf"}'),
        (float("nan"), '{"$":"float","v":"nan"}'),
        ("hé\n", '"h\\u00e9\\n"'),
        ([1, [2]], "[1,[2]]"),
        ({"a": {"b": 1}}, '{"a":{"b":1}}'),
        (b"\x00\xff", '{"$":"bytes","v":"AP8="}'),
        (Decimal("1.50"), '{"$":"decimal","v":"1.50"}'),
        (dt.datetime(2024, 2, 29, 1, 2, 3), '{"$":"datetime","v":"2024-02-29T01:02:03"}'),
        (
            dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC),
            '{"$":"datetime","v":"2024-02-29T01:02:03.000004+00:00"}',
        ),
        (dt.date(2024, 2, 29), '{"$":"date","v":"2024-02-29"}'),
        (dt.time(1, 2, 3), '{"$":"time","v":"01:02:03"}'),
        (dt.timedelta(-1, 2, 3), '{"$":"timedelta","v":[-1,2,3]}'),
        (UUID(int=1), '{"$":"uuid","v":"00000000-0000-0000-0000-000000000001"}'),
        ((1, ()), '{"$":"tuple","v":[1,{"$":"tuple","v":[]}]}'),
        ({7}, '{"$":"set","v":[7]}'),
        (frozenset({7}), '{"$":"frozenset","v":[7]}'),
        ({1: "a"}, '{"$":"dict","v":[[1,"a"]]}'),
        ({"$": "int", "v": "1"}, '{"$":"dict","v":[["$","int"],["v","1"]]}'),
        (KeyError("k"), '{"$":"exception","v":{"type":"builtins:KeyError","args":["k"]}}'),
    ],
    ids=repr,
)
def test_the_documented_encoding(value: Any, text: str) -> None:
    assert typed.encode(value) == text.encode()
    assert same(typed.decode(text.encode()), value)


@given(VALUES)
@example({"$": {"$": "int", "v": "1"}})
@example({("a", 1): {"$": None}})
@example([float("nan"), {float("nan"), float("nan")}])
def test_round_trip(value: Any) -> None:
    assert same(typed.decode(typed.encode(value)), value)


@given(st.datetimes(timezones=st.timezones()))
def test_aware_datetime_keeps_moment_and_offset(value: dt.datetime) -> None:
    decoded = typed.decode(typed.encode(value))
    assert decoded == value.replace(tzinfo=dt.timezone(value.utcoffset() or dt.timedelta()))
    assert decoded.utcoffset() == value.utcoffset()


def test_integers_of_any_size() -> None:
    huge = -(7**20_000)  # more digits than int() takes
    assert typed.decode(typed.encode(huge)) == huge


def test_exception_of_a_registered_class() -> None:
    both = TypedJson(ExceptionRegistry([InstanceError]))
    decoded = both.decode(both.encode([InstanceError(7)]))
    assert type(decoded[0]) is InstanceError
    assert str(decoded[0]) == "instance 7 is gone"


class Level(enum.IntEnum):
    HIGH = 1


class Zone(dt.tzinfo):
    def utcoffset(self, _: Any) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Level.HIGH, "send its .name or .value"),
        (collections.OrderedDict(a=1), "collections.OrderedDict .* convert it to dict first"),
        (Point(1, 2), "convert it to tuple first"),
        (Instance("x"), r"cannot encode tests.payload.samples.Instance .* send dataclasses.asdict\(\) of it"),
        (bytearray(b"x"), "cannot encode bytearray"),
        (1j, "cannot encode complex"),
        (InstanceError(7), "ExceptionRegistry.register"),
        (StopIteration(), "ExceptionRegistry.register"),
        (dt.datetime(2024, 1, 1, fold=1), "give it a time zone"),
        (dt.datetime(2024, 1, 1, tzinfo=Zone()), "gives no offset"),
        (dt.time(1, tzinfo=Zone()), "no fixed offset"),
        (dt.time(1, fold=1), "fold=1"),
        (lambda: 0, "cannot encode function"),
    ],
)
def test_what_cannot_be_encoded(value: Any, expected: str) -> None:
    with pytest.raises(PayloadError, match=rf"args\['a'\]\[1\]: .*{expected}"):
        typed.encode({"method": "m", "args": {"a": [0, value]}})


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (1j, "the message"),
        ({"a": {1: 1j}}, "a[1]"),
        ({"a": {1j: 1}}, "a, key 1j"),
        ({"a": (1, {2: [1j]})}, "a[1][2][0]"),
        ({"a": ValueError(1, 1j)}, "a[1]"),
    ],
)
def test_error_names_the_path(value: Any, path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        typed.encode(value)
    assert str(caught.value).startswith(f"{path}: cannot encode complex 1j")


# Nesting: the writer's limit is exactly the reader's.


def depth_of(text: bytes) -> int:
    """Levels of arrays and objects, told by a plain walk over the characters."""
    depth = deepest = 0
    inside = escaped = False
    for character in text.decode():
        if inside:
            inside = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


@given(VALUES, st.integers(min_value=0, max_value=6))
def test_writer_and_reader_agree_on_the_depth(value: Any, limit: int) -> None:
    text = typed.encode(value)
    limited = TypedJson(max_depth=limit)
    if depth_of(text) <= limit:
        assert limited.encode(value) == text
        assert same(limited.decode(text), value)
    else:
        with pytest.raises(PayloadError, match=r"nested more than|in itself"):
            limited.encode(value)
        with pytest.raises(PayloadRefused, match="nested more than"):
            limited.decode(text)


def test_brackets_in_strings_do_not_count() -> None:
    text = json.dumps(["[" * 500, '"[' * 500, "\\" * 3 + "[" * 500])
    assert typed.decode(text.encode()) == json.loads(text)


def test_a_value_that_contains_itself() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(PayloadError, match="nested more than 100 levels deep, or in itself"):
        typed.encode(ring)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, '"' * 99_999])
def test_hostile_nesting_is_refused_at_once(text: str) -> None:
    with pytest.raises(PayloadRefused):
        typed.decode(text.encode())


@given(st.text("[]{}", max_size=60), st.integers(min_value=0, max_value=12))
def test_the_depth_of_any_brackets_is_that_of_a_plain_walk(brackets: str, limit: int) -> None:
    level = deepest = lowest = 0
    for character in brackets:
        level += 1 if character in "[{" else -1
        deepest, lowest = max(deepest, level), min(lowest, level)
    if sum(character in "[{" for character in brackets) <= limit:
        return  # cannot be deeper, and whether they match is the parser's to say
    if deepest <= limit and lowest == level == 0:
        check_depth(brackets.encode(), limit)
    else:
        with pytest.raises(Malformed):
            check_depth(brackets.encode(), limit)


@pytest.mark.parametrize("nested", ["[" * 8_000_000, "[" * 4_000_000 + "]" * 4_000_000, ("[" * 99 + "]" * 98) * 40_000])
def test_what_is_too_deep_is_refused_without_a_look_at_all_of_it_for_each_level(
    nested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 MB of brackets: at a level for each look at all of them, it took ten seconds and more."""
    looked_at = 0

    class Counting(bytes):
        def replace(self, *arguments: Any) -> Counting:
            nonlocal looked_at
            looked_at += len(self)
            return Counting(super().replace(*arguments))

        def translate(self, *arguments: Any) -> Counting:
            return Counting(super().translate(*arguments))

    monkeypatch.setattr(typed_json, "_STRINGS", SimpleNamespace(sub=lambda by, data: Counting(data)))
    with pytest.raises(Malformed, match="nested more than 100 levels deep"):
        check_depth(nested.encode(), 100)
    assert looked_at <= 4 * len(nested)


@pytest.mark.parametrize("tag", ["set", "frozenset", "dict"])
@pytest.mark.parametrize("kind", ["number", "int", "decimal", "tuple"])
def test_keys_that_were_chosen_to_have_one_hash_are_refused(tag: str, kind: str) -> None:
    """Each of them would be compared with all before it: of 100,000 that takes a minute."""
    numbers = [(2**61 - 1) * number for number in range(1, 5000)]
    written: dict[str, Any] = {
        "number": lambda number: number,
        "int": lambda number: {"$": "int", "v": f"{number:x}"},
        "decimal": lambda number: {"$": "decimal", "v": str(number)},
        "tuple": lambda number: {"$": "tuple", "v": [number]},
    }
    keys = [written[kind](number) for number in numbers]
    content = [[key, None] for key in keys] if tag == "dict" else keys
    with pytest.raises(PayloadRefused, match="have the hash of another"):
        typed.decode(json.dumps({"$": tag, "v": content}).encode())
    few = typed.decode(json.dumps({"$": tag, "v": content[:500]}).encode())
    assert len(few) == 500


def test_many_keys_of_many_hashes_are_taken() -> None:
    for values in ({*range(-3000, 3000)}, {f"key-{i}" for i in range(5000)}, {1.5 * i for i in range(5000)}):
        assert typed.decode(typed.encode(values)) == values
        assert typed.decode(typed.encode(dict.fromkeys(values, 0))) == dict.fromkeys(values, 0)


def test_nesting_beyond_what_the_parser_can_follow() -> None:
    with pytest.raises(PayloadRefused, match="typed JSON not decoded: RecursionError"):
        TypedJson(max_depth=200_000).decode(b"[" * 200_000 + b"]" * 200_000)


def test_unterminated_string_takes_linear_time() -> None:
    # Quadratic matching would take minutes on this.
    with pytest.raises(PayloadRefused):
        typed.decode(b"[" * 101 + b'"' + b'\\"' * 1_000_000)
    with pytest.raises(PayloadRefused):
        typed.decode(b"[" * 101 + b'"' + b"x" * 1_000_000 + b"\\")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nul",
        b"[1,]",
        b"1 2",
        b'"\xff"',
        b"\xef\xbb\xbf1",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"'a'",
        b'{"a":1,"a":2}',
        b'{"$":"int","$":"int","v":"1"}',
        b'"\n"',
        b"9" * 5000,
        "1".encode("utf-16"),
        b"\x00",
    ],
)
def test_malformed_text(text: bytes) -> None:
    with pytest.raises(PayloadRefused, match="malformed typed JSON"):
        typed.decode(text)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"type": "builtins:ValueError"},
        {"type": 1, "args": []},
        {"type": "builtins:ValueError", "args": {}},
        {"type": "builtins:ValueError", "args": [], "more": 1},
        {"type": "os:system", "args": ["true"]},
        {"type": "builtins:eval", "args": ["1"]},
        {"type": "builtins:UnicodeDecodeError", "args": []},
    ],
)
def test_malformed_exception(record: Any) -> None:
    with pytest.raises(PayloadRefused, match="malformed typed JSON"):
        typed.decode(json.dumps({"$": "exception", "v": record}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=4) | st.sampled_from(["$", "v"]), inner, max_size=3)
    | st.fixed_dictionaries(
        {
            "$": st.sampled_from(
                ["int", "float", "bytes", "decimal", "datetime", "date", "time", "timedelta", "uuid",
                 "tuple", "set", "frozenset", "dict", "exception", "no such"]
            ),
            "v": inner,
        }
    ),
    max_leaves=10,
)  # fmt: skip


@pytest.mark.fuzz
@given(JSON)
def test_any_json_gives_a_value_or_is_refused(tree: Any) -> None:
    try:
        value = typed.decode(json.dumps(tree).encode())
    except PayloadRefused:
        return
    assert same(typed.decode(typed.encode(value)), value)


@pytest.mark.fuzz
@given(st.binary(max_size=200) | st.text(alphabet='{}[]"\\$v:,0-eE.nulltrfas \n', max_size=60).map(str.encode))
def test_any_bytes_give_a_value_or_are_refused(data: bytes) -> None:
    try:
        typed.decode(data)
    except PayloadRefused:
        pass


@pytest.mark.fuzz
@given(VALUES, st.data())
def test_damaged_text_gives_a_value_or_is_refused(value: Any, data: st.DataObject) -> None:
    text = bytearray(typed.encode(value))
    position = data.draw(st.integers(0, len(text) - 1))
    text[position] = data.draw(st.integers(0, 255))
    try:
        typed.decode(bytes(text[: data.draw(st.integers(0, len(text)))]))
    except PayloadRefused:
        pass
