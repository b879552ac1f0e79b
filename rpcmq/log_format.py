"""The spool: what a router writes of the messages that it dispatched. Format version 3.

A file is a *head* and then *blocks*; all numbers are big-endian, all text is UTF-8. Every file stands
alone: what its records name by number is defined in it, in a block before them.

Head: magic ``rpcmqlog``, then

====  ====  ==========================================================================================
u16   8     version: 3
u16   10    bytes of the head
u32   12    router_id
u32   16    number of this file in the router's life, from 1
u64   20    boot: wall-clock milliseconds at the router's start; names that life of the router
u64   28    records of that life that were dropped (no room on the disk, ...) before this file
f64   36    a reading of the router's monotonic clock (seconds)
i64   44    the wall clock at that moment (microseconds since 1970, UTC)
text  52    router_name
u32   -4    CRC-32 of all that stands before it
====  ====  ==========================================================================================

Block: u8 kind, 3 zero bytes, u32 number of entries, u32 bytes of the body, u32 CRC-32 of the body, u32
CRC-32 of these 16 bytes; then the body. So a file that was cut off is told from a damaged one.

* 1 NAMES: for each name u32 number (1, 2, ... in each file), u8 :class:`NameKind`, u8 number of texts,
  and each text as u16 length and its bytes.
* 2 RECORDS: messages that have ended, as ``RECORD`` packs them: ``LAYOUT``.
* 3 IN_FLIGHT: calls that are older than a second and have not ended, in the same form; ``ended_at`` is
  the moment of the look, ``outcome`` means nothing. Of a call at most one such entry is ever written.
* 4 MARK: f64 monotonic clock, u64 the last ``seq`` given, u64 calls in flight. One begins each write.
* 5 SEAL: u64 each: records, in-flight entries, names in this file, records of this life dropped so far;
  u8: 1 if the router ended here in good order, so that every ``seq`` has its record or was dropped.
  It is the last block. A file without it was cut off, or is still being written.

A router numbers each call and cast, and each copy of one, as it receives it: ``seq`` is 1, 2, ..., and
each gets exactly one record. So a number that is missing in all files of a (router, boot) is a message
that was under way when the router died (an IN_FLIGHT entry may name it), or whose record was dropped.

Files stand in one directory, ``DIR/spool``, and are named ``<router_id>-<boot>-<segment>`` (decimal, the
segment with at least 8 digits): ``.part`` while the router writes, ``.spool`` once it is sealed. The router
holds a lock (``flock``, exclusive) on a ``.part``; one that can be locked has no writer any more, and what
stands in it up to its last good block is all that there is of it.

A reader refuses a file of a later version; a new kind of block or name or another ``RECORD`` raises the version.
Versions 1 and 2 are read as well. Their records are 8 bytes shorter and have no ``sent_us``, and those of version 1
no errors: both are 0 there.

A file with one record in it:

.. code-block:: rpcmq-spool

    72 70 63 6d 71 6c 6f 67                         | magic = "rpcmqlog"
    00 03                                           | version = 3
    00 3a                                           | length = 58
    00 00 00 07                                     | router_id = 7
    00 00 00 01                                     | segment = 1
    00 00 01 8b cf e5 68 00                         | boot = 1700000000000
    00 00 00 00 00 00 00 00                         | dropped = 0
    40 8f 40 00 00 00 00 00                         | monotonic = 1000.0
    00 06 0a 24 1b b1 c7 00                         | wall_us = 1700000060000000
    72 31                                           | router_name = "r1"
    48 bd be 85                                     | crc
    04 00 00 00                                     | -- MARK
    00 00 00 01                                     | count = 1
    00 00 00 18                                     | bytes = 24
    50 6e 4e 8a                                     | crc of the body
    95 b2 2e ef                                     | crc of the frame
    40 90 92 00 00 00 00 00                         | monotonic = 1060.5
    00 00 00 00 00 00 00 2a                         | last_seq = 42
    00 00 00 00 00 00 00 00                         | in_flight = 0
    01 00 00 00                                     | -- NAMES
    00 00 00 04                                     | count = 4
    00 00 00 54                                     | bytes = 84
    de 9b 8a 86                                     | crc of the body
    20 d6 2d ac                                     | crc of the frame
    00 00 00 01                                     | number = 1
    01 05                                           | TARGET, 5 texts
    00 00                                           | ""
    00 07 63 6f 6d 70 75 74 65                      | "compute"
    00 00                                           | ""
    00 00                                           | ""
    00 06 72 65 62 6f 6f 74                         | "reboot"
    00 00 00 02                                     | number = 2
    02 01                                           | CALLER, 1 texts
    00 05 61 70 69 2d 31                            | "api-1"
    00 00 00 03                                     | number = 3
    03 02                                           | SERVER, 2 texts
    00 06 6e 6f 64 65 2d 37                         | "node-7"
    00 08 77 6f 72 6b 65 72 2d 31                   | "worker-1"
    00 00 00 04                                     | number = 4
    04 01                                           | ERROR, 1 texts
    00 0a 56 61 6c 75 65 45 72 72 6f 72             | "ValueError"
    02 00 00 00                                     | -- RECORDS
    00 00 00 01                                     | count = 1
    00 00 00 78                                     | bytes = 120
    14 1f df 5f                                     | crc of the body
    80 b7 60 4b                                     | crc of the frame
    00 00 00 71                                     | length = 113
    01                                              | version = 1
    10                                              | kind = 0x10
    00 00                                           | flags = 0
    00                                              | hops = 0
    00                                              | zero = 0
    01                                              | format = 1
    00                                              | tag = 0
    00 00 75 30                                     | ttl_ms = 30000
    00 00 00 07                                     | origin_router = 7
    00 00 00 00 00 00 00 09                         | handle = 9
    00 00 00 00 00 00 00 05                         | sequence = 5
    00 00 00 00 00 00 00 2a                         | seq = 42
    40 90 91 00 00 00 00 00                         | received_at = 1060.25
    40 90 91 80 00 00 00 00                         | dispatched_at = 1060.375
    40 90 92 00 00 00 00 00                         | ended_at = 1060.5
    00 00 00 01                                     | target = 1
    00 00 00 02                                     | caller = 2
    00 00 00 03                                     | server = 3
    00 00 00 71                                     | request_bytes = 113
    00 00 00 8c                                     | reply_bytes = 140
    00 01 d4 c0                                     | handler_us = 120000
    01                                              | outcome = 1
    00                                              | attempt = 0
    00 04                                           | error = 4
    4b f9 2f 35 77 b3 4d a6 a3 ce 92 9d 0e 0e 47 36 | trace_id
    00 00 00 01 2a 05 f2 00                         | sent_us = 5000000000
    05 00 00 00                                     | -- SEAL
    00 00 00 01                                     | count = 1
    00 00 00 21                                     | bytes = 33
    e3 8d 0c f6                                     | crc of the body
    a8 74 fa 94                                     | crc of the frame
    00 00 00 00 00 00 00 01                         | records = 1
    00 00 00 00 00 00 00 00                         | in_flight = 0
    00 00 00 00 00 00 00 04                         | names = 4
    00 00 00 00 00 00 00 00                         | dropped = 0
    01                                              | final = 1
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from rpcmq.errors import RpcError
from rpcmq.histogram import microseconds

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "LAYOUT",
    "LOG_MODE",
    "MAGIC",
    "MARK",
    "MAX_ERROR",
    "NOT_REPORTED",
    "PART",
    "RECORD",
    "SEAL",
    "SEALED",
    "SHORT_RECORD",
    "VERSION",
    "Block",
    "BlockKind",
    "Field",
    "Head",
    "Mark",
    "MessageKind",
    "Name",
    "NameKind",
    "Problem",
    "Record",
    "Seal",
    "Spool",
    "SpoolError",
    "blocks",
    "file_name",
    "framed",
    "name_entry",
    "names_in",
    "pack_head",
    "read_head",
    "read_spool",
]

MAGIC = b"rpcmqlog"
VERSION = 3
_FIRST_VERSION = 1
#: How the name of a file ends that is being written, and of one that is done.
PART, SEALED = ".part", ".spool"
#: Mode of the files of a dispatch log, in the spool and where they are shipped to, whatever the umask is: they say who
#: calls what. For those who analyse them the folder has a group.
LOG_MODE = 0o640

_HEAD = Struct(">8sHHIIQQdq")
_START = Struct(">8sHH")
_CRC = Struct(">I")
_FRAME = Struct(">BxxxIII")
_NAME = Struct(">IBB")
_LENGTH = Struct(">H")
_FRAME_BYTES = _FRAME.size + _CRC.size

#: Monotonic clock, last seq given, calls in flight.
MARK = Struct(">dQQ")
#: Records, in-flight entries, names, dropped records, whether the router's life ended here.
SEAL = Struct(">QQQQ?")
#: The bytes of one message: see LAYOUT. A request's header is packed by giving the request itself, for
#: ``36s`` takes the first bytes of what is longer.
RECORD = Struct(">36sQdddIIIIIIBBH16sQ")
#: The same without ``request_bytes``, ``error`` and ``trace_id``: zero.
SHORT_RECORD = Struct(">36sQdddIII4xIIBB18xQ")
#: What the records of earlier versions do not have at their end.
_SINCE_VERSION_3 = 8

#: The header of a request, by docs/protocol.md, without the lengths of what follows it.
_MESSAGE = Struct(">IBBHBBBBIIQQ")

#: ``handler_us`` and ``ttl_ms`` where there is none.
NOT_REPORTED = 0xFFFFFFFF
#: The greatest number that an ERROR may have.
MAX_ERROR = 0xFFFF
# As rpcmq.wire has them.
_CAST, _FANOUT = 0x11, 0x0002


class Field(NamedTuple):
    """A part of a record, for those who read many at once: a numpy dtype is made of the first three."""

    name: str
    #: As numpy writes it.
    type: str
    offset: int
    note: str


#: What a record of ``RECORD.size`` bytes has, in the order of its bytes.
LAYOUT = (
    # The first 36 bytes of the message's header as it came, by docs/protocol.md.
    Field("length", ">u4", 0, "bytes of the message without a detached payload"),
    Field("version", ">u1", 4, "of the protocol"),
    Field("kind", ">u1", 5, "0x10 REQUEST: a call; 0x11 CAST: a cast, or with the flag 0x0002 a fanout's copy"),
    Field("flags", ">u2", 6, "of the message"),
    Field("hops", ">u1", 8, "routers that it had passed"),
    Field("zero", ">u1", 9, "attempt, as a caller sends it"),
    Field("format", ">u1", 10, "of the payload: 1 json, 2 pickle, 3 dill"),
    Field("tag", ">u1", 11, "nothing"),
    Field("ttl_ms", ">u4", 12, "milliseconds that it had left when it came; NOT_REPORTED: no limit"),
    Field("origin_router", ">u4", 16, "router_id of the caller's router"),
    Field("handle", ">u8", 20, "the caller's link there"),
    Field("sequence", ">u8", 28, "the caller's number of the message: with the two before, its correlation id"),
    # What the router knows.
    Field("seq", ">u8", 36, "this router's number of it"),
    Field("received_at", ">f8", 44, "monotonic seconds"),
    Field("dispatched_at", ">f8", 52, "the same, of the last time that a server got it; without server: nothing"),
    Field("ended_at", ">f8", 60, "the same"),
    Field("target", ">u4", 68, "number of a TARGET: what it was sent to"),
    Field("caller", ">u4", 72, "number of a CALLER: who sent it; 0: gone and forgotten"),
    Field("server", ">u4", 76, "number of a SERVER: who had it last; 0: nobody, it was queued to the end"),
    Field("request_bytes", ">u4", 80, "the whole message with its payload; 0: as length says"),
    Field("reply_bytes", ">u4", 84, "the whole message that ended it; 0: none came (casts, timeouts, ...)"),
    Field("handler_us", ">u4", 88, "microseconds in the method, as the service says; or NOT_REPORTED"),
    Field("outcome", ">u1", 92, "rpcmq.errors.Outcome; of a cast any number that its consumer said"),
    Field("attempt", ">u1", 93, "servers that had it before and may have run it"),
    Field("error", ">u2", 94, "number of an ERROR: the class of what the method raised; 0: not known, or none"),
    Field("trace_id", "V16", 96, "of its W3C traceparent; zeros: none"),
    Field("sent_us", ">u8", 112, "the service's monotonic clock when it sent the answer; 0: not known"),
)


class BlockKind(IntEnum):
    """What a block has in it."""

    NAMES = 1
    RECORDS = 2
    IN_FLIGHT = 3
    MARK = 4
    SEAL = 5


class NameKind(IntEnum):
    """What a name stands for, and so which texts it has."""

    #: exchange, topic, group, server (empty: any), method
    TARGET = 1
    #: identity
    CALLER = 2
    #: name of the server, identity
    SERVER = 3
    #: class of an exception, as the service calls it
    ERROR = 4


_TEXTS = {NameKind.TARGET: 5, NameKind.CALLER: 1, NameKind.SERVER: 2, NameKind.ERROR: 1}


class MessageKind(StrEnum):
    """How a message was sent."""

    CALL = "call"
    CAST = "cast"
    FANOUT = "fanout"


class Problem(StrEnum):
    """Why a file cannot be read, or no further."""

    #: It is no spool file.
    FOREIGN = "foreign"
    #: It is of a version later than this reader.
    VERSION = "version"
    #: It ends inside its head or a block.
    TRUNCATED = "truncated"
    #: A checksum, or what a block says, is wrong.
    CORRUPT = "corrupt"


class SpoolError(RpcError):
    """A spool file is not as it should be.

    Args:
        problem: which of the closed set.
        text: what was found.
        offset: where in the file; all before it is good.
    """

    def __init__(self, problem: Problem, text: str, offset: int) -> None:
        super().__init__(f"{text} (at byte {offset})")
        self.problem = problem
        self.offset = offset


class Head(NamedTuple):
    """What a file says of itself. ``length`` is that of the head."""

    version: int
    length: int
    router_id: int
    segment: int
    boot: int
    dropped: int
    monotonic: float
    wall_us: int
    router_name: str

    def wall(self, monotonic: float) -> int:
        """The wall clock (microseconds since 1970) at a reading of the router's monotonic clock."""
        return self.wall_us + round((monotonic - self.monotonic) * 1e6)


