"""Connections, consumers and publishers as Cactus to Diablo m3 had them, in the one module ``nova.rpc``.

They are made on the later connection. Programs and test bases replace them and their methods while they
run, so all are plain attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import gevent

import eventlet
from nova.rpc import amqp
from nova.rpc.common import Timeout, since
from nova.rpc.connection import Connection as _Connection

__all__ = [
    "AdapterConsumer",
    "Connection",
    "ConnectionPool",
    "Consumer",
    "ConsumerSet",
    "DirectConsumer",
    "DirectPublisher",
    "FanoutAdapterConsumer",
    "FanoutPublisher",
    "Pool",
    "Publisher",
    "TopicAdapterConsumer",
    "TopicPublisher",
    "msg_reply",
]

#: Longest wait for a message that is already queued (seconds).
_FETCH = 0.2


def msg_reply(msg_id: str, reply: Any = None, failure: Any = None, *others: Any, **kwargs: Any) -> None:
    """Reply to the call ``msg_id``. In Cactus there is one reply; in Diablo one of None says that there are no more."""
    if not since("diablo"):
        kwargs["ending"] = True
    amqp.msg_reply(msg_id, reply, failure, *others, **kwargs)


class Connection(_Connection):
    """A connection, one for the whole process unless a new one is asked for."""

    _instance: ClassVar[Connection | None] = None

    @classmethod
    def instance(cls, new: bool = True) -> Connection:
        """A new connection, or the one of the process."""
        if new or cls._instance is None:
            made = cls()
            if new:
                return made
            cls._instance = made
        return cls._instance

    @classmethod
    def recreate(cls) -> Connection:
        """The connection of the process, made anew."""
        if cls._instance is not None:
            cls._instance.close()
        cls._instance = None
        return cls.instance(new=False)


class Pool(amqp.Pool):
    """Connections for use again."""

    def create(self) -> Connection:
        """A new connection."""
        return Connection.instance(new=True)


ConnectionPool = Pool(order_as_stack=True)


class Consumer:
    """Takes messages from a queue and gives them to callbacks.

    Args:
        connection: where to consume; default: a new one.
    """

    def __init__(self, connection: Any = None, **others: Any) -> None:
        self.connection = connection or Connection.instance(new=True)
        self.callbacks: list[Callable[[Any, Any], Any]] = []
        self._calls_back = True
        self._last: _Message | None = None
        self._own = _Connection(getattr(self.connection, "conf", None))
        self._declare(self._own)

    def _declare(self, connection: _Connection) -> None:
        """Have ``connection`` consume what this one is for."""

    def serve_by(self, connection: _Connection) -> None:
        """Have ``connection`` serve it from now on."""
        self._own.close()
        self._own = connection
        self._declare(connection)

    def register_callback(self, callback: Callable[[Any, Any], Any]) -> None:
        """Have ``callback(data, message)`` called for each message."""
        self.callbacks.append(callback)

    def receive(self, data: Any, message: Any = None) -> None:
        """A message has come."""
        for callback in self.callbacks:
            callback(data, message)

    def _received(self, data: Any) -> None:
        self._last = message = _Message(data)
        if self._calls_back:
            self.receive(data, message)

    def fetch(self, no_ack: Any = None, auto_ack: Any = None, enable_callbacks: bool = False) -> _Message | None:
        """One message if there is one, else None.

        Args:
            no_ack, auto_ack: accepted; a message that was fetched is settled.
            enable_callbacks: also give it to the callbacks.
        """
        self._last, self._calls_back = None, enable_callbacks
        try:
            for _ in self._own.iterconsume(1, _FETCH):
                pass
        except Timeout:
            return None
        finally:
            self._calls_back = True
        return self._last

    def attach_to_eventlet(self) -> _Attached:
        """Consume in a green thread; returns what stops it."""
        self._own.consume_in_thread()
        return _Attached(self._own)

    attachToEventlet = attach_to_eventlet

    def consume(self, limit: int | None = None) -> None:
        """Consume in this green thread."""
        self._own.consume(limit)

    wait = consume

    def close(self) -> None:
        """Stop."""
        self._own.close()


class _Message:
    """The second argument of a callback, beside the data."""

    def __init__(self, payload: Any) -> None:
        self.payload = payload

    def ack(self) -> None:
        """Messages are settled when their callback returns."""


class _Attached:
    """A consumer that runs in a green thread, with the methods of the timer that it once was."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def stop(self) -> None:
        """Stop consuming."""
        self._connection.close()

    def wait(self) -> None:
        """Until it has stopped."""
        thread = self._connection.thread
        if thread is not None:
            thread.join()

    kill = stop


