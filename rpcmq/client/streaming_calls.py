"""Calls and multicalls one of whose arguments is a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from rpcmq.client.answers import Stream
from rpcmq.client.arguments import LegacyMessage
from rpcmq.client.process import Process
from rpcmq.client.results import progress_of, result_of
from rpcmq.client.stream_argument import StreamArgument, without_stream
from rpcmq.client.stream_sender import StreamSender
from rpcmq.core.process.call import Call
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.errors import CallError, CallTimeout, UsageError
from rpcmq.payload.format import STREAMED
from rpcmq.transport.home import Housed
from rpcmq.wire import Address, Kind, address_of

__all__ = [
    "STREAM_MEMBER",
    "WHOLE_MEMBER",
    "StreamingCalls",
    "check_sync",
    "learn_stream_format",
    "note_formats",
    "refuse_hedge",
    "streamed",
]

#: Members of a request's payload: the name of the argument that comes as a stream, and whether the caller wants one
#: result, though the request has the flag by which the answer may be a stream, too.
STREAM_MEMBER, WHOLE_MEMBER = "stream", "whole"
_REQUEST = int(Kind.REQUEST)
#: Entries of what is known of topics, which then begins anew.
_MOST_TOPICS = 10_000


class Starter(Protocol):
    """Starts calls: :class:`rpcmq.client.sender.Sender`, as far as it is used here."""

    process: Process

    def seconds(self, timeout: float | None) -> float:
        """The limit of a call (seconds)."""

    def check_router(self, seconds: float) -> None:
        """Wait for a router, for so many seconds at most, that takes requests with streams."""

    def start(
        self, kind: int, ctx: Any, topic: str | Address, msg: Mapping[str, Any], seconds: float | None, flags: int,
        sign_of_life: float | None = None, traceparent: str | None = None, new_call: type[Call] = Call,
        added_format: int = 0,
    ) -> Call:  # fmt: skip
        """Send a message that is waited for."""

    def learn_format(self, call: Call) -> bool:
        """Return whether to retry the call in another format."""


def refuse_hedge(name: str, hedge: object) -> None:
    """Refuse to send the stream ``name`` to several consumers.

    Raises:
        UsageError: ``hedge`` is not None.
    """
    if hedge is not None:
        raise UsageError(
            f"the argument {name!r} is a stream, which one consumer reads: leave out first_of and hedge_after"
        )


def streamed(msg: Mapping[str, Any], name: str, is_whole: bool) -> LegacyMessage:
    """``msg`` as it is sent where its argument ``name`` is a stream."""
    return LegacyMessage({**without_stream(msg, name), STREAM_MEMBER: name, WHOLE_MEMBER: is_whole})


def check_sync(name: str, argument: StreamArgument) -> None:
    """Refuse an async iterable.

    Raises:
        UsageError: it is one.
    """
    if argument.is_async:
        raise UsageError(f"the argument {name!r} is an async iterable, which only a client of rpcmq.aio can send")


def learn_stream_format(process: Process, call: StreamingCall, accepts: int, known_here: int) -> bool:
    """Note that ``call``, which was refused for its format, may be sent again in another one.

    Args:
        accepts: mask of the formats that its consumers accept, with and without a stream; ``known_here``: of this end.

    Returns:
        Whether there is one; if not, its error says who is too old for it.
    """
    formats = accepts >> STREAMED & known_here
    address, known = address_of(call.message), process.accepted_formats
    if call.begun or not formats or known.get(address) == formats:
        text = (
            f"{call.address!r} has a consumer that takes no request with a stream, because its rpcmq is older: upgrade "
            f"and restart it, or send the value whole ({call.error})"
        )
        call.error = CallError(text, {**(call.error.details if call.error is not None else {}), "started": "no"})
        return False
    note_formats(process, call, formats)
    return True


def note_formats(process: Process, call: Call, formats: int) -> None:
    """Note the mask of formats that the consumers of the address of ``call`` accept."""
    known = process.accepted_formats
    if len(known) >= _MOST_TOPICS:
        known.clear()
    known[address_of(call.message)] = formats


class StreamingCalls:
    """Sends calls with streams. To be used in the client's loop, or from any thread where it says so."""

    __slots__ = ("_process", "_sender")

    def __init__(self, sender: Starter) -> None:
        self._sender = sender
        self._process = sender.process

    def call(
        self, found: tuple[str, StreamArgument], ctx: Any, topic: str | Address, msg: Mapping[str, Any],
        timeout: float | None, flags: int, sign_of_life: float | None, on_progress: Callable[[Any], object] | None,
        traceparent: str | None,
    ) -> Any:  # fmt: skip
        """See :meth:`rpcmq.client.sender.Sender.call`. From any thread that may use the engines."""
        check_sync(*found)
        message = streamed(msg, found[0], is_whole=True)
        seconds = self._sender.seconds(timeout)
        start = partial(self.start, ctx, topic, message, seconds, flags, sign_of_life, traceparent)
        return self._process.run_inside(partial(self._call, found, start, on_progress))

    def _call(
        self, found: tuple[str, StreamArgument], start: Callable[[], StreamingCall],
        on_progress: Callable[[Any], object] | None,
    ) -> Any:  # fmt: skip
        process = self._process
        call = start()
        sending: StreamSender | None = None
        try:
            sending = self._sending(call, found)
            process.wait(call, False, self._progress(on_progress))
            if self._sender.learn_format(call):
                call.on_change = None
                call = start()
                sending.go_on_with(call)
                process.wait(call, False, self._progress(on_progress))
        except BaseException:
            process.give_up(call)
            raise
        finally:
            if sending is not None:
                self._ended(call, sending)
        return result_of(process.payloads, call)

    def multicall(
        self, client: Housed, found: tuple[str, StreamArgument], ctx: Any, topic: str | Address, msg: Mapping[str, Any],
        timeout: float | None, flags: int,
    ) -> Stream:  # fmt: skip
        """See :meth:`rpcmq.client.sender.Sender.multicall`."""
        check_sync(*found)
        message = streamed(msg, found[0], is_whole=False)
        start = partial(self.start, ctx, topic, message, self._sender.seconds(timeout), flags)
        call = start()
        try:
            sending = self._sending(call, found)
            return Stream(client, self._process, call, partial(self._again, sending, start))
        except BaseException:
            self._process.give_up(call)
            raise

    # --- parts -------------------------------------------------------------------------------

    def start(
        self, ctx: Any, topic: str | Address, message: LegacyMessage, seconds: float, flags: int,
        sign_of_life: float | None = None, traceparent: str | None = None,
    ) -> StreamingCall:  # fmt: skip
        """Send the request, whose stream follows when the consumer asks for it."""
        sender = self._sender
        sender.check_router(seconds)
        flags |= self._process.calls.stream_flags
        call = sender.start(
            _REQUEST, ctx, topic, message, seconds, flags, sign_of_life, traceparent,
            new_call=StreamingCall, added_format=STREAMED,
        )  # fmt: skip
        assert isinstance(call, StreamingCall)
        return call

    def _sending(self, call: StreamingCall, found: tuple[str, StreamArgument]) -> StreamSender:
        return StreamSender(self._process, call, *found)

    def _again(self, sending: StreamSender, start: Callable[[], StreamingCall], refused: Call) -> Call | None:
        assert isinstance(refused, StreamingCall)
        if not self._sender.learn_format(refused):
            return None
        refused.on_change = None
        call = start()
        sending.go_on_with(call)
        return call

    def _progress(self, on_progress: Callable[[Any], object] | None) -> Callable[[Call, bytes], object] | None:
        if on_progress is None:
            return None
        process, outside, tell = self._process, self._process.shell.outside, on_progress

        def progress(call: Call, message: bytes) -> object:
            value = progress_of(process.payloads, call, message)
            return tell(value) if outside is None else outside(tell, value)

        return progress

    def _ended(self, call: StreamingCall, sending: StreamSender) -> None:
        if isinstance(call.error, CallTimeout):
            sending.blame(call.error)
        sending.close()