class Block(NamedTuple):
    """A block whose checksum is right."""

    kind: BlockKind
    entries: int
    body: memoryview
    #: Where in the file it begins.
    offset: int


class Name(NamedTuple):
    """What a number in a record stands for."""

    kind: NameKind
    texts: tuple[str, ...]


class Mark(NamedTuple):
    """How far the router was when it wrote."""

    monotonic: float
    last_seq: int
    in_flight: int


class Seal(NamedTuple):
    """What a file that was written to its end has in it; ``final``: the router ended in good order."""

    records: int
    in_flight: int
    names: int
    dropped: int
    final: bool


class Record(NamedTuple):
    """One message, with its numbers resolved. Times are microseconds; ``received_us`` is since 1970.

    ``outcome`` is None for a call that had not ended when it was looked at. ``queued_us`` is all that was
    not ``service_us``, the time at the server that had it last; that is None if none had it.
    """

    seq: int
    kind: MessageKind
    outcome: int | None
    exchange: str
    topic: str
    group: str
    #: The server that it was addressed to; empty: any.
    target_server: str
    method: str
    caller: str
    #: Name of the server that had it last, and the identity of its process; None: nobody.
    server: str | None
    server_identity: str | None
    received_us: int
    queued_us: int
    service_us: int | None
    handler_us: int | None
    total_us: int
    request_bytes: int
    reply_bytes: int
    attempt: int
    hops: int
    flags: int
    format: int
    ttl_ms: int | None
    origin_router: int
    handle: int
    sequence: int
    trace_id: bytes | None
    #: Class of the exception that the method raised; None: none, or not known.
    error_class: str | None
    #: The service's own monotonic clock when it sent the answer; None: not known. Means nothing without ``handler_us``.
    sent_us: int | None


