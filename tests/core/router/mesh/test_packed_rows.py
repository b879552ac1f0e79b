"""The packed table is a dict that grows a little at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.router.mesh.packed_rows import PackedRows

KEYS = st.integers(0, 60).map(lambda number: b"k%d" % number) | st.binary(max_size=4)
#: Values that contain keys: a row is not to be found in the middle of another one.
VALUES = st.binary(max_size=5) | st.lists(KEYS, max_size=3).map(b"\0\0\0\1\0\2".join)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=100))
def test_it_holds_the_latest_value_of_each_key(puts: list[tuple[bytes, bytes]]) -> None:
    rows, truth = PackedRows(), dict[bytes, bytes]()
    for key, value in puts:
        if len(value) % 2:
            assert rows.get(key) == truth.get(key, b"")
        rows.put(key, value)
        truth[key] = value
        if not value:
            del truth[key]
        assert rows.get(key) == value
        assert len(rows) == len(truth)
    assert sorted(rows) == sorted(truth)
    assert {key: rows.get(key) for key, _ in puts} == {key: truth.get(key, b"") for key, _ in puts}


def test_a_value_that_was_looked_for_before_others_were_put_is_not_put_in_their_place() -> None:
    rows = PackedRows()
    key = b"a key"
    for number in range(200):
        assert not rows.get(key)
        rows.put(b"other %d" % number, b"x" * (number % 7 + 1))
    rows.put(key, b"value")
    assert rows.get(key) == b"value" and len(rows) == 201
    assert all(rows.get(b"other %d" % number) == b"x" * (number % 7 + 1) for number in range(200))


def test_whoever_goes_through_it_finds_all_that_stay_while_it_grows() -> None:
    rows = PackedRows()
    early = {b"early %d" % number for number in range(300)}
    for key in early:
        rows.put(key, b"1")
    seen = set()
    for number, key in enumerate(rows):
        seen.add(key)
        if number < 2_000:
            rows.put(b"late %d" % number, b"2")
    assert early <= seen
