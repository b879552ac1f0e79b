from __future__ import annotations

import datetime as dt
import pickle
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import PayloadRefused
from rpcmq.payload.pickle_scan import MAX_TUPLE_DEPTH, check
from tests.payload.samples import VALUES

P5 = b"\x80\x05"


def nested(levels: int) -> bytes:
    """A dict whose key is a tuple ``levels`` deep."""
    return P5 + b"})" + b"\x85" * levels + b"Ns."


def doubling(levels: int, opcode: bytes = b"\x86", copies: int = 2) -> bytes:
    """A dict whose key is a tuple that holds the next one ``copies`` times, and so on."""
    body = b"".join((b"h%c" % level) * copies + opcode + b"\x94" for level in range(levels))
    return P5 + b"}N\x94" + body + b"Ns."


@given(VALUES)
def test_what_pickle_writes_passes(value: Any) -> None:
    check(pickle.dumps(value, 5))


@pytest.mark.parametrize(
    "value",
    [
        "x" * 255,
        "x" * 256,
        b"x" * 256,
        "x" * 100_000,
        b"x" * 100_000,
        bytearray(b"x" * 300),
        1 << 3000,
        -(1 << 3000),
        list(range(5000)),
        {str(n): n for n in range(5000)},
        set(range(3000)),
        frozenset(range(3000)),
        [(n, n + 1, str(n)) for n in range(10_000)],
        [(n, n, n, n) for n in range(2000)],
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(n) for n in range(500)],
        [uuid.UUID(int=n) for n in range(500)],
        [b"x" * 70_000, "y" * 70_000, ("z" * 300, b"z" * 300)],
        tuple(range(30_000)),
        [(n,) for n in range(30_000)],
        [(n, (n, (n,))) for n in range(10_000)],
    ],
    ids=lambda value: f"{type(value).__name__} of {str(value)[:20]}",
)
def test_large_values_pass(value: Any) -> None:
    data = pickle.dumps(value, 5)
    check(data)
    assert pickle.loads(data) == value


def test_recursive_structures_pass() -> None:
    ring: list[Any] = []
    ring.append((ring, frozenset({1})))
    check(pickle.dumps(ring, 5))


@given(VALUES, st.data())
def test_no_prefix_passes(value: Any, data: st.DataObject) -> None:
    whole = pickle.dumps(value, 5)
    with pytest.raises(PayloadRefused):
        check(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(VALUES, st.binary(min_size=1, max_size=5))
def test_nothing_may_follow(value: Any, more: bytes) -> None:
    with pytest.raises(PayloadRefused):
        check(pickle.dumps(value, 5) + more)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_other_protocols(protocol: int) -> None:
    with pytest.raises(PayloadRefused, match="does not start as pickle protocol 5"):
        check(pickle.dumps({"a": 1}, protocol))


def test_every_opcode_that_protocol_5_does_not_use_is_refused() -> None:
    not_used = (
        pickle.DUP, pickle.FLOAT, pickle.INT, pickle.LONG, pickle.STRING, pickle.BINSTRING,
        pickle.SHORT_BINSTRING, pickle.UNICODE, pickle.PERSID, pickle.BINPERSID, pickle.GLOBAL,
        pickle.DICT, pickle.LIST, pickle.INST, pickle.OBJ, pickle.GET, pickle.PUT, pickle.BINPUT,
        pickle.LONG_BINPUT, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PROTO, pickle.NEXT_BUFFER,
        pickle.READONLY_BUFFER,
    )  # fmt: skip
    for opcode in not_used:
        with pytest.raises(PayloadRefused, match=f"opcode 0x{opcode[0]:02x} at byte 3"):
            check(P5 + b"N" + opcode + b"\x00" * 9 + b".")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "does not start"),
        (P5, "does not start"),
        (P5 + b"NN", "no STOP"),
        (P5 + b"N.N.", "data after STOP at byte 3"),
        (P5 + b"NK.", "no STOP|truncated"),
        (P5 + b"NK", "no STOP|truncated"),
        (P5 + b"\x8c\x05ab.", "truncated"),
        (P5 + b"X\xff\xff\xff\x7fabc.", "claims to end at byte"),
        (P5 + b"B\xff\xff\xff\xffabc.", "claims to end at byte"),
        (P5 + b"\x8b\xff\xff\xff\x7fabc.", "claims to end at byte"),
        (P5 + b"\x8e" + b"\xff" * 8 + b"abc.", "claims to end at byte"),
        (P5 + b"\x8d" + b"\xff" * 8 + b"abc.", "claims to end at byte"),
        (P5 + b"\x96\x00\x00\x00\x00\x00\x01\x00\x00.", "claims to end at byte"),
        (P5 + b"X\x04\x00\x00\x00abc.", "claims to end at byte"),
        (P5 + b"NX\x01\x00.", "claims to end at byte|no STOP|truncated"),
        (P5 + b"Nr\xff\xff\xff\x7f0.", "opcode 0x72"),
        (P5 + b"\xff\xff.", "opcode 0xff"),
    ],
)
def test_malformed(data: bytes, expected: str) -> None:
    with pytest.raises(PayloadRefused, match=expected):
        check(data)