# --- writing ------------------------------------------------------------------------------------


def file_name(router_id: int, boot: int, segment: int) -> str:
    """The name of a spool file, without its ending."""
    return f"{router_id}-{boot}-{segment:08}"


def pack_head(head: Head) -> bytes:
    """The bytes of ``head``, whose ``version`` and ``length`` are not looked at."""
    name = head.router_name.encode()
    length = _HEAD.size + len(name) + _CRC.size
    fixed = _HEAD.pack(
        MAGIC, VERSION, length, head.router_id, head.segment, head.boot, head.dropped, head.monotonic, head.wall_us
    )
    return fixed + name + _CRC.pack(crc32(name, crc32(fixed)))


def framed(kind: BlockKind, count: int, body: bytes) -> list[bytes]:
    """A block, in pieces to be written together."""
    frame = _FRAME.pack(kind, count, len(body), crc32(body))
    return [frame + _CRC.pack(crc32(frame)), body]


def name_entry(number: int, kind: NameKind, *texts: str) -> bytes:
    """An entry of a NAMES block.

    Raises:
        UnicodeEncodeError, struct.error: a text cannot be encoded, or is longer than 65,535 bytes.
    """
    entry = _NAME.pack(number, kind, len(texts))
    for text in texts:
        raw = text.encode()
        entry += _LENGTH.pack(len(raw)) + raw
    return entry


