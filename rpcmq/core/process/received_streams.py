"""The consumer's side of request streams: what has come of them, and how much more may come.

A stream is asked for when its handler wants the first item. From then on as much is granted as the handler has taken,
so that no more waits here than the window: items, and bytes of their payloads. All streams of a process share a bound.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Protocol

from rpcmq.core.process.task import Task
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import ProtocolError
from rpcmq.wire import KEY, STAMP, Kind, pack, payload_of
from rpcmq.wire.stream_grant import grant_payload

__all__ = ["LEAST_WINDOW_BYTES", "SHARED_BYTES", "WINDOW_BYTES", "WINDOW_ITEMS", "ReceivedStream", "ReceivedStreams"]

#: Items that have come, or may come, and were not taken by the handler.
WINDOW_ITEMS = 16
#: The same in bytes: of one stream, of all streams of a process, and at least of each. The last item may be larger.
WINDOW_BYTES = 4 << 20
SHARED_BYTES = 16 << 20
LEAST_WINDOW_BYTES = 256 << 10


class HasChanges(Protocol):
    """Lists tasks, and begins a new list now and then."""

    changed: list[Task]


class ReceivedStream:
    """The stream of a task's caller, as far as it has come.

    Attributes:
        items: those that have come and were not taken.
        ended: the message that has ended it; None: more may come.
        received, taken: number of items that have come, and that were taken.
    """

    __slots__ = (
        "asked", "closed", "ended", "is_whole", "item_credit", "items", "queued_bytes", "received", "size_credit",
        "taken", "task", "ttl",
    )  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.items: deque[bytes] = deque()
        self.queued_bytes = 0
        #: Granted, and not come yet.
        self.item_credit = self.size_credit = 0
        self.received = self.taken = 0
        self.ended: bytes | None = None
        #: Whether it was asked for, and whether the handler wants no more.
        self.asked = self.closed = False
        #: Whether the caller wants one result, though the answer might be a stream, too.
        self.is_whole = False
        #: Longest time without an item (seconds): each puts off the deadline of its task.
        self.ttl = task.ttl


class ReceivedStreams:
    """The streams of the tasks of one uplink.

    Args:
        tasks: its list takes the tasks whose handlers are to look again.
        counters: of the tasks.
    """

    def __init__(self, uplink: Uplink, tasks: HasChanges, counters: Counter[str]) -> None:
        self._tasks = tasks
        self._counters = counters
        #: By key, of tasks that have not ended.
        self.open: dict[bytes, ReceivedStream] = {}
        self._asked = 0
        uplink.handle(Kind.REQUEST_ITEM, self._item)
        uplink.handle(Kind.REQUEST_END, self._end)

    def begin(self, task: Task) -> None:
        """``task`` has a stream."""
        former = self.open.get(task.key)
        if former is not None:
            self.forget(former.task)
        self.open[task.key] = ReceivedStream(task)

    def of(self, task: Task) -> ReceivedStream | None:
        """The stream of ``task``; None if it has none, or has ended."""
        stream = self.open.get(task.key)
        return stream if stream is not None and stream.task is task else None

    def wants_whole(self, task: Task) -> bool:
        """Return whether the caller of ``task``, which may have a stream, wants one result."""
        stream = self.of(task)
        return stream is not None and stream.is_whole

    def was_asked_for(self, task: Task) -> bool:
        """Return whether items of the stream of ``task`` may have been sent, which nobody else can be given."""
        stream = self.of(task)
        return stream is not None and (stream.asked or stream.closed)

    def forget(self, task: Task) -> None:
        """``task`` has ended: free what is left of its stream."""
        stream = self.of(task)
        if stream is not None:
            self.drop(task)
            stream.closed = True
            self._asked -= stream.asked
            del self.open[task.key]

    def drop(self, task: Task) -> None:
        """Free the items of the stream of ``task``, which nobody will take."""
        stream = self.of(task)
        if stream is not None:
            stream.items.clear()
            stream.queued_bytes = 0

    # --- from the caller ---------------------------------------------------------------------

    def _item(self, now: float, message: bytes) -> None:
        stream = self._stream(now, message)
        if stream is None or stream.closed or not stream.task.is_wanted:
            return
        if stream.ended is not None or stream.item_credit <= 0 or stream.size_credit <= 0:
            # With a gap it would not be what the caller has sent.
            stream.ended = pack(Kind.CANCEL, key=message[KEY])
            self._tasks.changed.append(stream.task)
            raise ProtocolError("an item of a request's stream that was not granted", "credit")
        size = len(payload_of(message))
        stream.item_credit -= 1
        stream.size_credit -= size
        stream.received += 1
        stream.items.append(message)
        stream.queued_bytes += size
        self._tasks.changed.append(stream.task)

    def _end(self, now: float, message: bytes) -> None:
        stream = self._stream(now, message)
        if stream is not None and stream.ended is None:
            stream.ended = message
            self._tasks.changed.append(stream.task)

    def _stream(self, now: float, message: bytes) -> ReceivedStream | None:
        stream = self.open.get(message[KEY])
        if stream is None or stream.task.stamp != message[STAMP]:
            self._counters["late items of requests"] += 1
            return None
        if stream.ttl is not None:
            stream.task.ttl = now - stream.task.received_at + stream.ttl
        return stream

    # --- from the handler --------------------------------------------------------------------

    def take(self, stream: ReceivedStream) -> bytes | None:
        """Return the next item that has come, if there is one, and grant more where that is due."""
        message: bytes | None = None
        if stream.items:
            message = stream.items.popleft()
            stream.queued_bytes -= len(payload_of(message))
            stream.taken += 1
        if stream.ended is None and not stream.closed:
            self._grant(stream)
        return message

    def stop(self, stream: ReceivedStream) -> None:
        """The handler wants no more of it."""
        if stream.closed:
            return
        stream.closed = True
        self.drop(stream.task)
        if stream.ended is None and stream.task.is_wanted:
            self._send(stream, Kind.REQUEST_STOP, b"")

    def _grant(self, stream: ReceivedStream) -> None:
        """Grant what is missing to the window, once that is half of it."""
        if not stream.asked:
            stream.asked = True
            self._asked += 1
        window = max(LEAST_WINDOW_BYTES, min(WINDOW_BYTES, SHARED_BYTES // self._asked))
        items = WINDOW_ITEMS - stream.item_credit - len(stream.items)
        size_bytes = window - stream.size_credit - stream.queued_bytes
        if items >= WINDOW_ITEMS // 2 or size_bytes >= window // 2:
            items, size_bytes = max(0, items), max(0, size_bytes)
            stream.item_credit += items
            stream.size_credit += size_bytes
            self._send(stream, Kind.REQUEST_GRANT, grant_payload(items, size_bytes))

    def _send(self, stream: ReceivedStream, kind: int, payload: bytes) -> None:
        task = stream.task
        task.sender.send(pack(kind, payload, key=task.key, hops=task.hops, attempt=task.attempt, consumer=task.tag))