def test_tuples_as_deep_as_allowed_can_be_hashed() -> None:
    data = nested(MAX_TUPLE_DEPTH - 2)
    check(data)
    assert len(pickle.loads(data)) == 1


@pytest.mark.parametrize("levels", [MAX_TUPLE_DEPTH, 100_000, 1_000_000])
def test_tuples_that_would_overflow_the_stack(levels: int) -> None:
    with pytest.raises(PayloadRefused, match=r"nests tuples more than 20000 deep|shared parts"):
        check(nested(levels))


@pytest.mark.parametrize(
    "pair",
    [b"N\x86", b"NN\x87", b"\x940h\x00\x85", b"(N1\x85", b"\x85]0"],
    ids=["pairs", "triples", "memo", "mark dropped", "lists between"],
)
def test_deep_tuples_in_other_ways(pair: bytes) -> None:
    data = P5 + b"})" + (pair * 30_000 if b"h" not in pair else _through_memo(30_000)) + b"Ns."
    with pytest.raises(PayloadRefused, match="nests tuples more than 20000 deep"):
        check(data)


def _through_memo(levels: int) -> bytes:
    return b"".join(b"\x940j" + level.to_bytes(4, "little") + b"\x85" for level in range(levels))


def test_deep_arguments_of_calls() -> None:
    call = b"\x8c\x01m\x8c\x01n\x93"
    body = b"".join(b"\x940" + call + b"j" + n.to_bytes(4, "little") + b"\x85R" for n in range(21_000))
    with pytest.raises(PayloadRefused, match="nests tuples more than 20000 deep"):
        check(P5 + b"})" + body + b"Ns.")


@pytest.mark.parametrize(
    "data",
    [
        doubling(40),
        doubling(200),
        doubling(30, b"\x87", 3),
        P5 + b"}N\x94" + b"".join(b"(" + b"h%c" % n * 100 + b"t\x94" for n in range(6)) + b"Ns.",
        doubling(40)[:-3] + b"\x8c\xff" + b"x" * 255 + b"0Ns.",
    ],
)
def test_tuples_that_would_take_years_to_hash(data: bytes) -> None:
    with pytest.raises(PayloadRefused, match="through shared parts"):
        check(data)


