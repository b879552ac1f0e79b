"""A service over a client: its start, and its end."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from rpcmq.client.methods import check_endpoint
from rpcmq.client.router_consumers import new_consumer
from rpcmq.client.served_methods import ServedMethods, check_context
from rpcmq.client.shared_client import refuse_beside_a_client
from rpcmq.client.shown_names import shown_as
from rpcmq.client.verbs import ClientVerbs
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.home import Home
from rpcmq.wire import Address

__all__ = ["BaseService"]

#: Requests that run at once, if nothing is said: in greenlets, and in threads.
_GREENLETS, _THREADS = 64, 16


@shown_as("Service")
class BaseService(ABC):
    """A service over a client, wherever that lives.

    Args:
        client: the connection to serve over; None: one of its own, as ``_new_client`` makes it.
        settings: for that; nothing where ``client`` is given.
        topic, endpoint, host, exchange, concurrency, context, drain_seconds, direct, group: as for
            :class:`rpcmq.Service`.

    Raises:
        UsageError: a wrong argument.
    """

    def __init__(
        self,
        topic: str,
        endpoint: Any,
        client: ClientVerbs | None,
        settings: Mapping[str, Any],
        *,
        host: str | None,
        exchange: str | None,
        concurrency: int | None,
        context: Any,
        drain_seconds: float,
        direct: bool,
        group: str,
    ) -> None:
        check_context(context)
        check_endpoint(endpoint)
        if client is not None:
            self._check_client(client)
            refuse_beside_a_client(settings)
        self._own_client = client is None
        self.client = self._new_client(settings) if client is None else client
        self.shell = self.client.shell
        self.endpoint = endpoint
        self.host = socket.gethostname() if host is None else host
        if concurrency is None:
            concurrency = _GREENLETS if self.shell.outside is None else _THREADS
        exchange = self.client.config.exchange if exchange is None else exchange
        self.address = Address(topic, "" if group else self.host, exchange)
        methods = ServedMethods(endpoint, self.address, self.host, self.client, context)
        self._consumer = self.home.run(
            new_consumer, self.client, self.address, methods.invoke, concurrency=concurrency, group=group, direct=direct
        )
        self._drain_seconds = drain_seconds
        self._stopping = False
        self._stopped = self.shell.event()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address} by {type(self.endpoint).__qualname__}, {self.client!r}>"

    def _check_client(self, client: ClientVerbs) -> None:
        """Raise unless the service can be served over ``client``.

        Raises:
            UsageError: it cannot.
        """
        if not isinstance(client, ClientVerbs):
            raise UsageError(f"client must be a Client, not {short_repr(client)}")

    @abstractmethod
    def _new_client(self, settings: Mapping[str, Any]) -> ClientVerbs:
        """Make the client of a service that was given none."""

    # --- lifecycle --------------------------------------------------------------------------------

    @property
    def home(self) -> Home:
        """The home of the service."""
        return self.client.home

    def start(self, timeout: float = 30.0) -> None:
        """Register; returns when the router will deliver.

        Args:
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable: there is no router.
            IdentityTaken: another live process has this identity.
            CallError: the router refuses the registration.
            UsageError: it was started already.
        """
        if self.shell.is_current:
            self._consumer.start(timeout)
        else:
            self.home.run_or_undo(lambda _: self._consumer.take_back(), self._consumer.start, timeout)

    def stop(self, timeout: float | None = None) -> bool:
        """Take no more, let what runs finish, and leave.

        Args:
            timeout: seconds to wait for what runs; default: ``drain_seconds``.

        Returns:
            Whether all that ran has finished.
        """
        return self._stop(timeout) if self.shell.is_current else self.home.end(self._stop, timeout)

    def _stop(self, timeout: float | None) -> bool:
        if self._stopping:
            return self._stopped.wait(timeout)
        self._stopping = True
        linger_seconds: float | None = 0.0
        try:
            finished = self._consumer.stop(self._drain_seconds if timeout is None else timeout)
            # Do not wait again for a router that has just been silent for as long as that.
            linger_seconds = 0.0 if self._consumer.unanswered else None
        finally:
            try:
                if self._own_client:
                    self.client.close(linger_seconds)
            finally:
                self._stopped.set()
        return finished

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