class AdapterConsumer(Consumer):
    """Runs the messages of ``topic`` on ``proxy``."""

    fanout = False

    def __init__(self, connection: Any = None, topic: str = "broadcast", proxy: Any = None) -> None:
        self.topic = topic
        self.proxy = proxy
        self.pool = eventlet.GreenPool()
        super().__init__(connection=connection)
        self.register_callback(self.process_data)

    def _declare(self, connection: _Connection) -> None:
        if self.fanout:
            connection.declare_fanout_consumer(self.topic, self._received)
        else:
            connection.declare_topic_consumer(self.topic, self._received)

    def process_data(self, message_data: Any, message: Any = None) -> None:
        """Run one message."""
        amqp.this.ProxyCallback(self.proxy)(message_data)


class TopicAdapterConsumer(AdapterConsumer):
    """In turn with the others of its topic."""


class FanoutAdapterConsumer(AdapterConsumer):
    """Gets each message that is fanned out to its topic."""

    fanout = True


class ConsumerSet:
    """Consumers that are served together.

    Args:
        connection: where to consume.
        consumer_list: the consumers.
    """

    def __init__(self, connection: Any, consumer_list: Iterable[Consumer]) -> None:
        self.connection = connection
        self.consumer_list = list(consumer_list)

    def wait(self, limit: int | None = None) -> None:
        """Serve them in this green thread: ``limit`` messages, or until it is killed."""
        if limit is None:
            self._serve()
            return
        shared = _Connection(getattr(self.connection, "conf", None))
        for consumer in self.consumer_list:
            consumer._declare(shared)
        try:
            shared.consume(limit)
        finally:
            shared.close()

    def _serve(self) -> None:
        # By the consumers' own connections, where what was fanned out since they were made is waiting.
        own = [consumer._own for consumer in self.consumer_list]
        try:
            gevent.joinall([each.consume_in_thread() for each in own])
        finally:
            for each in own:
                each.pause()

    def close(self) -> None:
        """Stop."""
        for consumer in self.consumer_list:
            consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class DirectConsumer(Consumer):
    """Gets what is sent to a message id."""

    def __init__(self, connection: Any = None, msg_id: str = "") -> None:
        self.msg_id = msg_id
        super().__init__(connection=connection)

    def _declare(self, connection: _Connection) -> None:
        connection.declare_direct_consumer(self.msg_id, self._received)


class Publisher:
    """Sends.

    Args:
        connection: where to send; default: a new one.
    """

    def __init__(self, connection: Any = None, **others: Any) -> None:
        real = connection if isinstance(connection, _Connection) else getattr(connection, "connection", None)
        self.connection = real if isinstance(real, _Connection) else Connection.instance(new=True)

    def send(self, message: Any, **others: Any) -> None:
        """Send ``message``."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class TopicPublisher(Publisher):
    """Sends to one consumer of a topic."""

    def __init__(self, connection: Any = None, topic: str = "broadcast") -> None:
        super().__init__(connection)
        self.topic = topic

    def send(self, message: Any, **others: Any) -> None:
        """Send ``message``."""
        self.connection.topic_send(self.topic, message)


class FanoutPublisher(Publisher):
    """Sends to each consumer of a topic that is made for it."""

    def __init__(self, topic: str, connection: Any = None) -> None:
        super().__init__(connection)
        self.topic = topic

    def send(self, message: Any, **others: Any) -> None:
        """Send ``message``."""
        self.connection.fanout_send(self.topic, message)


class DirectPublisher(Publisher):
    """Sends to a message id."""

    def __init__(self, connection: Any = None, msg_id: str = "") -> None:
        super().__init__(connection)
        self.msg_id = msg_id

    def send(self, message: Any, **others: Any) -> None:
        """Send ``message``."""
        self.connection.direct_send(self.msg_id, message)