def shared_key(levels: int, hashes: bytes, uses: int, opening: bytes = b"}", closing: bytes = b"") -> bytes:
    """A tuple of 2**levels items and more, which ``hashes`` has hashed again and again."""
    pairs = b"".join(b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86\x94" for n in range(levels))
    padding = b"B" + (2 << levels).to_bytes(4, "little") + bytes(2 << levels) + b"0"
    return P5 + padding + b"()\x94" + pairs + b"1" + opening + hashes % levels * uses + closing + b"."


@pytest.mark.parametrize(
    "data",
    [
        shared_key(18, b"h%cNs", 1000),
        shared_key(18, b"h%cN", 1000, b"}(", b"u"),
        shared_key(18, b"h%c", 1000, b"\x8f(", b"\x90"),
        shared_key(18, b"h%c", 1000, b"(", b"\x91"),
        shared_key(18, b"h%c", 1000, b"\x8c\x0bcollections\x8c\x07Counter\x93](", b"e\x85R"),
    ],
    ids=["item", "items", "set", "frozenset", "counter"],
)
def test_a_large_tuple_is_not_hashed_again_and_again(data: bytes) -> None:
    with pytest.raises(PayloadRefused, match="items of tuples hashed through shared parts"):
        check(data)


def test_a_shared_tuple_may_be_a_key_of_many_dicts_and_a_value_of_many_more() -> None:
    key = tuple(range(100))
    values: list[Any] = [[{key: key} for _ in range(20_000)], dict.fromkeys(range(100_000), key), [key] * 100_000]
    for value in values:
        data = pickle.dumps(value, 5)
        assert pickle.loads(check(data)) == value


def test_some_sharing_passes() -> None:
    row = ("a", "b", "c")
    check(pickle.dumps([(row, row), ((row, row), (row, row))] * 100, 5))
    check(doubling(4))
    check(doubling(12))


def test_underflow_found_while_measuring() -> None:
    for body in (b"\x86", b"t", b"u", b"\x94", b"0", b"R", b"h\x07"):
        with pytest.raises(PayloadRefused, match=r"takes more from the stack|through shared parts"):
            check(P5 + body + doubling(40)[2:])


@pytest.mark.fuzz
@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda data: P5 + data + b"."))
def test_any_bytes_pass_or_are_refused(data: bytes) -> None:
    try:
        check(data)
    except PayloadRefused:
        pass


FRAME_ENDS = {
    # What the unpickler would read in place of the bytes of the second string.
    "within a string": b"\x8c\x05A" + b"BCDE" + b"CNr\xff\xff\xff\x1f." + b"N" * 72,
    "within a long string": b"X\x05\x00\x00" + b"\x00ABCDE",
    "within an integer": b"J\x00\x00" + b"\x00\x00",
}


@pytest.mark.parametrize("size", [3, 4, 100_000])
@pytest.mark.parametrize("body", FRAME_ENDS.values(), ids=FRAME_ENDS.keys())
def test_an_opcode_that_crosses_the_end_of_a_frame_is_refused(body: bytes, size: int) -> None:
    with pytest.raises(PayloadRefused, match=r"frame|truncated"):
        check(P5 + b"\x95" + size.to_bytes(8, "little") + body + b".")


def test_a_frame_within_a_frame_is_refused() -> None:
    inner = b"\x95" + (5).to_bytes(8, "little") + b"NNNN0"
    with pytest.raises(PayloadRefused, match="frame"):
        check(P5 + b"\x95" + (20).to_bytes(8, "little") + b"(" + inner + b"NNNNNt.")


@pytest.mark.parametrize("sizes", [(0,), (1, 2), (2, 0, 3), (7,), (3, 4)])
def test_frames_that_end_between_opcodes_are_read(sizes: tuple[int, ...]) -> None:
    body, data = b"(NNNNt.", P5
    for size in sizes:
        data += b"\x95" + size.to_bytes(8, "little") + body[:size]
        body = body[size:]
    assert pickle.loads(check(data + body)) == (None,) * 4


def test_where_states_are_set_the_pickle_is_one_frame() -> None:
    values = [uuid.UUID(int=n) for n in range(5000)]
    data = pickle.dumps(values, 5)
    loaded = check(data)
    assert data.count(b"\x95") > 1
    assert loaded[:11] == P5 + b"\x95" + (len(loaded) - 11).to_bytes(8, "little")
    assert loaded.count(b"\x86Q") >= len(values)
