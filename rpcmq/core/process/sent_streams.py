"""The caller's side of request streams: what the consumers of its requests have asked for, and what is sent to them.

Nothing is sent before the consumer has granted it. From the first grant on the call is one that no other consumer can
be given: the items that were sent are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rpcmq.core.process.call import Call
from rpcmq.core.process.uplink import Uplink
from rpcmq.wire import CONSUMER_AT, KEY, STAMP, Kind, pack
from rpcmq.wire.stream_grant import grant_of

__all__ = ["SentStreams", "StreamingCall", "has_begun"]


class StreamingCall(Call):
    """A call with a stream of its caller.

    Attributes:
        items, size_bytes: what may be sent now; the last item may have more bytes than are left.
        begun: whether the consumer has asked for the stream.
        stopped: whether the consumer wants no more of it.
        sent: number of items sent.
        raised: the exception that the caller's iterable has raised.
        on_change: owned by the shell; called when more may be sent, or the call has ended.
    """

    __slots__ = (
        "begun", "consumer", "granted_bytes", "granted_items", "on_change", "owner_attempt", "owner_hops", "raised",
        "sent", "stopped",
    )  # fmt: skip

    def __init__(self, address: str, flags: int, timeout: float | None) -> None:
        super().__init__(address, flags, timeout)
        self.granted_items = self.granted_bytes = 0
        #: Of the consumer's last grant, for what is sent to it.
        self.owner_hops = self.owner_attempt = self.consumer = 0
        self.begun = self.stopped = False
        self.sent = 0
        self.raised: BaseException | None = None
        self.on_change: Callable[[], object] | None = None

    @property
    def may_send(self) -> bool:
        """Whether an item may be sent now."""
        return self.granted_items > 0 and self.granted_bytes > 0 and not self.stopped

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for items any more."""
        return self.stopped or self.cancelled or self.answer is not None or self.error is not None

    def changed(self) -> None:
        """Have whoever sends the items look again."""
        if self.on_change is not None:
            self.on_change()


def has_begun(call: Call) -> bool:
    """Return whether items of the stream of ``call`` were asked for, so that it cannot be sent to another consumer."""
    return isinstance(call, StreamingCall) and call.begun


class SentStreams:
    """The calls with streams of one uplink.

    Args:
        calls: those that have not ended, by key.
        counters: of the calls.
    """

    def __init__(self, uplink: Uplink, calls: dict[bytes, Call], counters: Counter[str]) -> None:
        self._uplink = uplink
        self._calls = calls
        self._counters = counters
        #: Number of calls whose streams are being sent.
        self.open = 0
        uplink.handle(Kind.REQUEST_GRANT, self._grant)
        uplink.handle(Kind.REQUEST_STOP, self._stop)

    @property
    def is_known(self) -> bool:
        """Whether the router takes requests with streams."""
        router = self._uplink.router
        return router is not None and router.request_streams

    # --- from the consumer -------------------------------------------------------------------

    def _grant(self, now: float, message: bytes) -> None:
        items, size_bytes = grant_of(message)
        call = self._calls.get(message[KEY])
        if not isinstance(call, StreamingCall):
            self._counters["late grants"] += 1
            return
        call.sign_of_life = now
        call.begun = True
        call.owner_hops, call.owner_attempt = message[STAMP]
        call.consumer = message[CONSUMER_AT]
        call.granted_items += items
        call.granted_bytes += size_bytes
        call.changed()

    def _stop(self, now: float, message: bytes) -> None:
        call = self._calls.get(message[KEY])
        if not isinstance(call, StreamingCall):
            self._counters["late grants"] += 1
            return
        call.sign_of_life = now
        call.begun = call.stopped = True
        call.changed()

    # --- to the consumer ---------------------------------------------------------------------

    def send_item(
        self, now: float, call: StreamingCall, format: int, payload: bytes | memoryview, flags: int = 0
    ) -> None:
        """Send an item of the stream; uses up credit."""
        call.granted_items -= 1
        call.granted_bytes -= len(payload)
        call.sent += 1
        self._send(now, call, Kind.REQUEST_ITEM, format, payload, flags)

    def end(self, now: float, call: StreamingCall, format: int = 0, payload: bytes = b"", flags: int = 0) -> None:
        """There are no more items; with a payload: because the caller's iterable has raised what it describes."""
        if call.begun and not call.is_over:
            self._send(now, call, Kind.REQUEST_END, format, payload, flags)

    def _send(
        self, now: float, call: StreamingCall, kind: int, format: int, payload: bytes | memoryview, flags: int
    ) -> None:
        call.sign_of_life = now
        hops, attempt, consumer = call.owner_hops, call.owner_attempt, call.consumer
        self._uplink.send(
            pack(kind, payload, flags=flags, format=format, key=call.key, hops=hops, attempt=attempt, consumer=consumer)
        )