# --- reading ------------------------------------------------------------------------------------


def read_head(data: bytes) -> Head:
    """The head of a file.

    Raises:
        SpoolError: it is none, of a later version, cut off or damaged.
    """
    if not data.startswith(MAGIC):
        whole = len(data) >= len(MAGIC) or not MAGIC.startswith(data)
        problem = Problem.FOREIGN if whole else Problem.TRUNCATED
        raise SpoolError(problem, f"begins with {bytes(data[:8])!r}, not {MAGIC!r}", 0)
    if len(data) < _START.size:
        raise SpoolError(Problem.TRUNCATED, f"head of {len(data)} bytes", 0)
    _, version, length = _START.unpack_from(data)
    if not _FIRST_VERSION <= version <= VERSION:
        raise SpoolError(Problem.VERSION, f"version {version} is not known, only {_FIRST_VERSION} to {VERSION}", 0)
    if length < _HEAD.size + _CRC.size:
        raise SpoolError(Problem.CORRUPT, f"head of {length} bytes", 0)
    if len(data) < length:
        raise SpoolError(Problem.TRUNCATED, f"{len(data)} bytes of a head of {length}", 0)
    end = length - _CRC.size
    if _CRC.unpack_from(data, end)[0] != crc32(data[:end]):
        raise SpoolError(Problem.CORRUPT, "checksum of the head", 0)
    _, *fields = _HEAD.unpack_from(data)
    try:
        return Head._make((*fields, bytes(data[_HEAD.size : end]).decode()))
    except UnicodeDecodeError:
        raise SpoolError(Problem.CORRUPT, "name of the router is not UTF-8", 0) from None


