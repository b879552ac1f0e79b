"""A service whose methods run in an event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Self, Unpack

from rpcmq.aio.bridge import ThreadPool, running_loop
from rpcmq.aio.client import Client
from rpcmq.aio.consumer import LoopConsumer
from rpcmq.aio.loop_port import LoopPort
from rpcmq.aio.turns import Turns
from rpcmq.client.methods import check_endpoint
from rpcmq.client.router_consumers import RouterConsumers
from rpcmq.client.router_links import ServingLink
from rpcmq.client.served_methods import ServedMethods, check_context
from rpcmq.client.shared_client import refuse_beside_a_client
from rpcmq.client.stop_signals import STOP_SIGNALS, on_stop_signal, tell_what_runs
from rpcmq.client.verbs import ClientVerbs
from rpcmq.config import ConnectionSettings
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire import Address

__all__ = ["Service"]


class Service:
    """Serves the public methods of ``endpoint`` on a topic, in the event loop that starts it.

    An ``async`` method is called as ``await method(ctx, **args)`` in a task of its own. Any other runs in a thread, so
    that it cannot hold up the event loop. Async generators, and those of plain functions, are streams, which callers
    ask for with ``multicall``; they go at most a few items ahead of the caller. A request whose caller has given up
    goes on: its method can ask ``rpcmq.current_request().cancelled``.

    Args:
        topic, endpoint, host, router, identity, exchange, context, drain_seconds, direct, group, settings: as for
            :class:`rpcmq.Service`.
        client: serve over the connection of this :class:`rpcmq.aio.Client` rather than one of its own;
            then neither router, identity nor settings are given.
        concurrency: how many requests run at once; more wait in the router. So many threads run plain methods.

    Raises:
        ConfigError: a wrong setting.
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        topic: str,
        endpoint: Any,
        *,
        host: str | None = None,
        router: str | Sequence[str] | None = None,
        identity: str | None = None,
        client: Client | None = None,
        exchange: str | None = None,
        concurrency: int = 64,
        context: Any = None,
        drain_seconds: float = 30.0,
        direct: bool = False,
        group: str = "",
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        check_context(context)
        check_endpoint(endpoint, may_be_async=True)
        if client is not None:
            _check_client(client, {"router": router, "identity": identity, **settings})
        self._own_client = client is None
        self.client = Client(router, identity, **settings) if client is None else client
        self.endpoint = endpoint
        self.host = socket.gethostname() if host is None else host
        exchange = self.client.config.exchange if exchange is None else exchange
        self.address = Address(topic, "" if group else self.host, exchange)
        self._bridge = self.client.caller.bridge
        methods = ServedMethods(endpoint, self.address, self.host, self.client, context)
        self._threads = ThreadPool(self._bridge.process, concurrency, inside=False)
        self._concurrency = concurrency
        make = partial(
            LoopConsumer, self._bridge, methods, self._threads, address=self.address, concurrency=concurrency,
            group=group, direct=direct,
        )  # fmt: skip
        self._consumer = _at_each_router(self.client.threads, self.address, make)
        self._drain_seconds = drain_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[bool] | None = None
        self._stopped = asyncio.Event()

    def __repr__(self) -> str:
        return f"<rpcmq.aio.Service of {self.address} by {type(self.endpoint).__qualname__}, {self.client!r}>"

    async def start(self, timeout: float = 30.0) -> None:
        """Register; returns when the router will deliver. Methods run in this event loop, and in this context.

        Args:
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable: there is no router.
            IdentityTaken: another live process has this identity.
            CallError: the router refuses the registration.
            UsageError: it was started already.
        """
        if self._loop is not None:
            raise UsageError(f"the service on {self.address} was started already")
        self._loop = running_loop()
        port = self._bridge.port()
        attached = self._attach(port)
        try:
            await self._bridge.in_thread(self._consumer.start, timeout, undo=lambda _: self._consumer.stop(0.0))
        except BaseException:
            self._loop = None
            for consumer in attached:
                consumer.detach()
            raise

    def _attach(self, port: LoopPort) -> list[LoopConsumer]:
        consumer, context = self._consumer, copy_context()
        if isinstance(consumer, LoopConsumer):
            consumer.attach(port, context, None)
            return [consumer]
        turns = Turns(self._concurrency)
        for each in consumer.members:
            each.attach(port, context, turns.share())
        return consumer.members

    async def stop(self, timeout: float | None = None) -> bool:
        """Take no more, let what runs finish, and leave.

        Args:
            timeout: seconds to wait for what runs; default: ``drain_seconds``.

        Returns:
            Whether all that ran has finished.
        """
        self._check_loop()
        if self._stopping is None:
            seconds = self._drain_seconds if timeout is None else timeout
            # A task of its own: it goes on where the one that waits for it is cancelled.
            self._stopping = asyncio.get_running_loop().create_task(self._stop(seconds))
        return await asyncio.shield(self._stopping)

    async def _stop(self, seconds: float) -> bool:
        try:
            finished = await self._bridge.in_thread(self._consumer.stop, seconds)
            self._detach()
            if self._own_client:
                # Do not wait again for a router that has just been silent for as long as that.
                await self.client.close(0.0 if self._consumer.unanswered else None)
        finally:
            self._stopped.set()
        return finished

    def _detach(self) -> None:
        self._threads.close()
        for each in [self._consumer] if isinstance(self._consumer, LoopConsumer) else self._consumer.members:
            each.detach()

    def _check_loop(self) -> None:
        if self._loop is not None and running_loop() is not self._loop:
            raise UsageError(f"the service on {self.address} was started in another event loop: stop it there")

    async def wait(self) -> None:
        """Wait until the service has stopped. SIGTERM and SIGINT stop it (in the main thread of a program).

        What runs may finish; the log says what that is. A second signal ends the process at once.
        """
        loop = running_loop()
        before: dict[int, Any] = {}
        come = on_stop_signal(self._stop_soon)
        try:
            for number in STOP_SIGNALS:
                handler = signal.getsignal(number)
                loop.add_signal_handler(number, come, number)
                before[number] = handler
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # not the main thread, or a system whose event loops have no signals
        try:
            await self._stopped.wait()
        finally:
            for changed, handler in before.items():
                loop.remove_signal_handler(changed)
                signal.signal(changed, handler)

    def _stop_soon(self) -> None:
        if self._stopping is None:
            tell_what_runs(self._consumer, self._drain_seconds)
            self._stopping = running_loop().create_task(self._stop(self._drain_seconds))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def _check_client(client: Client, given: Mapping[str, Any]) -> None:
    if not isinstance(client, Client):
        raise UsageError(f"client must be an rpcmq.aio.Client, not {short_repr(client)}")
    refuse_beside_a_client(given)


def _at_each_router(
    client: ClientVerbs, address: Address, make: Callable[[ServingLink], LoopConsumer]
) -> LoopConsumer | RouterConsumers[LoopConsumer]:
    """Make a consumer over ``client``, or over a link of it to each of several routers."""
    if len(client.config.router) == 1:
        return make(client)
    return client.home.run(RouterConsumers, client, address, make, lambda: None)
