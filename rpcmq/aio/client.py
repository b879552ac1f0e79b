"""A client for asyncio programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar, Unpack, overload

from rpcmq.aio.event_verbs import EventVerbs
from rpcmq.aio.middleware import AnyMiddleware
from rpcmq.aio.queue_verbs import QueueVerbs
from rpcmq.aio.stream import Stream
from rpcmq.client.arguments import check_progress, request_body
from rpcmq.client.client import Client as PlainClient
from rpcmq.client.hedging import HedgeAfter, hedge_terms, refuse_hedge
from rpcmq.client.middleware import OutgoingRequest
from rpcmq.client.options import CallOptions, Defaults, check_hedge
from rpcmq.client.retry import Retry
from rpcmq.client.sender import Target
from rpcmq.client.shared_client import refuse_beside_a_client
from rpcmq.client.shown_names import shown_as
from rpcmq.client.stream_argument import stream_in
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.client.verbs import flags_of
from rpcmq.config import ClientSettings
from rpcmq.core.process.call import Call
from rpcmq.errors import PayloadError, UsageError
from rpcmq.payload import Codec, ExceptionRegistry
from rpcmq.payload.bounded_text import short_repr
from rpcmq.threads.client import Client as ThreadClient
from rpcmq.transport.thread_shell import ThreadShell
from rpcmq.wire import Address, Flag, Kind

__all__ = ["Client"]

S = TypeVar("S")

_REQUEST = int(Kind.REQUEST)
_FANOUT, _MANDATORY = int(Flag.FANOUT), int(Flag.MANDATORY)


@shown_as("Client")
class Client(EventVerbs, QueueVerbs):
    """A connection to a router under one identity, for the tasks of any number of event loops.

    Args:
        router, identity, exceptions, codec, options, topic_options, settings: as for :class:`rpcmq.threads.Client`.
        middleware: stands around calls and casts, the first outermost: objects of :class:`rpcmq.aio.Middleware`. One of
            :class:`rpcmq.Middleware`, of plain functions, takes a thread for as long as a call lasts, of 64 at most.
        client: share the connection of this :class:`rpcmq.Client`, with its options and middleware; then
            nothing else is given. It stays open when this is closed.

    One thread, which only serves sockets, sends what tasks send, and answers heartbeats whatever the event loop does.
    No verb blocks the event loop. A task that is cancelled cancels its call. A client that is dropped is closed. After
    a fork the child's first use connects anew, under an identity of its own.

    Raises:
        ConfigError: as :class:`rpcmq.threads.Client`.
        UsageError: something is of the wrong type, or gevent or eventlet has patched this program.
    """

    def __init__(
        self,
        router: str | Sequence[str] | None = None,
        identity: str | None = None,
        *,
        client: PlainClient | None = None,
        exceptions: ExceptionRegistry | None = None,
        codec: Codec | None = None,
        options: CallOptions | None = None,
        topic_options: Mapping[Target, CallOptions] | None = None,
        middleware: Sequence[AnyMiddleware] = (),
        **settings: Unpack[ClientSettings],
    ) -> None:
        if client is None:
            made = ThreadClient(router, identity, exceptions=exceptions, codec=codec, **settings)
            super().__init__(made, tuple(middleware), Defaults(options, topic_options, made.config.exchange), False)
            return
        if not isinstance(client, PlainClient) or not isinstance(client.shell, ThreadShell):
            raise UsageError(f"client must be an rpcmq.Client that lives in plain threads, not {short_repr(client)}")
        refuse_beside_a_client({
            "router": router, "identity": identity, "exceptions": exceptions, "codec": codec, "options": options,
            "topic_options": topic_options, "middleware": middleware or None, **settings,
        })  # fmt: skip
        super().__init__(client, client.pipeline.middleware, client.pipeline.defaults, True)

    async def call(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        timeout: float | None = None,
        *,
        idempotent: bool | None = None,
        mandatory: bool | None = None,
        sign_of_life: float | None = None,
        on_progress: Callable[[Any], object] | None = None,
        retry: Retry | int | bool | None = None,
        direct: bool | None = None,
        first_of: int | None = None,
        hedge_after: HedgeAfter | None = None,
        exception_wins: bool | None = None,
        traceparent: str | None = None,
    ) -> Any:
        """Ask one consumer of ``topic`` and wait for its answer. See :meth:`rpcmq.Client.call`.

        Args:
            ctx, topic, msg, timeout, idempotent, mandatory, sign_of_life, retry, direct, traceparent: as there.
            first_of, hedge_after, exception_wins: as there.
            on_progress: called in the task with each value that the handler reports; may be ``async``.
        """
        if on_progress is not None:
            check_progress(on_progress)
        if retry or self._layered:
            options = CallOptions(
                timeout=timeout, idempotent=idempotent, mandatory=mandatory, retry=retry, sign_of_life=sign_of_life,
                direct=direct, first_of=first_of, hedge_after=hedge_after, exception_wins=exception_wins,
            )  # fmt: skip
            check_hedge(options, self._defaults, topic)
            return await self._through(OutgoingRequest("call", ctx, topic, msg, options, on_progress, traceparent))
        caller, flags, hedge = self.caller, flags_of(idempotent, mandatory), None
        if first_of is not None or hedge_after is not None:
            hedge = hedge_terms(first_of, hedge_after, exception_wins)
            if hedge is not None:
                refuse_hedge(idempotent, direct)
        if direct:
            call = caller.call_directly
            return await call(ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent)
        return await caller.call(ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent, hedge)

    async def cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool | None = None,
        idempotent: bool | None = None,
        mandatory: bool | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> None:
        """Tell one consumer of ``topic``; no answer. See :meth:`rpcmq.Client.cast`.

        It waits only where too many casts are on their way, for the first connection, and with ``confirm``.

        Args:
            ctx, topic, msg, confirm, idempotent, mandatory, ttl, timeout, traceparent: as there.
        """
        if self._layered:
            options = CallOptions(confirm=confirm, idempotent=idempotent, mandatory=mandatory, ttl=ttl, timeout=timeout)
            await self._through(OutgoingRequest("cast", ctx, topic, msg, options, None, traceparent))
            return
        flags = flags_of(idempotent, mandatory)
        await self.caller.cast(ctx, topic, msg, flags, confirm, ttl, timeout, traceparent)

    @overload
    async def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: Literal[True],
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int: ...
    @overload
    async def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int | None: ...
    async def fanout_cast(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        *,
        confirm: bool | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> int | None:
        """Tell all consumers of ``topic``; no answer. See :meth:`rpcmq.Client.fanout_cast`."""
        if self._layered:
            options = CallOptions(confirm=confirm, timeout=timeout)
            request = OutgoingRequest("fanout_cast", ctx, topic, msg, options, None, traceparent)
            return await self._through(request)  # type: ignore[no-any-return]
        return await self.caller.cast(ctx, topic, msg, _FANOUT, confirm, None, timeout, traceparent)

    def multicall(
        self,
        ctx: Any,
        topic: Target,
        msg: Mapping[str, Any],
        timeout: float | None = None,
        *,
        mandatory: bool | None = None,
    ) -> AsyncIterator[Any]:
        """Ask one consumer; iterate with ``async for`` over what its generator yields, as it is yielded.

        The request is sent when the first item is asked for. The service goes at most a few items ahead of the
        iteration. Leaving the loop cancels the call, as does ``aclose()``.

        Args:
            timeout: longest wait for each item (seconds).
            mandatory: as for :meth:`call`.
        """
        if not self._layered:
            return self._stream(ctx, topic, msg, timeout, _MANDATORY if mandatory else 0)
        options = CallOptions(timeout=timeout, mandatory=mandatory)
        return self._layered_stream(OutgoingRequest("multicall", ctx, topic, msg, options))

    def _stream(self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None, flags: int) -> Stream:
        caller = self.caller
        # Here, and not when the first item is asked for: misuse is to be raised where it is.
        caller.bridge.process.check_usable()
        seconds = caller.sender.seconds(timeout)
        caller.sender.address(topic)
        request_body(ctx, msg)

        async def start() -> Call:
            found = None
            try:
                all_flags = flags | caller.bridge.process.calls.stream_flags
                call = await caller.start(_REQUEST, ctx, topic, msg, seconds, all_flags)
            except PayloadError:
                if (found := stream_in(msg)) is None:
                    raise
            return call if found is None else await caller.streaming_start(found, ctx, topic, msg, seconds, flags)()

        return Stream(caller, start)

    async def _layered_stream(self, request: OutgoingRequest) -> AsyncGenerator[Any]:
        async with aclosing(await self._through(request)) as items:
            async for item in items:
                yield item

    async def describe(self, topic: Target, timeout: float | None = None) -> dict[str, Any]:
        """Describe the service on ``topic``: its methods with signatures and docstrings.

        Raises:
            CallError, RouterUnreachable: as :meth:`call`; NoConsumer at once where nobody consumes it, rather than
                when the time is over.
        """
        message = {"method": "rpcmq.describe", "args": {}}
        answer: dict[str, Any] = await self.call(None, topic, message, timeout, mandatory=True)
        return answer

    def stub(self, service: Callable[..., S], topic: Target, **options: Unpack[StubOptions]) -> S:
        """The methods of a service, to be awaited as if it were here. See :meth:`rpcmq.Client.stub`.

        Args:
            service: the class that says which methods there are, all of them ``async``: of a service whose methods are
                not, a ``typing.Protocol`` with ``async def`` for each method, and for each stream a ``def`` that
                returns an ``AsyncIterator``.
            topic, options: as there. :func:`rpcmq.aio.as_cast` and :func:`rpcmq.aio.as_fanout` send a method otherwise.
        """
        return make_stub(service, topic, lambda: self, options, awaitable=True)

    async def _call_queue(self, topic: Address, msg: Mapping[str, Any], timeout: float, *, mandatory: bool) -> Any:
        return await self.call(None, topic, msg, timeout, mandatory=mandatory, retry=False)

    # --- through the pipeline ----------------------------------------------------------------

    async def _through(self, request: OutgoingRequest) -> Any:
        """Send ``request`` with default options, middleware and retries."""
        return await self._pipeline.run(request, self.caller.sender.seconds, self._send)

    async def _send(self, request: OutgoingRequest) -> Any:
        """Send ``request``, which has passed the pipeline; return its result."""
        caller, options = self.caller, request.options
        message = request.ctx, request.topic, request.message
        progress, trace = request.on_progress, request.traceparent
        flags, timeout = flags_of(options.idempotent, options.mandatory), options.timeout
        match request.verb:
            case "call" if options.direct:
                return await caller.call_directly(*message, timeout, flags, options.sign_of_life, progress, trace)
            case "call":
                silence, hedge = options.sign_of_life, options.hedge
                return await caller.call(*message, timeout, flags, silence, progress, trace, hedge)
            case "multicall":
                return self._stream(*message, timeout, flags & _MANDATORY)
            case "cast":
                return await caller.cast(*message, flags, options.confirm, options.ttl, timeout, trace)
            case "fanout_cast":
                return await caller.cast(*message, _FANOUT, options.confirm, None, timeout, trace)
