"""Sends the stream of one call: reads the caller's iterable beside the caller, as fast as the handler takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from time import monotonic
from typing import Any

from rpcmq.client.process import Process
from rpcmq.client.stream_argument import StreamArgument
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.errors import CallCancelled, CallTimeout, PayloadError
from rpcmq.payload import Format
from rpcmq.payload.format import STREAMED
from rpcmq.wire import FORMAT_AT, Kind

__all__ = ["StreamSender", "blame_stream", "encoded_item", "end_failed", "end_whole"]

_END: Any = object()
#: Bytes after which what was queued is sent, so that the other side can begin.
_FLUSH_BYTES = 1 << 20
#: Longest wait before it is looked again whether more may be sent, and for the end of an iterable (seconds).
_LOOK_AGAIN, _PATIENCE = 1.0, 1.0
_ITEM, _JSON = int(Kind.REQUEST_ITEM), Format.JSON.bit


def encoded_item(process: Process, call: StreamingCall, item: Any) -> tuple[int, int, bytes]:
    """Format, flags and payload of an item. Bytes go as they are, in no format.

    Raises:
        PayloadError: it cannot be encoded, or is too large.
    """
    if isinstance(item, (bytes, bytearray, memoryview)):
        form, payload = 0, item if type(item) is bytes else bytes(item)
        most = process.uplink.max_message_bytes - process.payloads.overhead
        if len(payload) > most:
            raise PayloadError(
                f"an item of a stream is {len(payload)} bytes, and the router takes {most} (its message.max_bytes); "
                "make it of smaller ones"
            )
    else:
        # What the consumer accepts for sure: the format of the request.
        form, payload = process.encode(item, _JSON | 1 << (call.message[FORMAT_AT] - STREAMED))
    flags, payload = process.payloads.sign_item(call, _ITEM, form, payload)
    return form, flags, payload


def end_whole(process: Process, call: StreamingCall) -> None:
    """There are no more items. In the client's loop."""
    flags, payload = process.payloads.sign_item(call, Kind.REQUEST_END, 0, b"")
    process.calls.streams.end(monotonic(), call, 0, payload, flags)
    process.schedule()


def end_failed(
    process: Process, call: StreamingCall, name: str, error: BaseException, record: tuple[int, bytes]
) -> None:  # fmt: skip
    """End ``call``: the iterable of the argument ``name`` has raised ``error``, or given what cannot be sent.

    Args:
        record: the encoded exception. In the client's loop.
    """
    form, payload = record
    flags, payload = process.payloads.sign_item(call, Kind.REQUEST_END, form, payload)
    process.calls.streams.end(monotonic(), call, form, payload, flags)
    call.raised = error
    process.calls.abandon(call, CallCancelled(f"its stream {name!r} has raised {type(error).__name__}"))
    process.schedule()


def blame_stream(error: CallTimeout, name: str, seconds: float) -> None:
    """Say in ``error`` that the iterable of the argument ``name`` was to give an item for so long; 0.0: it was not."""
    if seconds:
        error.args = (f"{error.args[0]}; the stream {name!r} of the caller has given no item for {seconds:.1f} s",)
        error.details["stream_seconds"] = round(seconds, 3)


class StreamSender:
    """The iterable of one call on its way out. To be used in the client's loop, but for the iterable itself.

    It is read in a greenlet or thread of its own, from when the consumer has asked for it, in the caller's context.

    Args:
        call: was started.
        name: of the argument.
    """

    def __init__(self, process: Process, call: StreamingCall, name: str, argument: StreamArgument) -> None:
        self._process = process
        self._name = name
        self._argument = argument
        self._items: Iterator[Any] | None = None
        #: Since when the iterable is being asked for an item (monotonic seconds); 0.0: it is not.
        self._reading_since = 0.0
        self._unsent_bytes = 0
        shell = process.shell
        self._outside = shell.outside
        self._changed, self._has_ended = shell.event(), shell.event()
        self._context = copy_context()
        self._has_begun = False
        #: Ends a wait of the iterable; None: that cannot be ended.
        self._interrupt: Callable[[], object] | None = None
        self._call = call
        call.on_change = self._look
        self._look()

    def go_on_with(self, call: StreamingCall) -> None:
        """Send the stream, none of whose items was asked for, with ``call`` in place of the former one."""
        self._call.on_change = None
        self._call = call
        call.on_change = self._look
        self._look()

    def _look(self) -> None:
        """More may be sent, or the call has ended."""
        self._changed.set()
        call = self._call
        if not self._has_begun:
            if call.may_send and not call.is_over:
                self._begin()
        elif self._reading_since and call.is_over and self._interrupt is not None:
            self._interrupt()

    def _begin(self) -> None:
        self._has_begun = True
        self._process.calls.streams.open += 1
        try:
            self._interrupt = self._process.shell.spawn(self._context.run, self._run)
        except RuntimeError as error:  # no thread can be started
            self._fail(error)
            self._ended()

    def close(self) -> None:
        """Have the iterable closed, now that the call has ended, and wait for that where it does not take long."""
        self._look()
        if not self._has_begun:
            self._has_begun = True
            self._close_items()
        elif not self._reading_since or self._interrupt is not None:
            self._has_ended.wait(_PATIENCE)

    def blame(self, error: CallTimeout) -> None:
        """Say in ``error`` that the time was over while the iterable was to give an item, if that is so."""
        if self._reading_since:
            blame_stream(error, self._name, monotonic() - self._reading_since)

    # --- beside the caller -------------------------------------------------------------------

    def _run(self) -> None:
        call = self._call
        try:
            self._send_all()
        except BaseException as error:
            if not call.is_over:
                self._fail(error)
        finally:
            try:
                self._close_items()
            finally:
                self._ended()

    def _ended(self) -> None:
        self._process.calls.streams.open -= 1
        self._has_ended.set()

    def _send_all(self) -> None:
        process, call = self._process, self._call
        while self._may_send():
            item = self._next()
            if call.is_over:
                return
            if item is _END:
                end_whole(process, call)
                return
            form, flags, payload = encoded_item(process, call, item)
            process.calls.streams.send_item(monotonic(), call, form, payload, flags)
            process.schedule()
            self._unsent_bytes += len(payload)
            if self._unsent_bytes >= _FLUSH_BYTES:
                self._unsent_bytes = 0
                process.connection.flush()

    def _may_send(self) -> bool:
        """Wait until an item may be sent; return False if there is nobody to send it to any more."""
        call, changed = self._call, self._changed
        while not call.is_over and not call.may_send:
            self._unsent_bytes = 0
            changed.clear()
            changed.wait(_LOOK_AGAIN)
        return not call.is_over

    def _next(self) -> Any:
        self._reading_since = monotonic()
        try:
            if self._items is None:
                self._items = self._in_program(self._argument.items)
            return self._in_program(next, self._items, _END)
        finally:
            self._reading_since = 0.0

    def _fail(self, error: BaseException) -> None:
        process, call = self._process, self._call
        end_failed(process, call, self._name, error, process.codec.encode_exception(error, process.identity))

    def _close_items(self) -> None:
        """Close the iterable, or the generator that was never begun; files stay open."""
        source = self._items
        if source is None and not callable(getattr(self._argument.source, "read", None)):
            source = self._argument.source
        close = getattr(source, "close", None)
        if callable(close):
            self._in_program(close)

    def _in_program(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call what is the application's where it may block."""
        return function(*args) if self._outside is None else self._outside(function, *args)