_OF_RECORDS = (BlockKind.RECORDS, BlockKind.IN_FLIGHT)
_SINGLE = {BlockKind.MARK: MARK.size, BlockKind.SEAL: SEAL.size}


def blocks(data: bytes, head: Head) -> Iterator[Block]:
    """The blocks of the file ``data``, whose head is ``head``. Records of an earlier version are given as ``RECORD``.

    Raises:
        SpoolError: the next one is cut off or damaged; those before were given.
    """
    view = memoryview(data)
    start = head.length
    record_bytes = RECORD.size if head.version >= 3 else RECORD.size - _SINCE_VERSION_3
    sealed = False
    while start < len(data):
        left = len(data) - start
        if sealed:
            raise SpoolError(Problem.CORRUPT, f"{left} bytes after the seal", start)
        if left < _FRAME_BYTES:
            raise SpoolError(Problem.TRUNCATED, f"{left} bytes of a block's frame", start)
        kind, count, length, checksum = _FRAME.unpack_from(data, start)
        if _CRC.unpack_from(data, start + _FRAME.size)[0] != crc32(view[start : start + _FRAME.size]):
            raise SpoolError(Problem.CORRUPT, "checksum of a block's frame", start)
        body = view[start + _FRAME_BYTES : start + _FRAME_BYTES + length]
        if len(body) < length:
            raise SpoolError(Problem.TRUNCATED, f"{len(body)} bytes of a block of {length}", start)
        if checksum != crc32(body):
            raise SpoolError(Problem.CORRUPT, "checksum of a block", start)
        if not _fits(kind, count, length, record_bytes):
            raise SpoolError(Problem.CORRUPT, f"block of kind {kind} with {count} entries in {length} bytes", start)
        if kind in _OF_RECORDS and record_bytes != RECORD.size:
            body = _lengthened(body, record_bytes)
        yield Block(BlockKind(kind), count, body, start)
        sealed = kind == BlockKind.SEAL
        start += _FRAME_BYTES + length


