"""The serving side: an endpoint's public methods, run for the calls and casts of a topic."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

import gevent
from gevent.event import Event

from rpcmq.client.client import Client
from rpcmq.client.consumer import Consumer
from rpcmq.client.methods import check_endpoint, find_method, public_methods
from rpcmq.core.process.task import Task
from rpcmq.errors import UnknownMethod, UsageError
from rpcmq.payload.remote_exception import not_run
from rpcmq.transport.home import Home, at_home
from rpcmq.wire import Address

__all__ = ["Service"]

_BUILTIN = "rpcmq."


class Service:
    """Serves the public methods of ``endpoint`` on a topic.

    A method is called as ``method(ctx, **args)`` in a greenlet of its own: in an OS thread of its own where the
    service uses a ``client`` that lives in a background thread, or ``RPCMQ_SHELL=threads`` asks for that. What it
    returns, yields or raises, also ``SystemExit``, goes back to the caller. Names that begin with an underscore are
    not served.

    A method that yields, or returns an iterator, is a stream: callers ask for it with ``multicall``. A ``call`` of it
    raises, and makes none of its items; a cast runs it to its end. ``async`` methods are refused.

    Args:
        topic: what is served, for example ``"compute"``.
        endpoint: any object with methods. Of a module: its own functions, not those it imports, or what its
            ``__all__`` names.
        host: name of this server: ``"<topic>.<host>"`` is its own topic. Default: the host's name.
        router: url of the router; default as for :class:`Client`.
        identity: name of this process; default as for :class:`Client`.
        client: serve over this client's connection rather than one of its own.
        exchange: namespace of the topic; default: the client's.
        concurrency: how many requests run at once; more wait in the router.
        context: class with ``from_dict()`` that request contexts are made into; default: plain dict.
        drain_seconds: how long :meth:`stop` waits for what runs.
        direct: also listen for direct calls, which do not pass the router.
        group: serve a group of the topic, which gets its own copy of each message, for one of the
            group's services to run; it has no own topic of this server. A call has one answer: that of
            the topic's own services where there are any, else of the group that was first.
        settings: further settings of the client.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        topic: str,
        endpoint: Any,
        *,
        host: str | None = None,
        router: str | None = None,
        identity: str | None = None,
        client: Client | None = None,
        exchange: str | None = None,
        concurrency: int = 64,
        context: Any = None,
        drain_seconds: float = 30.0,
        direct: bool = False,
        group: str = "",
        **settings: Any,
    ) -> None:
        if context is not None and not callable(getattr(context, "from_dict", None)):
            raise UsageError(f"context {context!r} has no from_dict()")
        check_endpoint(endpoint)
        self._own_client = client is None
        # A service is at home in gevent also in a program that has not used it yet: wait() runs the hub.
        shell = {"shell": os.environ.get("RPCMQ_SHELL", "gevent")}
        self.client = client or Client(router, identity, **(shell | settings))
        self.hub = self.client.hub
        self.endpoint = endpoint
        self.host = socket.gethostname() if host is None else host
        exchange = self.client.config.exchange if exchange is None else exchange
        self.address = Address(topic, "" if group else self.host, exchange)
        self._consumer = self.home.run(
            Consumer, self.client, self.address, self._invoke, concurrency=concurrency, group=group, direct=direct
        )
        self._context = context
        self._drain_seconds = drain_seconds
        self._methods: dict[str, Callable[..., Any]] = {}
        self._stopping = False
        self._stopped = Event()

    # --- lifecycle --------------------------------------------------------------------------------

    @property
    def home(self) -> Home:
        """The gevent hub that owns the service."""
        return self.client.home

    @at_home
    def start(self, timeout: float = 30.0) -> None:
        """Register; returns when the router will deliver.

        Args:
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable: there is no router.
            IdentityTaken: another live process has this identity.
            CallError: the router refuses the registration.
        """
        if self._consumer.started:
            raise UsageError("this service was started already")
        self._consumer.start(timeout)

    def wait(self) -> None:
        """Wait until the service has stopped. SIGTERM and SIGINT stop it (in the main thread of a program)."""
        if self.home.here:
            self._wait()
            return
        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, lambda number, frame: self.home.post(self.stop))
        try:
            self.home.run(self._stopped.wait)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait(self) -> None:
        watchers = [gevent.signal_handler(n, self._stop_soon) for n in (signal.SIGTERM, signal.SIGINT)]
        try:
            self._stopped.wait()
        finally:
            for watcher in watchers:
                watcher.cancel()

    def _stop_soon(self) -> None:
        gevent.spawn(self.stop)

    @at_home
    def stop(self, timeout: float | None = None) -> bool:
        """Take no more, let what runs finish, and leave.

        Args:
            timeout: seconds to wait for what runs; default: ``drain_seconds``.

        Returns:
            Whether all that ran has finished.
        """
        if self._stopping:
            return self._stopped.wait(timeout)
        self._stopping = True
        finished = self._consumer.stop(self._drain_seconds if timeout is None else timeout)
        if self._own_client:
            # Do not wait again for a router that has just been silent for as long as that.
            self.client.close(0.0 if self._consumer.unanswered else None)
        self._stopped.set()
        return finished

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- methods -----------------------------------------------------------------------------

    def _invoke(self, task: Task, body: dict[str, Any]) -> Any:
        name = task.method
        ctx, args = body.get("context"), body.get("args") or {}
        if self._context is not None and ctx is not None:
            ctx = self._context.from_dict(ctx)
        method = self._methods.get(name) or self._method(name)
        return method(ctx, **args)

    def _method(self, name: str) -> Callable[..., Any]:
        builtin = {"rpcmq.describe": self._describe, "rpcmq.ping": self._ping}
        method = builtin.get(name) if name.startswith(_BUILTIN) else None
        if method is None:
            method = find_method(self.endpoint, name)
        if method is None:
            raise not_run(UnknownMethod(f"{self.address.topic!r} has no public method {name!r} (on {self.address})"))
        self._methods[name] = method
        return method

    def _ping(self, ctx: Any) -> dict[str, Any]:
        return {"identity": self.client.identity, "pid": os.getpid(), "server": self.host}

    def _describe(self, ctx: Any) -> dict[str, Any]:
        methods = []
        for name, found in public_methods(self.endpoint):
            try:
                signature = str(inspect.signature(found))
            except (TypeError, ValueError):
                signature = "(...)"
            methods.append({"name": name, "signature": signature, "doc": inspect.getdoc(found) or ""})
        return {
            "topic": self.address.topic,
            "server": self.host,
            "endpoint": type(self.endpoint).__qualname__,
            "methods": methods,
        }
