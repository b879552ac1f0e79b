"""JSON value by value: what the standard library reads of it, and a bounded piece of the text at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rpcmq.log_format import bounded_json
from rpcmq.log_format.bounded_json import LONGEST_VALUE, BoundedJson, NotJson

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def elements(data: bytes) -> list[Any]:
    """The list that is all of ``data``."""
    source, found = BoundedJson(data), []
    more = source.take("[") and source.next() != "]"
    if not more:
        source.take("]")
    while more:
        found.append(source.value())
        more = source.take(",]") == ","
    if source.next():
        raise NotJson("more after the end")
    return found


@given(st.lists(values, max_size=20), st.sampled_from([None, 1, 40]), st.booleans(), st.integers(1, 40))
def test_it_reads_what_the_standard_library_reads(source: list[Any], indent: int, ascii: bool, longest: int) -> None:
    text = json.dumps(source, indent=indent, ensure_ascii=ascii)
    assert elements(text.encode("utf-8", "surrogatepass") if ascii else text.encode()) == source
    # However little is in sight, what it reads is right.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_json, "LONGEST_VALUE", longest)
        try:
            found = elements(text.encode())
        except NotJson:
            assert any(len(json.dumps(each, indent=indent, ensure_ascii=ascii)) > longest for each in source) or indent
        else:
            assert found == source


@given(st.binary(max_size=200) | st.text(alphabet='[]{},:"\\u0e1- \n\ufeff', max_size=200).map(str.encode))
@example(b"[" * 100_000)
@example(b"[" + b"[" * 8000 + b"]" * 8000 + b"]")
@example(b"[" + b"9" * 5000 + b"]")
@example(b'[{"a": 1, "a": 2}]')
@example(b"[" + b" " * 20_000 + b"]")
def test_it_raises_nothing_else_and_takes_nothing_else(data: bytes) -> None:
    try:
        found = elements(data)
    except NotJson:
        return
    assert repr(found) == repr(json.loads(data.decode("utf-8-sig")))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[1, 2", "expected , or ], not the end (at character 6)"),
        (b"[1 2]", "expected , or ], not '2' (at character 4)"),
        (b'[1, {"a": 1, "a": 2}]', "an object has a name twice (at character 5)"),
        (b"[" + b" " * LONGEST_VALUE * 3 + b"1]", f"more than {LONGEST_VALUE} characters of white space"),
        (b"[" + b"1, " * LONGEST_VALUE + b"x]", f"Expecting value (at character {LONGEST_VALUE * 3 + 2})"),
        (b'["' + b"x" * LONGEST_VALUE + b'"]', f"a value of more than {LONGEST_VALUE} characters"),
        (b'["' + b"x" * LONGEST_VALUE * 4 + b'"]', f"or a value of more than {LONGEST_VALUE} characters"),
        (b"[" + b"[" * LONGEST_VALUE, "recursion"),
        (b"[\xff]", "no UTF-8"),
        (b'["\xc3', "no UTF-8"),
    ],
)
def test_errors_say_what_and_where(data: bytes, says: str) -> None:
    with pytest.raises(NotJson) as error:
        elements(data)
    assert says in str(error.value)


def test_no_call_looks_at_more_than_a_bounded_piece() -> None:
    seen: list[int] = []
    data = b"[" + b"[],[],[[]]," * 100_000 + b"0]"
    source = BoundedJson(data)
    # How much its parser is given is not to be seen otherwise.
    parse = source._parse

    def parsing(text: str, place: int = 0) -> tuple[Any, int]:
        seen.append(len(text))
        return parse(text, place)

    source._parse = parsing  # type: ignore[assignment]
    source.take("[")
    while True:
        source.value()
        if source.take(",]") == "]":
            break
    assert len(seen) == 300_001 and max(seen) <= 2 * LONGEST_VALUE + 1
