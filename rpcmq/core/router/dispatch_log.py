"""The dispatch log: one packed record for each message that has ended. A :class:`Sink` writes it.

Records collect in one buffer that is used over and over. When it is full, and four times a second, what
is in it goes to the :class:`Sink` as a :class:`Chunk`, together with the names that it is the first of its
file to use. ``rpcmq.log_format`` has the format, and says what the numbers mean.

A chunk that the sink does not take is lost with its names, so the next one begins a new segment,
in which every name is said again.
"""

from __future__ import annotations

from binascii import unhexlify
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, Protocol

from rpcmq.core.router.forwarded import Elsewhere
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Consumer, Delivery, Link, Request
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.log_format import (
    LAYOUT,
    MARK,
    MAX_ERROR,
    NOT_REPORTED,
    RECORD,
    SHORT_RECORD,
    BlockKind,
    NameKind,
    framed,
    name_entry,
)
from rpcmq.wire import ORIGIN, TRACE_LENGTH_AT, size_of, trace_of

__all__ = ["CHUNK_RECORDS", "Chunk", "DispatchLog", "Sink"]

#: Records in a full chunk.
CHUNK_RECORDS = 1024
_SIZE = RECORD.size
_FULL = CHUNK_RECORDS * _SIZE
_pack_into, _pack_short_into = RECORD.pack_into, SHORT_RECORD.pack_into
_ERROR = Struct(">H")
_ERROR_AT = next(field.offset for field in LAYOUT if field.name == "error")
#: Age from which a call in flight is recorded (seconds).
_LOOK = 1.0
#: Longest time that a record waits for the sink (seconds): so much is lost if the router is killed.
_WRITE = 0.25
#: Links scanned, and long-running calls recorded, in one tick: all at once would delay other calls noticeably.
_LINKS_AT_ONCE = 500
_CALLS_AT_ONCE = 1000
_PAUSE = 0.01
#: Callers remembered after they have gone, for the casts that they left behind.
_MAX_GONE = 10_000
#: A traceparent's trace id is the 32 hexadecimal digits after ``00-``.
_TRACE_AT, _TRACE_END = 3, 35
_received_at: Callable[[Request], float] = attrgetter("received_at")


class Chunk(NamedTuple):
    """One write to the sink; each member holds entries of a block."""

    #: Increasing number; chunks with the same one go into one file.
    segment: int
    mark: bytes
    name_count: int
    names: bytes
    in_flight: bytes
    records: bytes
    #: Whether the segment is complete; whether the router's life is over.
    is_last: bool
    is_final: bool

    @property
    def record_count(self) -> int:
        """Number of messages that have ended."""
        return len(self.records) // _SIZE

    @property
    def in_flight_count(self) -> int:
        """Number of calls that have not ended."""
        return len(self.in_flight) // _SIZE

    def blocks(self) -> list[bytes]:
        """The bytes to write, in pieces."""
        pieces = framed(BlockKind.MARK, 1, self.mark)
        if self.names:
            pieces += framed(BlockKind.NAMES, self.name_count, self.names)
        if self.in_flight:
            pieces += framed(BlockKind.IN_FLIGHT, self.in_flight_count, self.in_flight)
        if self.records:
            pieces += framed(BlockKind.RECORDS, self.record_count, self.records)
        return pieces


class Sink(Protocol):
    """Receives chunks. Its methods neither wait nor raise."""

    def write(self, chunk: Chunk) -> bool:
        """Accept ``chunk``; return False if it was dropped and counted, and its segment must end."""

    def statistics(self) -> dict[str, Any]:
        """Counts of records written and dropped, for the router's views."""


