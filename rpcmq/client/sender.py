"""Calls and casts on their way out: addressed, encoded, signed, sent, and waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from rpcmq.client.answers import Stream
from rpcmq.client.arguments import ONLY_ROUTED, check_seconds, request_body, trace_context
from rpcmq.client.process import Process
from rpcmq.client.request import current_request, handling
from rpcmq.client.results import progress_of, result_of
from rpcmq.client.stream_argument import refuse_stream, stream_in
from rpcmq.client.streaming_calls import StreamingCalls, learn_stream_format, note_formats, refuse_hedge
from rpcmq.core.process.call import Call
from rpcmq.core.process.direct_links import DirectLink
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.errors import CallTimeout, Outcome, PayloadError, UsageError
from rpcmq.payload import Format
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.home import Housed
from rpcmq.wire import Address, Flag, Kind, payload_of
from rpcmq.wire.body_fields import Body
from rpcmq.wire.hedge import HedgeTerms

__all__ = ["Sender", "Target"]

#: Ways to give a destination: a topic's name, or an address.
Target = str | Address

#: Most entries of a cache by topic, which then begins anew.
_MOST_TOPICS = 10_000
_DILL = Format.DILL.bit
# Looking up a member of an enum costs a call as much as a few of its steps.
_REQUEST, _CAST = int(Kind.REQUEST), int(Kind.CAST)
_ACCEPTS_DILL, _NESTED = int(Flag.ACCEPTS_DILL), int(Flag.NESTED)


class Sender:
    """Sends the calls and casts of a process. To be used in its loop.

    Args:
        process: the engines and their connection.
    """

    __slots__ = ("_accepted", "_addresses", "_config", "_streaming", "process")

    def __init__(self, process: Process) -> None:
        self.process, self._config, self._accepted = process, process.config, process.codec.accepted
        self._addresses: dict[Target, tuple[bytes, str]] = {}
        self._streaming = StreamingCalls(self)

    # --- verbs -------------------------------------------------------------------------------

    def call(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None, flags: int,
        sign_of_life: float | None, on_progress: Callable[[Any], object] | None, traceparent: str | None,
        hedge: HedgeTerms | None = None,
    ) -> Any:  # fmt: skip
        """See :meth:`Client.call`."""
        process = self.process
        progress = None if on_progress is None else self._progress(on_progress)
        seconds = self.seconds(timeout)
        deadline = monotonic() + seconds
        found = None
        try:
            call = self.start(_REQUEST, ctx, topic, msg, seconds, flags, sign_of_life, traceparent, hedge=hedge)
        except PayloadError:
            if (found := stream_in(msg)) is None:
                raise
        if found is not None:
            refuse_hedge(found[0], hedge)
            return self._streaming.call(found, ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent)
        try:
            process.wait(call, False, progress)
            if call.error is not None and self.learn_format(call):
                left = max(0.001, deadline - monotonic())
                call = self.start(_REQUEST, ctx, topic, msg, left, flags, sign_of_life, traceparent, hedge=hedge)
                process.wait(call, False, progress)
        except BaseException:
            # Once more: a signal's handler may have raised before the wait had begun.
            process.give_up(call)
            raise
        return result_of(process.payloads, call)

    def call_directly(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None, flags: int,
        sign_of_life: float | None, on_progress: Callable[[Any], object] | None, traceparent: str | None,
    ) -> Any:  # fmt: skip
        """Like :meth:`call`, with no router in between where that is possible."""
        if sign_of_life is not None:
            raise UsageError(ONLY_ROUTED)
        deadline = monotonic() + self.seconds(timeout)
        ended = None
        try:
            ended = self._ended_directly(ctx, topic, msg, deadline, on_progress)
        except PayloadError:
            if stream_in(msg) is None:
                raise  # else the router is used, which keeps the credit of streams
        if ended is not None:
            return result_of(self.process.payloads, ended)
        left = max(0.001, deadline - monotonic())
        return self.call(ctx, topic, msg, left, flags, None, on_progress, traceparent)

    def multicall(
        self, client: Housed, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None, flags: int
    ) -> Stream:
        """See :meth:`Client.multicall`. The stream keeps ``client`` from being closed as garbage."""
        all_flags = flags | self.process.calls.stream_flags
        start = partial(self.start, _REQUEST, ctx, topic, msg, self.seconds(timeout), all_flags)
        found = None
        try:
            call = start()
        except PayloadError:
            if (found := stream_in(msg)) is None:
                raise
        if found is not None:
            return self._streaming.multicall(client, found, ctx, topic, msg, timeout, flags)
        try:
            return Stream(client, self.process, call, lambda refused: start() if self.learn_format(refused) else None)
        except BaseException:
            self.process.give_up(call)
            raise

    def cast(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], flags: int, confirm: bool | None, ttl: float | None,
        timeout: float | None, traceparent: str | None,
    ) -> int | None:  # fmt: skip
        """See :meth:`Client.cast`, and for its result :meth:`Client.fanout_cast`."""
        process = self.process
        seconds = self.seconds(timeout)
        if ttl is not None:
            check_seconds("ttl", ttl)
        address, name = self.address(topic)
        if confirm:
            return self._confirmed(ctx, topic, msg, flags, ttl, seconds, traceparent)
        if not process.uplink.origin:
            # First: all who wait for the connection would find the same room.
            began = monotonic()
            self._ready(seconds)
            seconds = max(0.001, seconds - (monotonic() - began))
        else:
            process.connection.check_open()
        if not process.cast_window.has_room(address):
            process.check_usable()
            process.wait_for_room(address, seconds, name)
        message = self.encoded_cast(ctx, msg, address, flags, ttl, traceparent)
        if not process.send_cast(*message):
            deadline = monotonic() + seconds
            process.wait_for_room(address, seconds, name)
            while not process.send_cast(*message):
                process.wait_for_room(address, max(0.001, deadline - monotonic()), name)
        return None

    def _confirmed(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], flags: int, ttl: float | None, seconds: float,
        traceparent: str | None,
    ) -> int:  # fmt: skip
        process = self.process
        deadline = monotonic() + seconds
        address, name = self.address(topic)
        if not process.uplink.origin:
            self._ready(seconds)
        for _ in range(2):
            if not process.cast_window.has_room(address):
                process.check_usable()
                process.wait_for_room(address, max(0.001, deadline - monotonic()), name)
            call = self.start(_CAST, ctx, topic, msg, ttl, flags | Flag.CONFIRM, None, traceparent)
            try:
                left = max(0.001, deadline - monotonic())
                if not process.wait_within(left, call, partial(process.cancel, call)):
                    raise self.not_confirmed(call, seconds)
            except BaseException:
                # Once more: a signal's handler may have raised before the wait had begun.
                process.give_up(call)
                raise
            if not self.learn_format(call):
                break
        return self.confirmed_count(call)

    def confirmed_count(self, call: Call) -> int:
        """Return how many consumers the router sends the confirmed cast ``call`` to, or raise why it does not."""
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return int.from_bytes(payload_of(call.answer))

    def not_confirmed(self, call: Call, seconds: float) -> CallTimeout:
        """Build the error for the confirmed cast ``call``, which was cancelled after ``seconds``."""
        text = f"the router has not confirmed the cast to {call.address!r} within {seconds:g} s"
        if not call.withdrawn:
            return CallTimeout(f"{text}; it may still be delivered", {"topic": call.address})
        text += f": {self.process.connection.condition}; it was not sent, and will not be"
        return CallTimeout(text, {"topic": call.address, "started": "no"})

    def ask(self, body: Body, address: tuple[bytes, str], timeout: float | None) -> bytes:
        """Ask the router itself and return its answer."""
        return self.ask_kind(body.KIND, body.payload(), 1, address, timeout)

    def ask_kind(
        self, kind: int, payload: bytes, format: int, address: tuple[bytes, str], timeout: float | None
    ) -> bytes:
        """Do as :meth:`ask` with a message of ``kind`` whose payload is no body."""
        deadline = monotonic() + self.seconds(timeout)
        self._ready(deadline - monotonic())
        call = Call(address[1], 0, max(0.001, deadline - monotonic()))
        process = self.process
        process.calls.start(monotonic(), call, kind, payload, format=format, address=address[0])
        process.connection.schedule()
        process.wait(call)
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer

    # --- parts -------------------------------------------------------------------------------

    def start(
        self, kind: int, ctx: Any, topic: Target, msg: Mapping[str, Any], seconds: float | None, flags: int,
        sign_of_life: float | None = None, traceparent: str | None = None, new_call: type[Call] = Call,
        added_format: int = 0, hedge: HedgeTerms | None = None,
    ) -> Call:  # fmt: skip
        """Send a message that is waited for, for so many ``seconds``; None: a cast, which does not age on its way.

        ``new_call`` and ``added_format`` are those of a request with a stream.
        """
        process = self.process
        process.check_usable()
        try:
            address, name = self._addresses[topic]
        except (KeyError, TypeError):
            address, name = self.address(topic)
        started = monotonic()
        if not process.uplink.origin:
            self._ready(self.seconds(None) if seconds is None else seconds)
            waited, started = monotonic() - started, monotonic()
            if seconds is not None:
                seconds = max(0.001, seconds - waited)
        method, body = request_body(ctx, msg)
        if sign_of_life is not None:
            check_seconds("sign_of_life", sign_of_life)
            body["keepalive"] = sign_of_life / 3
        if self._accepted & _DILL:
            flags |= _ACCEPTS_DILL
            if not added_format and stream_in(msg) is not None:
                refuse_stream(msg, "cast", kind == _CAST)
                raise PayloadError("an argument is a stream")  # which dill could encode
        is_nested = handling() is not None
        if is_nested:
            flags |= _NESTED
        known = process.accepted_formats.get(address, self._accepted)
        if process.payloads.limits:
            known &= process.payloads.formats(address)
        try:
            form, payload = process.encode(body, known)
        except PayloadError:
            refuse_stream(msg, "cast", kind == _CAST)
            raise
        form += added_format
        call = new_call(name, flags, seconds)
        call.silence = sign_of_life
        call.hedge = hedge
        if process.payloads.signs:
            call.flags, payload = process.payloads.sign_request(
                kind, call, flags, form, payload, address, method, call.timeout
            )
        trace = trace_context(traceparent) if is_nested or traceparent is not None else b""
        try:
            process.start_call(started, call, kind, payload, form, address, method, trace)
        except BaseException:
            # A signal's handler: it may be on its way.
            process.give_up(call)
            raise
        return call

    def encoded_cast(
        self, ctx: Any, msg: Mapping[str, Any], address: bytes, flags: int, ttl: float | None, traceparent: str | None
    ) -> tuple[bytes, int, int, bytes, bytes, bytes, int | None]:
        """Encode and sign a cast: the arguments of :meth:`Process.send_cast`."""
        process = self.process
        method, body = request_body(ctx, msg)
        known = process.accepted_formats.get(address, self._accepted)
        if process.payloads.limits:
            known &= process.payloads.formats(address)
        if self._accepted & _DILL:
            refuse_stream(msg, "cast")  # which dill could encode
        try:
            form, payload = process.encode(body, known)
        except PayloadError:
            refuse_stream(msg, "cast")
            raise
        if process.payloads.signs:
            flags, payload = process.payloads.sign_request(Kind.CAST, None, flags, form, payload, address, method, ttl)
        trace = trace_context(traceparent) if traceparent is not None or handling() is not None else b""
        return payload, flags, form, address, method, trace, None if ttl is None else max(1, int(ttl * 1000))

    def check_router(self, seconds: float) -> None:
        """Wait for so many ``seconds`` for a router, and raise UsageError if it takes no requests with streams."""
        process = self.process
        if not process.uplink.origin:
            self._ready(seconds)
        if not process.calls.streams.is_known:
            where = process.connection.url
            raise UsageError(f"the router at {where} is too old for a request with a stream; send the value whole")

    def learn_format(self, call: Call) -> bool:
        """Return whether to retry the call in another format, because it was refused for its format only."""
        error = call.error
        if error is None or error.details.get("outcome") != Outcome.PROTOCOL:
            return False
        accepts = error.details.get("accepts")
        if type(accepts) is not int:
            return False
        if isinstance(call, StreamingCall):
            return learn_stream_format(self.process, call, accepts, self._accepted)
        note_formats(self.process, call, accepts & self._accepted)
        return True

    def seconds(self, timeout: float | None) -> float:
        """The limit of a call (seconds): ``timeout``, else the rest of the handled request's time, else the setting."""
        if timeout is not None:
            return check_seconds("timeout", timeout)
        request = None if handling() is None else current_request()
        if request is not None and request.remaining is not None:
            return max(0.001, request.remaining)
        return self._config.timeout

    def address(self, topic: Target) -> tuple[bytes, str]:
        """``topic`` as it stands in a header, and as it is shown.

        Raises:
            UsageError: it is no topic.
        """
        try:
            known = self._addresses.get(topic)
        except TypeError:
            what = f"{type(topic).__name__}: {short_repr(topic)}"
            raise UsageError(f"topic must be a str or an Address, not {what}") from None
        if known is None:
            address = topic if isinstance(topic, Address) else Address(topic, "", self._config.exchange)
            if len(self._addresses) >= _MOST_TOPICS:
                self._addresses.clear()
            known = self._addresses[topic] = address.encode(), str(address)
        return known

    def _ready(self, seconds: float) -> None:
        self.process.check_usable()
        self.process.wait_ready(min(seconds, self._config.connect_timeout), seconds)

    def _progress(self, on_progress: Callable[[Any], object]) -> Callable[[Call, bytes], object]:
        payloads = self.process.payloads
        return lambda call, message: on_progress(progress_of(payloads, call, message))

    def _ended_directly(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], deadline: float,
        on_progress: Callable[[Any], object] | None,
    ) -> Call | None:  # fmt: skip
        """A call on a direct link; None if there can be none, and the router is to be used."""
        process = self.process
        process.check_usable()
        address, name = self.address(topic)
        if not process.direct.has_link(address):
            self._ready(deadline - monotonic())
        link = process.direct.link_to(address, name, max(0.001, deadline - monotonic()))
        if link is None:
            return None
        call, payload, form, method = self.encoded_directly(link, ctx, topic, msg, deadline)
        progress = None if on_progress is None else self._progress(on_progress)
        process.direct.call(link, call, payload, form, address, method, progress)
        return None if self.is_to_be_routed(call, address) else call

    def encoded_directly(
        self, link: DirectLink, ctx: Any, topic: Target, msg: Mapping[str, Any], deadline: float
    ) -> tuple[Call, bytes, int, bytes]:
        """Encode and sign a direct call: the call, its payload, format and method."""
        process = self.process
        address, name = self.address(topic)
        method, body = request_body(ctx, msg)
        seconds = max(0.001, deadline - monotonic())
        payloads = process.payloads
        form, payload = process.codec.encode(
            body, process.direct.accepts(link) & self._accepted & payloads.formats(address)
        )
        call = Call(name, _ACCEPTS_DILL if self._accepted & _DILL else 0, seconds)
        if payloads.signs:
            call.flags, payload = payloads.sign_request(
                Kind.REQUEST, call, call.flags, form, payload, address, method, seconds
            )
        return call, payload, form, method

    def is_to_be_routed(self, call: Call, address: bytes) -> bool:
        """Return whether the process behind the link did not run ``call``, so that the router is to be used."""
        if call.error is not None and call.error.details.get("started") == "no":
            self.process.direct.forget(address)
            return True
        return False
