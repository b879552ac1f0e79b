"""The requests of a connection as they run: each in a greenlet of its own, by the gateway's client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gevent
from gevent.event import Event

from rpcmq import Address, Client
from rpcmq.errors import CallTimeout
from rpcmq.gateway.messages import Request
from rpcmq.gateway.subscriptions import Listener, SharedSubscriptions
from rpcmq.gateway.tokens import Token

__all__ = ["Operations", "Requester"]


class Requester(Listener, Protocol):
    """A connection whose requests run."""

    @property
    def token(self) -> Token | None:
        """Its token; None: it has not said hello."""

    def result(self, number: int, value: Any) -> None:
        """A request has ended with ``value``, or a subscription was made."""

    def end(self, number: int) -> None:
        """A stream has no more items."""

    def failed(self, number: int, error: BaseException) -> None:
        """A request has ended with ``error``."""

    def item(self, number: int, value: Any) -> None:
        """A stream has an item; waits while the browser takes nothing."""

    def progress(self, number: int, value: Any) -> None:
        """A call reports its progress."""


class _Operation:
    """A request that runs."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.greenlet: Any = None
        #: Items of a stream that the browser has asked for.
        self.credit = request.credit
        self.granted = Event()
        #: Ends a subscription.
        self.leave: Callable[[], None] | None = None


class Operations:
    """Does what the requests of one connection ask for.

    Args:
        client: of the gateway.
        exchange: of a request that names none.
        call_seconds, max_call_seconds: default and bound of the timeout.
    """

    def __init__(
        self,
        client: Client,
        subscriptions: SharedSubscriptions,
        exchange: str,
        call_seconds: float,
        max_call_seconds: float,
    ) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self._exchange = exchange
        self._call_seconds = min(call_seconds, max_call_seconds)
        self._max_call_seconds = max_call_seconds
        self._running: dict[int, _Operation] = {}

    def start(self, requester: Requester, request: Request) -> None:
        """Do ``request``; ``requester`` is told how it ends."""
        operation = self._running[request.id] = _Operation(request)
        operation.greenlet = gevent.spawn(self._run, requester, operation)

    def grant(self, number: int, count: int) -> None:
        """Let a stream have more items."""
        operation = self._running.get(number)
        if operation is not None:
            operation.credit = min(operation.credit + count, 1 << 20)
            operation.granted.set()

    def stop(self, number: int) -> None:
        """Stop a request: it is cancelled at its service; nobody is told."""
        operation = self._running.pop(number, None)
        if operation is None:
            return
        if operation.leave is not None:
            operation.leave()
        if operation.greenlet is not gevent.getcurrent():
            operation.greenlet.kill(block=False)

    def _run(self, requester: Requester, operation: _Operation) -> None:
        request = operation.request
        try:
            match request.op:
                case "call":
                    requester.result(request.id, self._call(requester, request))
                case "stream":
                    self._stream(requester, operation)
                    requester.end(request.id)
                case "subscribe":
                    leave = self._subscriptions.add(request.topic, requester, request.id)
                    if self._running.get(request.id) is not operation:
                        leave()  # it was stopped in the moment in which the router confirmed
                        return
                    operation.leave = leave
                    requester.result(request.id, None)
                    return
                case _:
                    requester.result(request.id, self._send(requester, request))
        except gevent.GreenletExit:
            raise
        except BaseException as error:
            requester.failed(request.id, error)
        if self._running.get(request.id) is operation:
            del self._running[request.id]

    def _call(self, requester: Requester, request: Request) -> Any:
        return self._client.call(
            _context(requester, request),
            self._address(request),
            _message(request),
            self._seconds(request),
            idempotent=request.idempotent,
            mandatory=request.mandatory,
            on_progress=(lambda value: requester.progress(request.id, value)) if request.progress else None,
        )

    def _send(self, requester: Requester, request: Request) -> Any:
        context = _context(requester, request)
        if request.op == "publish":
            return self._client.publish(context, request.topic, request.payload, confirm=request.confirm)
        address, message, seconds = self._address(request), _message(request), self._seconds(request)
        if request.op == "fanout":
            return self._client.fanout_cast(context, address, message, confirm=request.confirm, timeout=seconds)
        self._client.cast(
            context,
            address,
            message,
            confirm=request.confirm or request.mandatory,
            idempotent=request.idempotent,
            mandatory=request.mandatory,
            ttl=request.ttl,
            timeout=seconds,
        )
        return None

    def _stream(self, requester: Requester, operation: _Operation) -> None:
        request = operation.request
        items: Any = self._client.multicall(
            _context(requester, request),
            self._address(request),
            _message(request),
            self._seconds(request),
            mandatory=request.mandatory,
        )
        try:
            for item in items:
                self._wait_for_credit(operation)
                requester.item(request.id, item)
                operation.credit -= 1
        finally:
            items.close()

    def _wait_for_credit(self, operation: _Operation) -> None:
        while operation.credit <= 0:
            operation.granted.clear()
            if not operation.granted.wait(self._max_call_seconds):
                text = f"the browser has asked for no item within times.max_call_seconds = {self._max_call_seconds:g}"
                raise CallTimeout(text, {"topic": operation.request.topic})

    def _address(self, request: Request) -> Address:
        return Address(request.topic, "", request.exchange or self._exchange)

    def _seconds(self, request: Request) -> float:
        return min(self._call_seconds if request.timeout is None else request.timeout, self._max_call_seconds)


def _message(request: Request) -> dict[str, Any]:
    return {"method": request.method, "args": request.args}


def _context(requester: Requester, request: Request) -> Mapping[str, Any] | None:
    """The context of a request: what it brings, where its token lets it, and over that what the token says."""
    assert requester.token is not None
    merged = {**(request.context or {}), **requester.token.context}
    return merged or None
