"""A client for asyncio programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from rpcmq.aio.caller import Caller
from rpcmq.aio.middleware import AnyMiddleware, Pipeline
from rpcmq.aio.stream import Stream
from rpcmq.aio.subscription import Handler, Subscription
from rpcmq.client.arguments import request_body
from rpcmq.client.client import Client as PlainClient
from rpcmq.client.event_subscription import SubscriptionOwner
from rpcmq.client.middleware import OutgoingRequest
from rpcmq.client.options import CallOptions, Defaults
from rpcmq.client.retry import Retry
from rpcmq.client.sender import Target
from rpcmq.client.shown_names import shown_as
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.client.verbs import ClientVerbs, flags_of
from rpcmq.config import ClientConfig, ClientSettings
from rpcmq.core.process.call import Call
from rpcmq.errors import UsageError
from rpcmq.payload import Codec, ExceptionRegistry
from rpcmq.payload.bounded_text import short_repr
from rpcmq.threads.client import Client as ThreadClient
from rpcmq.transport.home import Housed
from rpcmq.transport.thread_shell import ThreadShell
from rpcmq.wire import Flag, Kind

__all__ = ["Client"]

S = TypeVar("S")

_REQUEST = int(Kind.REQUEST)
_FANOUT, _STREAM = int(Flag.FANOUT), int(Flag.STREAM)


@shown_as("Client")
class BaseClient:
    """The connection of a client for asyncio, and the verbs that go on it.

    Args:
        client: the client of plain threads that tasks use.
        middleware, defaults: of the tasks' calls and casts.
        shared: whether ``client`` is somebody else's, and stays open.
    """

    def __init__(
        self, client: PlainClient, middleware: tuple[AnyMiddleware, ...], defaults: Defaults, shared: bool
    ) -> None:
        self._client = client
        self._shared = shared
        self._middleware = middleware
        self._defaults = defaults
        self._use_links()

    def _use_links(self) -> Caller:
        caller = Caller(self._client)
        self._pipeline = Pipeline(self._middleware, self._defaults, self._client.pipeline.budget, caller.bridge)
        self._layered = self._pipeline.used
        self._present = caller
        return caller

    @property
    def caller(self) -> Caller:
        """The sender of the tasks' calls; in the child of a fork another one."""
        caller = self._present
        return caller if not caller.bridge.process.connection.abandoned else self._use_links()

    @property
    def threads(self) -> ClientVerbs:
        """The same connection for the threads of this program, whose verbs block."""
        return self._client

    @property
    def config(self) -> ClientConfig:
        """The settings of the client."""
        return self._client.config

    @property
    def identity(self) -> str:
        """The name under which the router knows this process."""
        return self._client.identity

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._client.closed

    def __repr__(self) -> str:
        return f"<rpcmq.aio.Client over {self._client!r}>"

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until the router has welcomed this process. See :meth:`rpcmq.Client.connect`.

        Args:
            timeout: seconds; default: ``connect_timeout``.
        """
        await self.caller.bridge.wait_ready(self.config.connect_timeout if timeout is None else timeout)

    async def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye. See :meth:`rpcmq.Client.close`. A client that others share is left open.

        Args:
            linger_seconds: how long to wait at most until the router has all casts; default: the setting.
        """
        if not self._shared and not self.closed:
            await self.caller.bridge.in_thread(self._client.close, linger_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- answered by the router ------------------------------------------------------------------

    async def declare(self, topic: Target, *, group: str = "", timeout: float | None = None) -> None:
        """Have the router queue messages to ``topic``. See :meth:`rpcmq.Client.declare`."""
        await self.caller.bridge.in_thread(self._client.declare, topic, group=group, timeout=timeout)

    async def query(self, view: str = "overview", timeout: float | None = None) -> dict[str, Any]:
        """The router's own state. See :meth:`rpcmq.Client.query`."""
        return await self.caller.bridge.in_thread(self._client.query, view, timeout)

    async def statistics(self) -> dict[str, Any]:
        """Counters of this process's casts. See :meth:`rpcmq.Client.statistics`."""
        return await self.caller.bridge.run(self._client.statistics)

    async def purge(
        self, topic: Target, *, group: str = "", forget: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Have the router drop what waits for ``topic``. See :meth:`rpcmq.Client.purge`."""
        purge = self._client.purge
        return await self.caller.bridge.in_thread(purge, topic, group=group, forget=forget, timeout=timeout)

    async def kick(self, identity: str, timeout: float | None = None) -> int:
        """Have the router end the links of the process ``identity``. See :meth:`rpcmq.Client.kick`."""
        return await self.caller.bridge.in_thread(self._client.kick, identity, timeout)


@shown_as("Client")
class Client(BaseClient):
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
        given = {
            "router": router, "identity": identity, "exceptions": exceptions, "codec": codec, "options": options,
            "topic_options": topic_options, "middleware": middleware or None, **settings,
        }  # fmt: skip
        if others := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"give {', '.join(others)} to the client that is shared, or leave out client")
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
        traceparent: str | None = None,
    ) -> Any:
        """Ask one consumer of ``topic`` and wait for its answer. See :meth:`rpcmq.Client.call`.

        Args:
            ctx, topic, msg, timeout, idempotent, mandatory, sign_of_life, retry, direct, traceparent: as there.
            on_progress: called in the task with each value that the handler reports; may be ``async``.
        """
        if retry or self._layered:
            options = CallOptions(
                timeout=timeout, idempotent=idempotent, mandatory=mandatory, retry=retry, sign_of_life=sign_of_life,
                direct=direct,
            )  # fmt: skip
            return await self._through(OutgoingRequest("call", ctx, topic, msg, options, on_progress, traceparent))
        caller, flags = self.caller, flags_of(idempotent, mandatory)
        if direct:
            call = caller.call_directly
            return await call(ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent)
        return await caller.call(ctx, topic, msg, timeout, flags, sign_of_life, on_progress, traceparent)

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
        self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None = None
    ) -> AsyncIterator[Any]:
        """Ask one consumer; iterate with ``async for`` over what its generator yields, as it is yielded.

        The request is sent when the first item is asked for. The service goes at most a few items ahead of the
        iteration. Leaving the loop cancels the call, as does ``aclose()``.

        Args:
            timeout: longest wait for each item (seconds).
        """
        if not self._layered:
            return self._stream(ctx, topic, msg, timeout)
        return self._layered_stream(OutgoingRequest("multicall", ctx, topic, msg, CallOptions(timeout=timeout)))

    def _stream(self, ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None) -> Stream:
        caller = self.caller
        # Here, and not when the first item is asked for: misuse is to be raised where it is.
        caller.bridge.process.check_usable()
        seconds = caller.sender.seconds(timeout)
        caller.sender.address(topic)
        request_body(ctx, msg)

        async def start() -> Call:
            return await caller.start(_REQUEST, ctx, topic, msg, seconds, _STREAM)

        return Stream(caller, start)

    async def _layered_stream(self, request: OutgoingRequest) -> AsyncGenerator[Any]:
        async with aclosing(await self._through(request)) as items:
            async for item in items:
                yield item

    async def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: bool = False,
    ) -> int | None:
        """Publish an event, to topic ``notifications.<priority>.<event type>``. See :meth:`rpcmq.Client.notify`."""
        return await self.caller.bridge.in_thread(
            self._client.notify, ctx, event_type, payload, priority, publisher_id=publisher_id, confirm=confirm
        )

    async def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None:
        """Send ``payload`` to all who subscribe to ``topic``. See :meth:`rpcmq.Client.publish`."""
        return await self.caller.bridge.in_thread(self._client.publish, ctx, topic, payload, confirm=confirm)

    async def subscribe(self, pattern: str, handler: Handler, *, window: int = 1000) -> Subscription:
        """Have ``handler(ctx, topic, payload)`` called for each event whose topic matches ``pattern``.

        Args:
            pattern: as for :meth:`rpcmq.Client.subscribe`.
            handler: runs in one task of this event loop for all events of this subscription, in order, in the context
                of the caller. It may be ``async``; one that is not must not block.
            window: events that may be on their way to here at once.

        Returns:
            The subscription; ``await close()`` ends it, as does the end of the event loop, and ``lost`` counts events
            lost because this subscriber was too slow.

        Raises:
            UsageError: a wrong argument.
            RouterUnreachable: there is no router.
        """
        if not callable(handler):
            raise UsageError(f"handler must be callable, not {short_repr(handler)}")
        bridge = self.caller.bridge
        new = partial(Subscription, bridge, bridge.port(), handler, copy_context())
        return await bridge.in_thread(self._subscribed, pattern, new, window, undo=Subscription.end)

    def _subscribed(
        self, pattern: str, new: Callable[[SubscriptionOwner, Housed, str], Subscription], window: int
    ) -> Subscription:
        return self._client.subscriber().subscribe(self._client, pattern, new, window)

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
                return await caller.call(*message, timeout, flags, options.sign_of_life, progress, trace)
            case "multicall":
                return self._stream(*message, timeout)
            case "cast":
                return await caller.cast(*message, flags, options.confirm, options.ttl, timeout, trace)
            case "fanout_cast":
                return await caller.cast(*message, _FANOUT, options.confirm, None, timeout, trace)