class DispatchLog:
    """Packs a record for each message that has ended, and one for each call that takes long.

    Args:
        progress: gives the last number that a message got, and the calls in flight.
    """

    __slots__ = (
        "_began",
        "_due",
        "_end",
        "_gone",
        "_in_flight",
        "_is_begun",
        "_last_seq",
        "_links",
        "_long_running",
        "_looked_until",
        "_looking_until",
        "_name_count",
        "_names",
        "_new_names",
        "_next_scan",
        "_numbers",
        "_progress",
        "_records",
        "_segment",
        "_settings",
        "_sink",
        "_unscanned",
        "_written",
    )  # fmt: skip

    def __init__(
        self, settings: Settings, sink: Sink, links: LinkTable, now: float, progress: Callable[[], tuple[int, int]]
    ) -> None:
        self._settings = settings
        self._sink = sink
        self._links = links
        self._progress = progress
        self._records = bytearray(_FULL)
        self._end = 0
        self._in_flight: list[bytes] = []
        #: Whether anything was written by this life of the router.
        self._is_begun = False
        #: Of the mark that was written last.
        self._last_seq = 0
        #: Callers that have gone: their part of a message's key -> identity.
        self._gone: OrderedDict[bytes, str] = OrderedDict()
        #: The look at calls in flight: links not yet seen in this turn, and calls found that are older
        #: than ``_LOOK``. Each turn finds those that were received in (_looked_until, _looking_until].
        self._unscanned: list[Link] = []
        self._long_running: deque[Request] = deque()
        self._looked_until = self._looking_until = now - _LOOK
        self._next_scan = self._due = now + _LOOK
        self._segment = 0
        self._new_segment()

    def _new_segment(self) -> None:
        self._segment += 1
        #: The time at which the segment's first chunk was written.
        self._began: float | None = None
        self._written = 0
        #: Destination, link (or the key's part of a caller that may have gone), consumer -> number.
        self._numbers: dict[object, int] = {None: 0}
        self._name_count = self._new_names = 0
        self._names = bytearray()

    @property
    def sink(self) -> Sink:
        """The receiver of the log's chunks."""
        return self._sink

    # --- records -----------------------------------------------------------------------------

    def ended(
        self,
        now: float,
        request: Request,
        delivery: Delivery | None,
        outcome: int,
        reply_bytes: int = 0,
        handler_us: int = NOT_REPORTED,
    ) -> None:
        """``request`` has ended, with ``delivery`` if anybody had it. To be said once of each."""
        message = request.message
        caller_link = request.reply_to
        if delivery is None:
            consumer, attempt, dispatched_at, sent_us = None, request.attempts, request.received_at, 0
        else:
            consumer, attempt, dispatched_at = delivery.consumer, delivery.attempt, delivery.dispatched_at
            sent_us = consumer.link.sent_us
        numbers = self._numbers
        try:
            target = numbers[request.destination]
            caller = numbers[caller_link if caller_link is not None else message[ORIGIN]]
            server = numbers[consumer]
            home_us = 0
        except KeyError:
            # So is it with all that ran elsewhere: what is known of these is their own, not their consumer's.
            target, caller, server, home_us = self._define(request, consumer)
        end = self._end
        if message[TRACE_LENGTH_AT] or home_us or type(message) is not bytes:
            _pack_into(
                self._records, end,
                message, request.number, request.received_at, dispatched_at, now, target, caller, server,
                size_of(message), reply_bytes, handler_us, outcome, attempt, 0, _trace_id(message), sent_us, home_us,
            )  # fmt: skip
        else:
            # Most have neither a trace nor a detached payload: zeros then, which cost nothing.
            _pack_short_into(
                self._records, end,
                message, request.number, request.received_at, dispatched_at, now, target, caller, server,
                reply_bytes, handler_us, outcome, attempt, sent_us,
            )  # fmt: skip
        self._end = end = end + _SIZE
        if end == _FULL:
            self._flush(now)

    def _define(self, request: Request, consumer: Consumer | None) -> tuple[int, int, int, int]:
        destination, link = request.destination, request.reply_to
        address = destination.topic.address
        server = destination.server.name if destination.server else ""
        texts = (address.exchange, address.topic, destination.topic.group, server, destination.method)
        target = self._number(destination, NameKind.TARGET, *texts)
        origin = request.message[ORIGIN]
        known = link or self._links.by_origin(origin)
        identity = known.identity if known is not None else self._gone.get(origin, "")
        caller = self._number(link or origin, NameKind.CALLER, identity) if identity else 0
        if consumer is None:
            return target, caller, 0, 0
        identity = consumer.link.identity
        if type(consumer) is Elsewhere:
            runner, home_us = consumer.report_of(request.key)
            number = self._text_number(NameKind.SERVER_ELSEWHERE, *(runner or ("", "")), identity)
            return target, caller, number, home_us
        return target, caller, self._number(consumer, NameKind.SERVER, consumer.server, identity), 0

    def _number(self, thing: object, kind: NameKind, *texts: str) -> int:
        self._numbers[thing] = number = self._text_number(kind, *texts)
        return number

    def _text_number(self, kind: NameKind, *texts: str) -> int:
        numbers = self._numbers
        number = numbers.get((kind, *texts))
        if number is None:
            self._name_count = number = numbers[kind, *texts] = self._name_count + 1
            self._new_names += 1
            self._names += name_entry(number, kind, *texts)
        return number

    def failed(
        self,
        now: float,
        request: Request,
        delivery: Delivery,
        outcome: int,
        reply_bytes: int,
        handler_us: int,
        error: str,
    ) -> None:
        """``request`` has ended, because its method raised ``error``."""
        if self._end + _SIZE == _FULL:  # before the record is there, which is complete only after this
            self._flush(now)
        place = self._end
        self.ended(now, request, delivery, outcome, reply_bytes, handler_us)
        _ERROR.pack_into(self._records, place + _ERROR_AT, self._error(error))

    def _error(self, error: str) -> int:
        number = self._numbers.get((NameKind.ERROR, error))
        if number is None:
            # Error names beyond the record's range are left out.
            if self._name_count >= MAX_ERROR:
                return 0
            number = self._number(error, NameKind.ERROR, error)
        return number

    def caller_gone(self, link: Link) -> None:
        """``link`` has ended; casts of it may not have."""
        self._gone[link.origin] = link.identity
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)

    # --- the sink ----------------------------------------------------------------------------

    def _flush(self, now: float, is_final: bool = False) -> None:
        settings = self._settings
        last_seq, calls = self._progress()
        if self._began is None:
            self._began = now
        self._written += self._end // _SIZE
        is_last = is_final or self._written >= settings.segment_records or now - self._began >= settings.segment_seconds
        chunk = Chunk(
            self._segment,
            MARK.pack(now, last_seq, calls),
            self._new_names,
            bytes(self._names),
            b"".join(self._in_flight),
            bytes(memoryview(self._records)[: self._end]),
            is_last,
            is_final,
        )
        self._is_begun = True
        self._last_seq = last_seq
        self._end = self._new_names = 0
        self._names.clear()
        self._in_flight.clear()
        if not self._sink.write(chunk) or is_last:
            self._new_segment()

    def tick(self, now: float) -> None:
        """Record long-running calls, and flush."""
        if now < self._due:
            return
        if now >= self._next_scan:
            self._next_scan = now + _LOOK
            self._looked_until, self._looking_until = self._looking_until, now - _LOOK
            self._unscanned = list(self._links)
        for link in self._unscanned[-_LINKS_AT_ONCE:]:
            self._find_long_running(link)
        del self._unscanned[-_LINKS_AT_ONCE:]
        for _ in range(min(_CALLS_AT_ONCE, len(self._long_running))):
            self._record_long_running(now, self._long_running.popleft())
        if self._unscanned or self._long_running:
            self._due = now + _PAUSE
            return
        self._due = min(self._next_scan, now + _WRITE)
        has_news = self._end or self._in_flight or self._progress()[0] != self._last_seq
        # A new life implies the end of the previous one, whose calls in flight become unknown.
        if has_news or not self._is_begun or self._is_segment_due(now):
            self._flush(now)

    def _is_segment_due(self, now: float) -> bool:
        return self._began is not None and now - self._began >= self._settings.segment_seconds

    def _find_long_running(self, link: Link) -> None:
        calls = link.calls
        if not calls or next(iter(calls.values())).received_at > self._looking_until:
            return
        if next(reversed(calls.values())).received_at <= self._looked_until:
            return
        # They stand in the order in which they came.
        requests = list(calls.values())
        begin = bisect_right(requests, self._looked_until, key=_received_at)
        end = bisect_right(requests, self._looking_until, key=_received_at)
        self._long_running.extend(requests[begin:end])

    def _record_long_running(self, now: float, request: Request) -> None:
        if request.has_ended:
            return
        message = request.message
        self._in_flight.append(
            RECORD.pack(
                message, request.number, request.received_at, request.dispatched_at, now,
                *self._define(request, request.consumer)[:3], size_of(message), 0, NOT_REPORTED, 0, request.attempts, 0,
                _trace_id(message), 0, 0,
            )
        )  # fmt: skip
        if len(self._in_flight) >= CHUNK_RECORDS:
            self._flush(now)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._due

    def close(self, now: float, unsettled: Iterable[Request]) -> None:
        """Flush everything: the router ends and leaves ``unsettled`` behind."""
        for request in unsettled:
            is_waiting = not request.is_call and request.delivery is None
            self.ended(now, request, request.delivery, Outcome.DRAINING if is_waiting else Outcome.LINK_LOST)
        if self._progress()[0] or self._is_begun:
            self._flush(now, is_final=True)


def _trace_id(message: bytes) -> bytes:
    """The trace id of a message's traceparent; empty if it has none that can be read."""
    if message[TRACE_LENGTH_AT] < _TRACE_END:
        return b""
    try:
        return unhexlify(trace_of(message)[_TRACE_AT:_TRACE_END])
    except ValueError:
        return b""