def _fits(kind: int, count: int, length: int, record_bytes: int) -> bool:
    if kind in _OF_RECORDS:
        return length == count * record_bytes
    if kind in _SINGLE:
        return count == 1 and length == _SINGLE[BlockKind(kind)]
    return kind == BlockKind.NAMES and length >= count * _NAME.size


def _lengthened(body: memoryview, record_bytes: int) -> memoryview:
    """Records of ``record_bytes`` each, as long as ``RECORD``."""
    rest = bytes(RECORD.size - record_bytes)
    return memoryview(
        b"".join(body[at : at + record_bytes].tobytes() + rest for at in range(0, len(body), record_bytes))
    )


def names_in(block: Block) -> dict[int, Name]:
    """The names that a NAMES block defines, by number.

    Raises:
        SpoolError: an entry is not as it should be.
    """
    found: dict[int, Name] = {}
    body, place = bytes(block.body), 0
    try:
        for _ in range(block.entries):
            number, kind, count = _NAME.unpack_from(body, place)
            place += _NAME.size
            texts = []
            for _ in range(count):
                (length,) = _LENGTH.unpack_from(body, place)
                place += _LENGTH.size + length
                texts.append(body[place - length : place].decode())
            if count != _TEXTS.get(kind):
                raise ValueError(f"name of kind {kind} with {count} texts")
            found[number] = Name(NameKind(kind), tuple(texts))
        if place != len(body):
            raise ValueError(f"names of {place} bytes in a block of {len(body)}")
    except (ValueError, StructError) as error:
        raise SpoolError(Problem.CORRUPT, f"names: {error}", block.offset) from None
    return found


