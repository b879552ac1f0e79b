"""The parts of a file as values: head, blocks, names, records; and what may be wrong with it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rpcmq.errors import RpcError
from rpcmq.log_format.layout import BlockKind, MessageKind, NameKind

__all__ = ["Block", "Head", "Mark", "Name", "Problem", "Record", "Seal", "SpoolError"]


class Problem(StrEnum):
    """Reasons why a file cannot be read, or no further."""

    #: Not a spool file.
    FOREIGN = "foreign"
    #: It is of another version than this reader.
    VERSION = "version"
    #: It ends inside its head or a block.
    TRUNCATED = "truncated"
    #: A checksum or the content of a block is wrong.
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
    """The head of a file. ``length`` is that of the head."""

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
    #: Its offset in the file.
    offset: int


class Name(NamedTuple):
    """The meaning of a number in a record."""

    kind: NameKind
    texts: tuple[str, ...]


class Mark(NamedTuple):
    """The router's progress at the time of a write."""

    monotonic: float
    last_seq: int
    in_flight: int


class Seal(NamedTuple):
    """The totals at the end of a complete file; ``final``: the router ended in good order."""

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
    #: Name of the router that the server was linked to, where that is another one than wrote the record; else None.
    server_router: str | None = None
    #: Of ``service_us``, the time at that router and at the server; None: not known.
    home_us: int | None = None

    @property
    def between_us(self) -> int | None:
        """Of ``service_us``, the way to the server's router and back; None: not known, or there was none."""
        if self.service_us is None or self.home_us is None:
            return None
        # Two clocks tell them.
        return max(0, self.service_us - self.home_us)
