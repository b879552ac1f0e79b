"""Reading: a file that was cut off or damaged is read up to there, and says where."""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as StructError
from typing import TYPE_CHECKING
from zlib import crc32

from rpcmq.histogram import microseconds
from rpcmq.log_format.entries import Block, Head, Mark, Name, Problem, Record, Seal, SpoolError
from rpcmq.log_format.layout import (
    CRC,
    FRAME,
    FRAME_BYTES,
    HEAD,
    LENGTH,
    MAGIC,
    MARK,
    MESSAGE,
    NAME,
    NOT_REPORTED,
    RECORD,
    RECORD_BYTES,
    SEAL,
    START,
    TEXTS,
    BlockKind,
    MessageKind,
    NameKind,
)
from rpcmq.wire import TRIED_SHIFT, Flag

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Spool", "blocks", "names_in", "read_head", "read_spool"]


def read_head(data: bytes) -> Head:
    """The head of a file.

    Raises:
        SpoolError: it is none, of another version, cut off or damaged.
    """
    if not data.startswith(MAGIC):
        whole = len(data) >= len(MAGIC) or not MAGIC.startswith(data)
        problem = Problem.FOREIGN if whole else Problem.TRUNCATED
        raise SpoolError(problem, f"begins with {bytes(data[:8])!r}, not {MAGIC!r}", 0)
    if len(data) < START.size:
        raise SpoolError(Problem.TRUNCATED, f"head of {len(data)} bytes", 0)
    _, version, length = START.unpack_from(data)
    if version not in RECORD_BYTES:
        known = ", ".join(map(str, RECORD_BYTES))
        raise SpoolError(Problem.VERSION, f"version {version} is not known, only {known}", 0)
    if length < HEAD.size + CRC.size:
        raise SpoolError(Problem.CORRUPT, f"head of {length} bytes", 0)
    if len(data) < length:
        raise SpoolError(Problem.TRUNCATED, f"{len(data)} bytes of a head of {length}", 0)
    end = length - CRC.size
    if CRC.unpack_from(data, end)[0] != crc32(data[:end]):
        raise SpoolError(Problem.CORRUPT, "checksum of the head", 0)
    _, *fields = HEAD.unpack_from(data)
    try:
        return Head._make((*fields, bytes(data[HEAD.size : end]).decode()))
    except UnicodeDecodeError:
        raise SpoolError(Problem.CORRUPT, "name of the router is not UTF-8", 0) from None


_OF_RECORDS = (BlockKind.RECORDS, BlockKind.IN_FLIGHT)
_SINGLE = {BlockKind.MARK: MARK.size, BlockKind.SEAL: SEAL.size}


def blocks(data: bytes, head: Head) -> Iterator[Block]:
    """The blocks of the file ``data``, whose head is ``head``.

    Raises:
        SpoolError: the next one is cut off or damaged; those before were given.
    """
    view = memoryview(data)
    start = head.length
    sealed = False
    while start < len(data):
        left = len(data) - start
        if sealed:
            raise SpoolError(Problem.CORRUPT, f"{left} bytes after the seal", start)
        if left < FRAME_BYTES:
            raise SpoolError(Problem.TRUNCATED, f"{left} bytes of a block's frame", start)
        kind, count, length, checksum = FRAME.unpack_from(data, start)
        if CRC.unpack_from(data, start + FRAME.size)[0] != crc32(view[start : start + FRAME.size]):
            raise SpoolError(Problem.CORRUPT, "checksum of a block's frame", start)
        body = view[start + FRAME_BYTES : start + FRAME_BYTES + length]
        if len(body) < length:
            raise SpoolError(Problem.TRUNCATED, f"{len(body)} bytes of a block of {length}", start)
        if checksum != crc32(body):
            raise SpoolError(Problem.CORRUPT, "checksum of a block", start)
        if not _fits(kind, count, length, RECORD_BYTES[head.version]):
            raise SpoolError(Problem.CORRUPT, f"block of kind {kind} with {count} entries in {length} bytes", start)
        yield Block(BlockKind(kind), count, body, start)
        sealed = kind == BlockKind.SEAL
        start += FRAME_BYTES + length


def _fits(kind: int, count: int, length: int, record_bytes: int) -> bool:
    if kind in _OF_RECORDS:
        return length == count * record_bytes
    if kind in _SINGLE:
        return count == 1 and length == _SINGLE[BlockKind(kind)]
    return kind == BlockKind.NAMES and length >= count * NAME.size


def names_in(block: Block) -> dict[int, Name]:
    """The names that a NAMES block defines, by number.

    Raises:
        SpoolError: an entry is not as it should be.
    """
    found: dict[int, Name] = {}
    body, place = bytes(block.body), 0
    try:
        for _ in range(block.entries):
            number, kind, count = NAME.unpack_from(body, place)
            place += NAME.size
            texts = []
            for _ in range(count):
                (length,) = LENGTH.unpack_from(body, place)
                place += LENGTH.size + length
                texts.append(body[place - length : place].decode())
            if count != TEXTS.get(kind):
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
        size = RECORD_BYTES[self.head.version]
        for start in range(0, len(block.body), size):
            try:
                yield self._record(bytes(block.body[start : start + size]), block.kind == BlockKind.RECORDS)
            except KeyError as error:
                text = f"record with the number {error.args[0]}, which names nothing of its kind"
                raise SpoolError(Problem.CORRUPT, text, block.offset) from None

    def _record(self, raw: bytes, has_ended: bool) -> Record:
        (
            header, seq, received_at, dispatched_at, ended_at, target, caller, server, request_bytes, reply_bytes,
            handler_us, outcome, attempt, error, trace_id, sent_us, home_us,
        ) = RECORD.unpack(raw.ljust(RECORD.size, b"\0"))  # fmt: skip
        length, _, kind, flags, hops, _, form, _, ttl_ms, origin_router, handle, sequence = MESSAGE.unpack(header)
        total_us = microseconds(ended_at - received_at)
        service_us = microseconds(ended_at - dispatched_at) if server else None
        server_name, identity, *router = self._server(server) if server else (None, None)
        exchange, topic, group, target_server, method = self._texts(NameKind.TARGET, target)
        return Record(
            seq=seq,
            kind=MessageKind.of(kind, flags),
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
            attempt=attempt + (flags >> TRIED_SHIFT if flags & Flag.NOT_AGAIN else 0),
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
            server_router=router[0] if router else None,
            home_us=home_us or None,
        )

    def _server(self, number: int) -> tuple[str, ...]:
        is_elsewhere = self.names[number].kind is NameKind.SERVER_ELSEWHERE
        return self._texts(NameKind.SERVER_ELSEWHERE if is_elsewhere else NameKind.SERVER, number)

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
