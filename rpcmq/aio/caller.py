"""Calls and casts of tasks: prepared and ended as in :mod:`rpcmq.client.sender`, and awaited in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any

from rpcmq.aio.bridge import Bridge
from rpcmq.aio.streaming_calls import LoopStreamSender
from rpcmq.client.arguments import ONLY_ROUTED, check_seconds
from rpcmq.client.results import progress_of, result_of
from rpcmq.client.sender import Target
from rpcmq.client.stream_argument import StreamArgument, stream_in
from rpcmq.client.stream_sender import blame_stream
from rpcmq.client.streaming_calls import refuse_hedge, streamed
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.client.verbs import ClientVerbs
from rpcmq.core.process.call import Call
from rpcmq.core.process.direct_links import DirectLink
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.errors import CallTimeout, PayloadError, UsageError
from rpcmq.payload.format import STREAMED
from rpcmq.wire import Flag, Kind
from rpcmq.wire.hedge import HedgeTerms

__all__ = ["Caller"]

_REQUEST, _CAST = int(Kind.REQUEST), int(Kind.CAST)
_CONFIRM = int(Flag.CONFIRM)


class Caller:
    """Sends the calls and casts of tasks.

    Args:
        client: the client that they share; it is not closed as garbage while this lives.

    Attributes:
        bridge: into its engines.
        sender: its own.
    """

    def __init__(self, client: ClientVerbs) -> None:
        process = client.process
        assert isinstance(process, ThreadProcess)
        self.client = client
        self.bridge = Bridge(process)
        self.sender = client.sender

    async def call(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None, flags: int,
        sign_of_life: float | None, on_progress: Callable[[Any], object] | None, traceparent: str | None,
        hedge: HedgeTerms | None = None,
    ) -> Any:  # fmt: skip
        """See :meth:`rpcmq.client.sender.Sender.call`."""
        bridge, sender = self.bridge, self.sender
        progress = None if on_progress is None else self._progress(on_progress)
        seconds = sender.seconds(timeout)
        deadline = monotonic() + seconds
        found = None
        try:
            call = await self.start(_REQUEST, ctx, topic, msg, seconds, flags, sign_of_life, traceparent, hedge)
        except PayloadError:
            if (found := stream_in(msg)) is None:
                raise
        if found is not None:
            refuse_hedge(found[0], hedge)
            start = self._starter(found, True, ctx, topic, msg, seconds, flags, sign_of_life, traceparent)
            return await self._streaming_call(found, start, progress)
        await bridge.wait(call, False, progress)
        if call.error is not None and sender.learn_format(call):
            left = max(0.001, deadline - monotonic())
            call = await self.start(_REQUEST, ctx, topic, msg, left, flags, sign_of_life, traceparent, hedge)
            await bridge.wait(call, False, progress)
        if bridge.posts:
            return result_of(bridge.process.payloads, call)
        return await bridge.in_thread(result_of, bridge.process.payloads, call)

    async def _streaming_call(
        self, found: tuple[str, StreamArgument], start: Callable[[], Awaitable[StreamingCall]],
        progress: Callable[[Call, bytes], object] | None,
    ) -> Any:  # fmt: skip
        """Call with the argument ``found`` as a stream."""
        bridge = self.bridge
        for may_try_again in (True, False):
            call = await start()
            sending = LoopStreamSender(bridge, call, *found)
            try:
                await bridge.wait(call, False, progress)
                if may_try_again and call.error is not None and self.sender.learn_format(call):
                    call.on_change = None
                    continue
            finally:
                if isinstance(call.error, CallTimeout):
                    blame_stream(call.error, found[0], sending.waited_seconds)
                if call.on_change is not None:
                    await sending.close()
            break
        if bridge.posts:
            return result_of(bridge.process.payloads, call)
        return await bridge.in_thread(result_of, bridge.process.payloads, call)

    def streaming_start(
        self, found: tuple[str, StreamArgument], ctx: Any, topic: Target, msg: Mapping[str, Any], seconds: float,
        flags: int,
    ) -> Callable[[], Awaitable[Call]]:  # fmt: skip
        """The function that starts a multicall with the argument ``found`` as a stream, and sends that."""
        start = self._starter(found, False, ctx, topic, msg, seconds, flags)

        async def started() -> Call:
            call = await start()
            LoopStreamSender(self.bridge, call, *found)
            return call

        return started

    def _starter(
        self, found: tuple[str, StreamArgument], is_whole: bool, ctx: Any, topic: Target, msg: Mapping[str, Any],
        seconds: float, flags: int, sign_of_life: float | None = None, traceparent: str | None = None,
    ) -> Callable[[], Awaitable[StreamingCall]]:  # fmt: skip
        message, bridge, sender = streamed(msg, found[0], is_whole), self.bridge, self.sender

        async def start() -> StreamingCall:
            if not bridge.process.uplink.origin:
                await self._ready(seconds)
            sender.check_router(seconds)
            all_flags = flags | self.bridge.process.calls.stream_flags
            arguments = _REQUEST, ctx, topic, message, seconds, all_flags, sign_of_life, traceparent
            arguments_of_stream = StreamingCall, STREAMED
            if bridge.posts:
                call = sender.start(*arguments, *arguments_of_stream)
            else:
                cancel = bridge.process.cancel
                call = await bridge.in_thread(sender.start, *arguments, *arguments_of_stream, undo=cancel)
            assert isinstance(call, StreamingCall)
            return call

        return start

    async def start(
        self, kind: int, ctx: Any, topic: Target, msg: Mapping[str, Any], seconds: float | None, flags: int,
        sign_of_life: float | None = None, traceparent: str | None = None, hedge: HedgeTerms | None = None,
    ) -> Call:  # fmt: skip
        """See :meth:`rpcmq.client.sender.Sender.start`."""
        bridge = self.bridge
        process = bridge.process
        if not process.uplink.origin:
            began = monotonic()
            await self._ready(self.sender.seconds(None) if seconds is None else seconds)
            if seconds is not None:
                seconds = max(0.001, seconds - (monotonic() - began))
        arguments = kind, ctx, topic, msg, seconds, flags, sign_of_life, traceparent, Call, 0, hedge
        if bridge.posts:
            return self.sender.start(*arguments)
        return await bridge.in_thread(self.sender.start, *arguments, undo=process.cancel)

    async def cast(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], flags: int, confirm: bool | None, ttl: float | None,
        timeout: float | None, traceparent: str | None,
    ) -> int | None:  # fmt: skip
        """See :meth:`rpcmq.client.sender.Sender.cast`."""
        bridge, sender = self.bridge, self.sender
        process = bridge.process
        seconds = sender.seconds(timeout)
        if ttl is not None:
            check_seconds("ttl", ttl)
        address, name = sender.address(topic)
        if confirm:
            return await self._confirmed(ctx, topic, msg, flags, ttl, seconds, traceparent)
        deadline = monotonic() + seconds
        process.check_usable()
        if not process.uplink.origin:
            # First: all who wait for the connection would find the same room.
            await self._ready(seconds)
        if not process.cast_window.has_room(address):
            await bridge.wait_for_room(address, max(0.001, deadline - monotonic()), name)
        if bridge.posts:
            message = sender.encoded_cast(ctx, msg, address, flags, ttl, traceparent)
        else:
            message = await bridge.in_thread(sender.encoded_cast, ctx, msg, address, flags, ttl, traceparent)
        while not await bridge.send_cast(*message):
            await bridge.wait_for_room(address, max(0.001, deadline - monotonic()), name)
        return None

    async def _confirmed(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], flags: int, ttl: float | None, seconds: float,
        traceparent: str | None,
    ) -> int:  # fmt: skip
        bridge, sender = self.bridge, self.sender
        process = bridge.process
        deadline = monotonic() + seconds
        address, name = sender.address(topic)
        process.check_usable()
        if not process.uplink.origin:
            await self._ready(seconds)
        for _ in range(2):
            if not process.cast_window.has_room(address):
                await bridge.wait_for_room(address, max(0.001, deadline - monotonic()), name)
            call = await self.start(_CAST, ctx, topic, msg, ttl, flags | _CONFIRM, None, traceparent)
            try:
                async with asyncio.timeout(max(0.001, deadline - monotonic())):
                    await bridge.wait(call)
            except TimeoutError:
                raise await bridge.run(sender.not_confirmed, call, seconds) from None
            if not sender.learn_format(call):
                break
        return sender.confirmed_count(call)

    async def call_directly(
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None, flags: int,
        sign_of_life: float | None, on_progress: Callable[[Any], object] | None, traceparent: str | None,
    ) -> Any:  # fmt: skip
        """See :meth:`rpcmq.client.sender.Sender.call_directly`."""
        if sign_of_life is not None:
            raise UsageError(ONLY_ROUTED)
        bridge, sender = self.bridge, self.sender
        deadline = monotonic() + sender.seconds(timeout)
        process = bridge.process
        process.check_usable()
        address, name = sender.address(topic)
        direct = process.direct
        if not direct.has_link(address) and not process.uplink.origin:
            await self._ready(deadline - monotonic())
        link = await bridge.in_thread(direct.link_to, address, name, max(0.001, deadline - monotonic()))
        if link is not None:
            try:
                encoded = await bridge.in_thread(sender.encoded_directly, link, ctx, topic, msg, deadline)
            except PayloadError:
                if stream_in(msg) is None:
                    raise  # else the router is used, which keeps the credit of streams
            else:
                call = encoded[0]
                if await self._ended_directly(link, address, encoded, on_progress):
                    return await bridge.in_thread(result_of, process.payloads, call)
        left = max(0.001, deadline - monotonic())
        return await self.call(ctx, topic, msg, left, flags, None, on_progress, traceparent)

    async def _ended_directly(
        self, link: DirectLink, address: bytes, encoded: tuple[Call, bytes, int, bytes],
        on_progress: Callable[[Any], object] | None,
    ) -> bool:  # fmt: skip
        """Send a call on ``link`` and wait for its end; return whether it was run, or may have been."""
        bridge = self.bridge
        call, payload, form, method = encoded
        direct = bridge.process.direct
        timer = await bridge.run(direct.start, link, call, payload, form, address, method)
        try:
            await bridge.wait(call, False, None if on_progress is None else self._progress(on_progress))
        except BaseException:
            bridge.process.post(direct.cancel, link, call)
            raise
        finally:
            bridge.process.post(timer.stop)
        return not await bridge.run(self.sender.is_to_be_routed, call, address)

    async def _ready(self, seconds: float) -> None:
        process = self.bridge.process
        process.check_usable()
        await self.bridge.wait_ready(min(seconds, process.config.connect_timeout), seconds)

    def _progress(self, on_progress: Callable[[Any], object]) -> Callable[[Call, bytes], object]:
        payloads = self.bridge.process.payloads
        return lambda call, message: on_progress(progress_of(payloads, call, message))
