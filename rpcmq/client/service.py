"""The serving side: an endpoint's public methods, run for the calls and casts of a topic."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import socket
import types
from collections.abc import Callable
from time import monotonic
from typing import Any, Self

import gevent
from gevent import get_hub
from gevent.event import Event

from rpcmq.client.client import Client
from rpcmq.client.request import Request, set_current_request
from rpcmq.client.workers import Workers
from rpcmq.core.caller import Call
from rpcmq.core.serving import Registration, Task
from rpcmq.errors import CallError, Outcome, PayloadError, UnknownMethod, UsageError
from rpcmq.payload import Format
from rpcmq.wire import Address, Flag, Kind

__all__ = ["Service"]

log = logging.getLogger("rpcmq.service")

_BUILTIN = "rpcmq."
#: How long a service that stops waits for the router to know (seconds); the router may be gone.
_UNREGISTER = 2.0


class Service:
    """Serves the public methods of ``endpoint`` on a topic.

    A method is called as ``method(ctx, **args)`` in a greenlet of its own. What it returns, yields or
    raises goes back to the caller. Names that begin with an underscore are not served.

    Args:
        topic: what is served, for example ``"compute"``.
        endpoint: any object with methods.
        host: name of this server: ``"<topic>.<host>"`` is its own topic. Default: the host's name.
        router: url of the router; default as for :class:`Client`.
        identity: name of this process; default as for :class:`Client`.
        client: serve over this client's connection rather than one of its own.
        exchange: namespace of the topic; default: the client's.
        concurrency: how many requests run at once; more wait in the router.
        context: class with ``from_dict()`` that request contexts are made into; default: plain dict.
        drain_seconds: how long :meth:`stop` waits for what runs.
        direct: also listen for direct calls, which do not pass the router.
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
        **settings: Any,
    ) -> None:
        if not 1 <= concurrency <= 65535:
            raise UsageError(f"concurrency must be 1 to 65535, not {concurrency!r}")
        if context is not None and not callable(getattr(context, "from_dict", None)):
            raise UsageError(f"context {context!r} has no from_dict()")
        self._own_client = client is None
        self.client = client or Client(router, identity, **settings)
        self.endpoint = endpoint
        self.host = socket.gethostname() if host is None else host
        exchange = self.client.config.exchange if exchange is None else exchange
        self.address = Address(topic, self.host, exchange)
        self.address.encode()
        self._concurrency = concurrency
        self._context = context
        self._drain_seconds = drain_seconds
        self._direct = direct
        self._methods: dict[str, Callable[..., Any]] = {}
        self._workers: Workers[Task] = Workers(self._run)
        self._registration: Registration | None = None
        self._stopping = False
        self._idle = Event()
        self._stopped = Event()

    # --- life --------------------------------------------------------------------------------

    def start(self, timeout: float = 30.0) -> None:
        """Register; returns when the router will deliver.

        Args:
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable: there is no router.
            IdentityTaken: another live process has this identity.
            CallError: the router refuses the registration.
        """
        if self._registration is not None:
            raise UsageError("this service was started already")
        process = self.client.process
        self.client.connect(timeout)
        peer_url = process.direct.listen() if self._direct else ""
        tag = process.serving.free_tag()
        registration = Registration(tag, self.address, self._concurrency, peer_url, self._on_task)
        self._registration = registration
        try:
            self._ask(process.serving.register(monotonic(), registration, timeout))
        except BaseException:
            process.serving.remove(registration)
            self._registration = None
            raise

    def wait(self) -> None:
        """Wait until the service has stopped. SIGTERM and SIGINT stop it (in the main greenlet of a program)."""
        watchers = [gevent.signal_handler(n, self._stop_soon) for n in (signal.SIGTERM, signal.SIGINT)]
        try:
            self._stopped.wait()
        finally:
            for watcher in watchers:
                watcher.cancel()

    def _stop_soon(self) -> None:
        gevent.spawn(self.stop)

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more, let what runs finish, and leave.

        Args:
            timeout: seconds to wait for what runs; default: ``drain_seconds``.

        Returns:
            Whether all that ran has finished.
        """
        registration = self._registration
        if self._stopping:
            return self._stopped.wait(timeout)
        self._stopping = True
        if registration is None:
            self._leave()
            return True
        process = self.client.process
        deadline = monotonic() + (self._drain_seconds if timeout is None else timeout)
        if process.connection.connected:
            try:
                patience = max(0.1, min(_UNREGISTER, deadline - monotonic()))
                self._ask(process.serving.unregister(monotonic(), registration, patience))
            except CallError as error:
                log.warning("%s: could not unregister: %s", self.address, error)
        if registration.running:
            self._idle.wait(max(0.0, deadline - monotonic()))
        finished = not registration.running
        process.serving.remove(registration)
        self._leave()
        return finished

    def _leave(self) -> None:
        if self._own_client:
            self.client.close()
        self._stopped.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _ask(self, call: Call) -> None:
        process = self.client.process
        process.connection.schedule()
        process.wait(call)
        if call.error is not None:
            raise call.error

    # --- tasks -------------------------------------------------------------------------------

    def _on_task(self, task: Task) -> None:
        """Called in the hub: the handler runs until it first waits, in a greenlet of its own."""
        self._workers.start(task)

    def _run(self, task: Task) -> None:
        process = self.client.process
        set_current_request(task, self._send_progress)
        keepalive = None
        try:
            body = process.codec.decode(task.format, task.payload)
            if type(body) is not dict:
                raise UsageError(f"the payload must be a mapping with context and args, not {type(body).__name__}")
            if task.is_call and "keepalive" in body:
                keepalive = self._keep_alive(task, float(body["keepalive"]))
            result = self._invoke(task.method, body)
            if isinstance(result, types.GeneratorType):
                self._stream(task, result)
            elif task.is_call:
                form, payload = process.encode(result, accepted_by(task))
                process.serving.answer(monotonic(), task, Kind.REPLY, form, payload)
            else:
                process.serving.settle(monotonic(), task, Outcome.OK)
        except BaseException as error:
            self._failed(task, error)
            # Anything else, such as a gevent.Timeout, has been reported to the caller and ends here.
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                raise
        finally:
            if keepalive is not None:
                keepalive.stop()
                keepalive.close()
            process.schedule()
            process.start_soon()
            if self._stopping and self._registration is not None and not self._registration.running:
                self._idle.set()

    def _invoke(self, name: str, body: dict[str, Any]) -> Any:
        ctx, args = body.get("context"), body.get("args") or {}
        if self._context is not None and ctx is not None:
            ctx = self._context.from_dict(ctx)
        method = self._methods.get(name) or self._method(name)
        return method(ctx, **args)

    def _method(self, name: str) -> Callable[..., Any]:
        builtin = {"rpcmq.describe": self._describe, "rpcmq.ping": self._ping}
        method = builtin.get(name) if name.startswith(_BUILTIN) else None
        if method is None and not name.startswith("_"):
            found = getattr(self.endpoint, name, None)
            if callable(found) and not isinstance(found, type):
                method = found
        if method is None:
            raise UnknownMethod(f"{self.address.topic!r} has no public method {name!r} (on {self.address})")
        self._methods[name] = method
        return method

    def _failed(self, task: Task, error: BaseException) -> None:
        process = self.client.process
        if not task.is_call:
            log.error("cast %s to %s failed", task.method, self.address, exc_info=error)
            process.serving.settle(monotonic(), task, Outcome.REMOTE_ERROR)
            return
        if isinstance(error, PayloadError):
            log.error("%s on %s: the result cannot be encoded: %s", task.method, self.address, error)
        form, payload = process.codec.encode_exception(error, accepted_by(task), process.identity)
        process.serving.answer(monotonic(), task, Kind.FAULT, form, payload)

    # --- streams, progress, keep-alives ------------------------------------------------------

    def _stream(self, task: Task, items: types.GeneratorType[Any, None, None]) -> None:
        process = self.client.process
        request = Request(task, self._send_progress)
        streaming = task.is_call and task.flags & Flag.STREAM
        changed = Event()
        task.on_change = changed.set
        last: Any = None
        accepted = accepted_by(task)
        try:
            for item in items:
                if not streaming:
                    last = item
                    continue
                while task.grants <= 0 and not request.cancelled:
                    changed.clear()
                    changed.wait(1.0)
                if request.cancelled:
                    break
                form, payload = process.encode(item, accepted)
                process.serving.send_item(task, Kind.ITEM, form, payload)
                process.schedule()
        finally:
            task.on_change = None
            items.close()
        if streaming:
            process.serving.answer(monotonic(), task, Kind.END, Format.JSON, b"")
        elif task.is_call:
            form, payload = process.encode(last, accepted)
            process.serving.answer(monotonic(), task, Kind.REPLY, form, payload)
        else:
            process.serving.settle(monotonic(), task, Outcome.OK)

    def _send_progress(self, task: Task, value: Any) -> None:
        if not task.is_call:
            return
        process = self.client.process
        form, payload = process.encode(value, accepted_by(task))
        process.serving.send_item(task, Kind.ALIVE, form, payload)
        process.schedule()

    def _keep_alive(self, task: Task, seconds: float) -> Any:
        process = self.client.process

        def beat() -> None:
            process.serving.send_item(task, Kind.ALIVE, Format.JSON, b"")
            process.schedule()

        timer = get_hub().loop.timer(max(0.05, seconds), max(0.05, seconds))
        timer.start(beat)
        return timer

    # --- built in ----------------------------------------------------------------------------

    def _ping(self, ctx: Any) -> dict[str, Any]:
        return {"identity": self.client.identity, "pid": os.getpid(), "server": self.host}

    def _describe(self, ctx: Any) -> dict[str, Any]:
        methods = []
        for name in sorted(dir(self.endpoint)):
            found = getattr(self.endpoint, name, None)
            if name.startswith("_") or not callable(found) or isinstance(found, type):
                continue
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


_JSON = Format.JSON.bit
_PICKLE = Format.PICKLE.bit
_DILL = Format.DILL.bit


def accepted_by(task: Task) -> int:
    """Formats that the caller of ``task`` decodes: the one it used, JSON, and dill if it says so."""
    accepted = _JSON | 1 << task.format
    # Who loads dill loads pickle.
    return accepted | _DILL | _PICKLE if task.flags & Flag.ACCEPTS_DILL else accepted