class Spool:
    """A spool file, whose records are read by iterating over it, once.

    Afterwards ``seal`` and ``mark`` tell what the file says of itself; a file without a seal was cut off
    between two blocks, or is still being written.
    """

    def __init__(self, data: bytes) -> None:
        self.head = read_head(data)
        self.names: dict[int, Name] = {}
        #: The last that was read.
        self.mark: Mark | None = None
        self.seal: Seal | None = None
        self._data = data

    def __iter__(self) -> Iterator[Record]:
        """The records, in the order in which they ended, and entries of calls in flight among them.

        Raises:
            SpoolError: it goes no further; what comes before was given.
        """
        counts = dict.fromkeys(BlockKind, 0)
        for block in blocks(self._data, self.head):
            counts[block.kind] += block.entries
            match block.kind:
                case BlockKind.NAMES:
                    self.names |= names_in(block)
                case BlockKind.MARK:
                    self.mark = Mark._make(MARK.unpack(block.body))
                case BlockKind.SEAL:
                    self.seal = Seal._make(SEAL.unpack(block.body))
                    was = (counts[BlockKind.RECORDS], counts[BlockKind.IN_FLIGHT], counts[BlockKind.NAMES])
                    if self.seal[:3] != was:
                        text = f"seal says {self.seal[:3]} records, in-flight entries and names, there are {was}"
                        raise SpoolError(Problem.CORRUPT, text, block.offset)
                case BlockKind.RECORDS | BlockKind.IN_FLIGHT:
                    yield from self._records(block)

    def _records(self, block: Block) -> Iterator[Record]:
        for start in range(0, len(block.body), RECORD.size):
            try:
                yield self._record(block.body[start : start + RECORD.size], block.kind == BlockKind.RECORDS)
            except KeyError as error:
                text = f"record with the number {error.args[0]}, which names nothing of its kind"
                raise SpoolError(Problem.CORRUPT, text, block.offset) from None

    def _record(self, raw: memoryview, has_ended: bool) -> Record:
        (
            header, seq, received_at, dispatched_at, ended_at, target, caller, server, request_bytes, reply_bytes,
            handler_us, outcome, attempt, error, trace_id, sent_us,
        ) = RECORD.unpack(raw)  # fmt: skip
        length, _, kind, flags, hops, _, form, _, ttl_ms, origin_router, handle, sequence = _MESSAGE.unpack(header)
        total_us = microseconds(ended_at - received_at)
        service_us = microseconds(ended_at - dispatched_at) if server else None
        server_name, identity = self._texts(NameKind.SERVER, server) if server else (None, None)
        how = MessageKind.CALL if kind != _CAST else MessageKind.FANOUT if flags & _FANOUT else MessageKind.CAST
        exchange, topic, group, target_server, method = self._texts(NameKind.TARGET, target)
        return Record(
            seq=seq,
            kind=how,
            outcome=outcome if has_ended else None,
            exchange=exchange,
            topic=topic,
            group=group,
            target_server=target_server,
            method=method,
            caller=self._texts(NameKind.CALLER, caller)[0] if caller else "",
            server=server_name,
            server_identity=identity,
            received_us=self.head.wall(received_at),
            queued_us=total_us - min(service_us or 0, total_us),
            service_us=service_us,
            handler_us=None if handler_us == NOT_REPORTED else handler_us,
            total_us=total_us,
            request_bytes=request_bytes or length,
            reply_bytes=reply_bytes,
            attempt=attempt,
            hops=hops,
            flags=flags,
            format=form,
            ttl_ms=None if ttl_ms == NOT_REPORTED else ttl_ms,
            origin_router=origin_router,
            handle=handle,
            sequence=sequence,
            trace_id=trace_id if any(trace_id) else None,
            error_class=self._texts(NameKind.ERROR, error)[0] if error else None,
            sent_us=sent_us or None,
        )

    def _texts(self, kind: NameKind, number: int) -> tuple[str, ...]:
        name = self.names[number]
        if name.kind is not kind:
            raise KeyError(number)
        return name.texts


def read_spool(path: str | Path) -> Spool:
    """Open the spool file at ``path``.

    Raises:
        OSError: it cannot be read.
        SpoolError: its head is not as it should be. More may be found while its records are read.
    """
    with open(path, "rb") as file:
        return Spool(file.read())
