"""Listeners: subscriptions whose messages are pushed to a server of oslo.messaging, one by one or in batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from oslo_messaging import MessagingException
from oslo_messaging._drivers.base import Listener
from oslo_messaging.server import MessageHandlingServer

from rpcmq import Address
from rpcmq.adapters.serving import KEPT, IncomingMessage, MessageConsumer
from rpcmq.errors import AccessDenied, RouterUnreachable, RpcError, UsageError
from rpcmq_oslo.connections import FOREVER, SharedConnection
from rpcmq_oslo.failures import RefusedByRouter
from rpcmq_oslo.incoming import Incoming
from rpcmq_oslo.put_back import PutBack
from rpcmq_oslo.server_workers import workers_of

__all__ = ["RpcmqListener"]

LOG = logging.getLogger(__name__)

#: Seconds of an attempt to register.
_ATTEMPT: Final = 30.0
#: Longest wait for what is unanswered when everything is released (seconds).
_RELEASED_WITHIN: Final = 5.0
#: Most credit that a consumer can have.
_MOST_CREDIT: Final = 65_535


class RpcmqListener(Listener):
    """Consumes addresses, and hands what comes to a server.

    It is registered when it is made; what comes before :meth:`start` waits. The router delivers for each address no
    more messages than workers can run at once: calls that are not answered, casts whose method has not returned,
    notifications that are not acknowledged.

    Args:
        connection: a use of the connection for this listener alone, which it releases.
        addresses: consumed.
        workers: how many there are, unless :meth:`start` is told of others.
        pool: consume as a member of this group; empty: as the topic's own listener.
        batch_size: messages handed over to a worker at once, at most.
        batch_timeout: seconds for which a batch that is not full waits; None: for ever.
        acknowledged_first: messages are acknowledged before they are run.

    Raises:
        RefusedByRouter: this process may not listen there.
        MessagingException: no pool can be called so.
    """

    def __init__(
        self,
        connection: SharedConnection,
        addresses: Sequence[Address],
        *,
        workers: int,
        pool: str = "",
        batch_size: int = 1,
        batch_timeout: float | None = None,
        acknowledged_first: bool = False,
    ) -> None:
        # Not more than a router delivers, of which no batch would ever be full.
        super().__init__(min(batch_size, _MOST_CREDIT), batch_timeout)
        self._connection = connection
        self._addresses, self._pool, self._workers = tuple(addresses), pool, workers
        self._acknowledged_first = acknowledged_first
        self._put_back = PutBack(self._add)
        # The callback is called with it: after stop() it is not. It may end in here again.
        self._lock = threading.RLock()
        self._waiting: list[Incoming] = []
        self._timer: threading.Timer | None = None
        self._stopped = False
        self._consumers: list[MessageConsumer] = []
        #: Consumers that have left since, and may have something to answer.
        self._former: list[MessageConsumer] = []
        with ExitStack() as undo:
            undo.callback(self.cleanup)
            connection.connect(FOREVER)
            self._register()
            undo.pop_all()

    def start(self, on_incoming_callback: Callable[[list[Incoming]], None]) -> None:
        """Hand over what comes, and what has come, as much as the server that is called has workers for."""
        workers = workers_of(on_incoming_callback)
        if workers is not None and workers != self._workers:
            self._workers = workers
            self._register_anew()
        with self._lock:
            super().start(on_incoming_callback)
            self._hand_over()

    def stop(self) -> None:
        """Take no more, and hand over what has come; it can be answered still."""
        for consumer in self._consumers:
            consumer.leave()
        with self._lock:
            self._hand_over(is_last=True)
            self._stopped = True
            super().stop()
        self._put_back.stop()

    def cleanup(self) -> None:
        """Release everything; to be called when all has been answered. To call it again does nothing."""
        consumers, self._consumers, self._former = [*self._former, *self._consumers], [], []
        self._stopped = True
        self._put_back.stop()
        waiting, self._waiting = self._waiting, []
        for incoming in waiting:
            self._add(incoming)
        for consumer in consumers:
            consumer.stop(_RELEASED_WITHIN)
        self._connection.release()

    def _register(self) -> None:
        """Have the router deliver.

        Raises:
            RefusedByRouter: this process may not listen there.
            MessagingException: no pool can be called so.
        """
        for address in self._addresses:
            consumer = self._new_consumer(address)
            _start(consumer, address, self._connection)
            self._consumers.append(consumer)

    def _new_consumer(self, address: Address) -> MessageConsumer:
        try:
            return MessageConsumer(
                self._connection.client,
                address,
                self._take,
                concurrency=min(self._workers * self.batch_size, _MOST_CREDIT),
                group=self._pool,
                beats=False,
                begun_when_settled=self._acknowledged_first,
                is_prompt=self._is_prompt,
            )
        except UsageError as error:
            raise MessagingException(f"cannot listen to {address} for pool {self._pool!r:.80}: {error}") from error

    def _register_anew(self) -> None:
        """Register with the credit that fits the number of workers; what has come before is for whoever is free."""
        for consumer in self._consumers:
            consumer.leave()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        # Not what is this server's alone: copies of fanouts.
        left = [incoming for incoming in waiting if not incoming.give_back()]
        with self._lock:
            self._waiting[:0] = left
        self._former += self._consumers
        self._consumers = []
        self._register()

    def _take(self, message: IncomingMessage) -> Any:
        """Take a message from its consumer, in one of that one's threads, or the thread of the sockets."""
        self._add(Incoming(message, self._put_back.put, self._acknowledged_first))
        return KEPT

    def _is_prompt(self) -> bool:
        """Return whether the callback only queues what it is given, as that of oslo.messaging's own servers does."""
        return getattr(self.on_incoming_callback, "__func__", None) is MessageHandlingServer._on_incoming

    def _add(self, incoming: Incoming) -> None:
        with self._lock:
            if not self._stopped:
                self._waiting.append(incoming)
                self._hand_over()
                return
        if incoming.give_back():
            return
        # Of a cast a router of an earlier version hears when the connection ends, and gives it to another listener.
        LOG.warning("message %s has come after its listener was stopped, and is not run here", incoming.msg_id)
        incoming.reply(failure=(RuntimeError, RuntimeError("it was not begun: the server was stopped"), None))

    def _hand_over(self, is_last: bool = False) -> None:
        """Hand over full batches, or everything; the rest waits for its time. To be called with the lock."""
        callback, size = self.on_incoming_callback, self.batch_size
        if callback is None:
            return
        least = 1 if is_last else size
        while len(self._waiting) >= least:
            batch = self._waiting[:size]
            del self._waiting[:size]
            self._end_timer()
            callback(batch)
        if self._waiting and self._timer is None and self.batch_timeout is not None:
            self._timer = threading.Timer(self.batch_timeout, self._end_wait)
            self._timer.daemon = True
            self._timer.start()

    def _end_wait(self) -> None:
        """The batch that is not full has waited for its time."""
        with self._lock:
            self._timer = None
            self._hand_over(is_last=True)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _start(consumer: MessageConsumer, address: Address, connection: SharedConnection) -> None:
    """Register ``consumer``, however long it takes until a router is there.

    Raises:
        RefusedByRouter: it is not taken.
    """
    while True:
        try:
            consumer.start(_ATTEMPT)
            return
        except RouterUnreachable as error:
            LOG.warning("cannot listen to %s yet: %s; still trying", address, error)
        except AccessDenied as error:
            raise RefusedByRouter(str(error)) from error
        except RpcError as error:
            routers = ", ".join(connection.routers)
            raise RefusedByRouter(f"cannot listen to {address} at {routers}: {error}") from error
