"""The format of the dispatch log: its example, every way to cut or damage a file, and back again."""

from __future__ import annotations

import re
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq import log_format as record
from rpcmq.errors import Outcome
from rpcmq.histogram import microseconds
from rpcmq.log_format import (
    LAYOUT,
    MAGIC,
    MARK,
    MAX_ERROR,
    NOT_REPORTED,
    RECORD,
    RECORD_BYTES,
    SEAL,
    VERSION,
    BlockKind,
    Head,
    Mark,
    MessageKind,
    NameKind,
    Problem,
    Record,
    Seal,
    Spool,
    SpoolError,
    blocks,
    framed,
    name_entry,
    pack_head,
    read_head,
    read_spool,
)
from rpcmq.wire import HEADER, NO_TTL, Address, Kind, pack

HEAD = Head(VERSION, 58, 7, 1, 1_700_000_000_000, 0, 1000.0, 1_700_000_060_000_000, "r1")
TRACE_ID = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736")
REQUEST = pack(
    Kind.REQUEST,
    b"{}",
    format=1,
    ttl=30_000,
    key=bytes.fromhex("00000007 0000000000000009 0000000000000005"),
    address=Address("compute").encode(),
    method=b"reboot",
    trace=b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
NAMES = (
    name_entry(1, NameKind.TARGET, "", "compute", "", "", "reboot")
    + name_entry(2, NameKind.CALLER, "api-1")
    + name_entry(3, NameKind.SERVER, "node-7", "worker-1")
    + name_entry(4, NameKind.ERROR, "ValueError")
)
PACKED = RECORD.pack(
    REQUEST, 42, 1060.25, 1060.375, 1060.5, 1, 2, 3, 113, 140, 120_000, 1, 0, 4, TRACE_ID, 5_000_000_000, 0
)
RESOLVED = Record(
    seq=42,
    kind=MessageKind.CALL,
    outcome=Outcome.REMOTE_ERROR,
    exchange="",
    topic="compute",
    group="",
    target_server="",
    method="reboot",
    caller="api-1",
    server="node-7",
    server_identity="worker-1",
    received_us=1_700_000_120_250_000,
    queued_us=125_000,
    service_us=125_000,
    handler_us=120_000,
    total_us=250_000,
    request_bytes=113,
    reply_bytes=140,
    attempt=0,
    hops=0,
    flags=0,
    format=1,
    ttl_ms=30_000,
    origin_router=7,
    handle=9,
    sequence=5,
    trace_id=TRACE_ID,
    error_class="ValueError",
    sent_us=5_000_000_000,
)


def block(kind: BlockKind, count: int, body: bytes) -> bytes:
    return b"".join(framed(kind, count, body))


def file_of(*parts: bytes, records: int = 1, names: int = 4) -> bytes:
    """A sealed file with ``parts`` between head and seal."""
    seal = SEAL.pack(records, 0, names, 0, True)
    return pack_head(HEAD) + b"".join(parts) + block(BlockKind.SEAL, 1, seal)


MARKED = block(BlockKind.MARK, 1, MARK.pack(1060.5, 42, 0))
NAMED = block(BlockKind.NAMES, 4, NAMES)
WHOLE = file_of(MARKED, NAMED, block(BlockKind.RECORDS, 1, PACKED))


def problem_of(data: bytes) -> SpoolError:
    with pytest.raises(SpoolError) as caught:
        list(Spool(data))
    return caught.value


# --- the example --------------------------------------------------------------------------------


def example() -> list[tuple[bytes, str]]:
    """Lines of the example in the module's docstring: bytes, and what they are."""
    lines: list[tuple[bytes, str]] = []
    before = b""
    for digits, note in re.findall(r"^    ((?:[0-9a-f]{2} ?)+?) *\|(?: (.*))?$", str(record.__doc__), re.MULTILINE):
        before += bytes.fromhex(digits)
        if note:
            lines.append((before, note))
            before = b""
    return lines


def test_the_example_is_what_is_written():
    assert b"".join(data for data, _ in example()) == WHOLE


def test_the_example_is_read_as_it_is_annotated():
    spool = Spool(b"".join(data for data, _ in example()))
    assert list(spool) == [RESOLVED]
    assert (spool.head, spool.mark, spool.seal) == (HEAD, Mark(1060.5, 42, 0), Seal(1, 0, 4, 0, True))


def test_the_examples_record_is_annotated_field_by_field():
    notes = [note for _, note in example()]
    begin = notes.index("length = 113")
    assert [note.partition(" ")[0] for note in notes[begin : begin + len(LAYOUT)]] == [f.name for f in LAYOUT]


def test_a_file_is_read_by_its_path(tmp_path: Path):
    path = tmp_path / "some.spool"
    path.write_bytes(WHOLE)
    assert list(read_spool(path)) == list(read_spool(str(path))) == [RESOLVED]


def test_the_layout_leaves_no_byte_out():
    place = 0
    for field in LAYOUT:
        assert field.offset == place, field
        place += int(field.type.lstrip(">ufV"))
    assert place == RECORD.size
    assert HEADER.size - 4 == next(f.offset for f in LAYOUT if f.name == "seq")


def test_what_is_not_reported_is_what_the_wire_says():
    assert NOT_REPORTED == NO_TTL


# --- there and back -----------------------------------------------------------------------------

moments = st.floats(0, 1e8)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
u32 = st.integers(0, 2**32 - 1)
u8 = st.integers(0, 255)


@given(
    seq=st.integers(0, 2**64 - 1), times=st.tuples(moments, moments, moments), names=st.tuples(*[texts] * 8),
    sizes=st.tuples(u32, u32, u32), outcome=u8, attempt=u8, trace=st.binary(min_size=16, max_size=16),
    is_cast=st.booleans(), ttl=u32, has_server=st.booleans(), has_ended=st.booleans(), error=st.text(max_size=20),
    sent=st.integers(0, 2**64 - 1), router=st.none() | texts, home=u32,
)  # fmt: skip
def test_what_is_packed_comes_back(
    seq, times, names, sizes, outcome, attempt, trace, is_cast, ttl, has_server, has_ended, error, sent, router, home
):
    received, dispatched, ended = sorted(times)
    exchange, topic, group, target_server, method, caller, server, identity = names
    entries = (
        name_entry(1, NameKind.TARGET, exchange, topic, group, target_server, method)
        + name_entry(2, NameKind.CALLER, caller)
        + (
            name_entry(3, NameKind.SERVER, server, identity)
            if router is None
            else name_entry(3, NameKind.SERVER_ELSEWHERE, server, identity, router)
        )
        + name_entry(MAX_ERROR, NameKind.ERROR, error)
    )
    header = pack(Kind.CAST if is_cast else Kind.REQUEST, ttl=ttl)
    packed = RECORD.pack(
        header, seq, received, dispatched, ended, 1, 2, 3 * has_server, *sizes, outcome, attempt,
        MAX_ERROR * bool(error), trace, sent, home,
    )  # fmt: skip
    kind = BlockKind.RECORDS if has_ended else BlockKind.IN_FLIGHT
    data = pack_head(HEAD) + block(BlockKind.NAMES, 4, entries) + block(kind, 1, packed)
    (found,) = Spool(data)
    assert found.seq == seq and found.outcome == (outcome if has_ended else None)
    assert (found.exchange, found.topic, found.group, found.target_server, found.method, found.caller) == names[:6]
    assert (found.server, found.server_identity) == ((server, identity) if has_server else (None, None))
    assert found.kind is (MessageKind.CAST if is_cast else MessageKind.CALL)
    assert found.total_us == found.queued_us + (found.service_us or 0) == microseconds(ended - received)
    assert min(found.queued_us, found.total_us, found.service_us or 0) >= 0
    assert (found.request_bytes, found.reply_bytes, found.handler_us or NOT_REPORTED) == (
        sizes[0] or len(header),
        sizes[1],
        sizes[2] or NOT_REPORTED,
    )
    assert found.ttl_ms == (None if ttl == NO_TTL else ttl)
    assert found.trace_id == (trace if any(trace) else None)
    assert found.error_class == (error or None)
    assert found.sent_us == (sent or None)
    assert found.server_router == (router if has_server else None)
    assert found.home_us == (home or None)
    assert found.between_us == (max(0, found.service_us - home) if found.service_us is not None and home else None)


def test_a_file_of_version_3_is_read() -> None:
    head = bytearray(pack_head(HEAD))
    head[8:10] = (3).to_bytes(2)
    head[-4:] = crc32(head[:-4]).to_bytes(4)
    data = bytes(head) + MARKED + NAMED + block(BlockKind.RECORDS, 1, PACKED[: RECORD_BYTES[3]])
    spool = Spool(data + block(BlockKind.SEAL, 1, SEAL.pack(1, 0, 4, 0, True)))
    assert list(spool) == [RESOLVED]
    assert spool.head.version == 3


@given(router_id=u32, segment=u32, boot=st.integers(0, 2**64 - 1), name=texts, wall=st.integers(-(2**63), 2**63 - 1))
def test_a_head_comes_back(router_id, segment, boot, name, wall):
    head = Head(VERSION, 0, router_id, segment, boot, 3, 1.5, wall, name)
    packed = pack_head(head)
    assert read_head(packed) == head._replace(length=len(packed))


@pytest.mark.parametrize(("seconds", "wanted"), [(0.0, 0), (-1e-3, 0), (1.5e-6, 2), (1.49e-6, 1), (60.0, 60_000_000)])
def test_microseconds_are_whole_and_never_negative(seconds: float, wanted: int):
    assert microseconds(seconds) == wanted


def test_a_wall_clock_is_derived_from_the_head():
    assert HEAD.wall(999.0) == HEAD.wall_us - 1_000_000
    assert HEAD.wall(1000.0000015) == HEAD.wall_us + 2


# --- cut off ------------------------------------------------------------------------------------


def test_a_file_cut_at_any_byte_gives_what_is_whole_and_says_where_it_ends():
    ends = [HEAD.length, *(b.offset for b in blocks(WHOLE, HEAD))]
    for size in range(len(WHOLE)):
        data = WHOLE[:size]
        found: list[Record] = []
        try:
            spool = Spool(data)
            found.extend(spool)
            assert size in ends and spool.seal is None
        except SpoolError as error:
            assert error.problem is Problem.TRUNCATED, size
            assert error.offset == max([0, *(end for end in ends if end <= size)]), size
        assert found == ([RESOLVED] if size >= ends[-1] else [])


def test_no_damaged_byte_goes_unnoticed():
    for place in range(len(WHOLE)):
        data = bytearray(WHOLE)
        data[place] ^= 0x40
        error = problem_of(bytes(data))
        if place >= HEAD.length:
            assert error.problem is Problem.CORRUPT, place


def test_a_tail_of_zeros_is_damage():
    assert problem_of(WHOLE[: -53 - 20] + bytes(60)).problem is Problem.CORRUPT


# --- foreign, future, and wrong though its checksums are right ---------------------------------


@pytest.mark.parametrize("data", [b"PAR1" + bytes(100), b"rpcmqloG" + bytes(100), b"x"])
def test_another_kind_of_file_is_foreign(data: bytes):
    assert problem_of(data).problem is Problem.FOREIGN


def test_a_later_version_is_named():
    data = MAGIC + (VERSION + 1).to_bytes(2) + WHOLE[10:]
    error = problem_of(data)
    assert error.problem is Problem.VERSION and f"version {VERSION + 1}" in str(error)


def test_a_head_that_is_too_short_is_corrupt():
    assert problem_of(MAGIC + VERSION.to_bytes(2) + bytes(100)).problem is Problem.CORRUPT


def wrong_name(*texts: str, kind: int = NameKind.CALLER) -> bytes:
    return file_of(block(BlockKind.NAMES, 1, name_entry(2, kind, *texts)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (WHOLE + b"x", "after the seal"),
        (file_of(MARKED, NAMED, block(BlockKind.RECORDS, 1, PACKED), records=2), "seal says"),
        (file_of(NAMED, block(BlockKind.RECORDS, 2, PACKED)), "block of kind 2 with 2 entries"),
        (file_of(block(9, 0, b"")), "block of kind 9"),  # type: ignore[arg-type]
        (file_of(block(BlockKind.MARK, 2, bytes(48))), "block of kind 4"),
        (file_of(MARKED, block(BlockKind.RECORDS, 1, PACKED)), "number 3, which names nothing"),
        (file_of(NAMED, block(BlockKind.RECORDS, 1, PACKED[:68] + b"\0\0\0\2" + PACKED[72:])), "number 2"),
        (file_of(NAMED, block(BlockKind.RECORDS, 1, PACKED[:94] + b"\0\3" + PACKED[96:])), "number 3"),
        (wrong_name("a", "b"), "with 2 texts"),
        (wrong_name("a", kind=77), "name of kind 77"),
        (file_of(block(BlockKind.NAMES, 1, name_entry(2, NameKind.CALLER, "a") + b"x")), "names"),
        (file_of(block(BlockKind.NAMES, 1, name_entry(2, NameKind.CALLER, "a")[:-1] + b"\xff")), "names"),
        (file_of(block(BlockKind.NAMES, 1, name_entry(2, NameKind.CALLER, "a")[:-2])), "names"),
    ],
)
def test_what_cannot_be_is_corrupt(data: bytes, text: str):
    error = problem_of(data)
    assert error.problem is Problem.CORRUPT and text in str(error)
