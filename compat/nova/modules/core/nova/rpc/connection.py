"""The real connection of every driver, and the raw layer of the kombu one.

A consumer's queue is declared when the consumer is made, so that nothing is lost until it consumes, and is
consumed from :meth:`Connection.consume_in_thread` on, or while :meth:`Connection.iterconsume` is iterated
over. All connections of a process share one link to the router.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import gevent
from gevent.event import AsyncResult, Event
from gevent.queue import Empty, Queue

from compat.nova import options, transport
from rpcmq import Address
from rpcmq.errors import RpcError

from nova.rpc import amqp, broker, common
from nova.rpc.sources import Source, ignore, process

LOG = logging.getLogger(__name__)

_DIRECT = "direct"
#: Seconds before something is tried again.
_RETRY = 0.05
#: Class name -> the attribute that holds its topic.
_ADDRESSED = {"DirectConsumer": "msg_id", "DirectPublisher": "msg_id"}

_Delivery = tuple["Source", Any, Any]

#: The connections of this process that are open.
connections: WeakSet[Connection] = WeakSet()


class Connection(common.Connection):
    """Consumers, and sends to topics.

    Args:
        conf: where to read the options; None: the program's.
        server_params: the router of another cell.
    """

    #: Closed connections, for use again.
    pool: Any = None
    #: Further exceptions that mean a lost connection; set by programs.
    connection_errors: tuple[type[Exception], ...] = ()

    def __init__(self, conf: Any = None, server_params: Any = None) -> None:
        self.conf = conf
        self._server_params = server_params
        self._sources: list[Source] = []
        self._in_thread = False
        self._handed: Queue[_Delivery] = Queue()
        #: Set while messages are run, or handed to whoever pulls them.
        self._consuming = Event()
        self._closed = Event()
        self.thread: gevent.Greenlet[..., Any] | None = None
        connections.add(self)

    @property
    def consuming(self) -> bool:
        """Whether it has a consumer that the router knows."""
        return any(source.incoming is not None for source in self._sources)

    @property
    def params(self) -> dict[str, Any]:
        """Broker connection parameters as programs read them; the shim does not use them."""
        return broker.parameters(self.conf, self._server_params)

    @property
    def connection(self) -> Any:
        """Like :attr:`params`, with ``ssl``: what the options say of it, or False."""
        return SimpleNamespace(**self.params, ssl=broker.ssl_parameters(self.conf))

    # --- consumers ---------------------------------------------------------------------------

    def create_consumer(self, topic: str, proxy: Any, fanout: bool = False) -> None:
        """Have ``proxy`` run what comes for ``topic``: in turn with others, or each message if ``fanout``."""
        callback = amqp.this.ProxyCallback(self.conf, proxy)
        if fanout:
            self.declare_fanout_consumer(topic, callback)
        else:
            self.declare_topic_consumer(topic, callback)

    def create_worker(self, topic: str, proxy: Any, pool_name: str) -> None:
        """Have ``proxy`` share the messages for ``topic`` with the other members of the pool.

        Each pool of a topic gets each message.
        """
        self.declare_topic_consumer(topic, amqp.this.ProxyCallback(self.conf, proxy), pool_name)

    def join_consumer_pool(
        self,
        callback: Callable[[Any], Any],
        pool_name: str,
        topic: str,
        exchange_name: str = "",
        ack_on_error: bool = True,
    ) -> None:
        """Have ``callback`` share the notifications for ``topic`` with the other members of the pool.

        Args:
            ack_on_error: accepted; a message is given once.
        """
        self.declare_topic_consumer(topic, callback, pool_name, exchange_name)

    def declare_topic_consumer(
        self,
        topic: str,
        callback: Callable[[Any], Any] | None = None,
        queue_name: str | None = None,
        exchange_name: str | None = None,
        ack_on_error: bool = True,
    ) -> None:
        """Have ``callback`` get the messages for ``topic``, in turn with others of the same queue."""
        group = queue_name if queue_name and queue_name != topic else ""
        self._add(Address(topic, "", amqp.exchange(self.conf, exchange_name)), callback, group)

    def declare_direct_consumer(self, topic: str, callback: Callable[[Any], Any]) -> None:
        """Have ``callback`` get what is sent to the message id ``topic`` directly, from now until it is closed."""
        # Such a queue is its consumer's own and ends with it, as one for what is fanned out does.
        self._add(amqp.fanout_address(self.conf, topic, _DIRECT), callback, fanout=True)

    def declare_fanout_consumer(self, topic: str, callback: Callable[[Any], Any]) -> None:
        """Have ``callback`` get each message that is fanned out to ``topic``."""
        self._add(amqp.fanout_address(self.conf, topic), callback, fanout=True)

    def declare_consumer(self, consumer_cls: Any, topic: str, callback: Callable[[Any], Any] | None) -> Any:
        """A consumer made of ``consumer_cls``, which this connection serves; tried until it succeeds."""

        def declare() -> Any:
            consumer = consumer_cls(connection=self, **{_ADDRESSED.get(consumer_cls.__name__, "topic"): topic})
            if callback is not None:
                consumer.register_callback(lambda data, message: callback(data))
            consumer.serve_by(self)
            return consumer

        return self.ensure(lambda error: LOG.error("cannot consume %r: %s", topic, error), declare)

    def ensure(self, error_callback: Callable[[Exception], Any] | None, method: Callable[..., Any], *args: Any) -> Any:
        """Return ``method(*args)``, retried after errors that look like a lost connection.

        Raises:
            Exception: anything else that it raises.
        """
        while True:
            try:
                return method(*args)
            except common.RPCException:
                raise
            except Exception as error:
                if not isinstance(error, (OSError, *self.connection_errors)) and "timeout" not in str(error):
                    raise
                if error_callback:
                    error_callback(error)
            self.reconnect()

    def reconnect(self) -> None:
        """Pause, so that callers that retry do not spin; the link reconnects by itself."""
        gevent.sleep(_RETRY)

    def _add(
        self, address: Address, callback: Callable[[Any], Any] | None, group: str = "", fanout: bool = False
    ) -> None:
        if self._closed.is_set():
            raise common.InvalidRPCConnectionReuse()
        source = Source(address, callback or ignore, group, fanout)
        try:
            if not fanout:
                self._client.declare(address, group=group)
            # Fanned-out messages are for this consumer alone, so they may wait here.
            if fanout or self._in_thread:
                self._start(source, self._pool_size)
        except RpcError as error:
            raise common.RPCException(f"cannot consume {address.topic!r}: {error}") from error
        self._sources.append(source)

    @property
    def _client(self) -> Any:
        return transport.client(self.conf, self._server_params)

    @property
    def _pool_size(self) -> int:
        return int(options.value("rpc_thread_pool_size", self.conf))

    def _start(self, source: Source, concurrency: int) -> None:
        if source.incoming is None:
            handle = self._handler(source)
            source.incoming = transport.Incoming(self._client, source.address, handle, concurrency, source.group)

    def _handler(self, source: Source) -> Callable[[Any], None]:
        def handle(message: Any) -> None:
            if not self._consuming.is_set():
                self._consuming.wait()
            if source.ended:
                return
            if self._in_thread:
                process(source.callback, message)
                return
            left_to_us: AsyncResult[bool] = AsyncResult()
            self._handed.put((source, message, left_to_us))
            if left_to_us.get():
                process(source.callback, message)

        return handle

    # --- consuming ---------------------------------------------------------------------------

    def consume_in_thread(self) -> gevent.Greenlet[..., Any]:
        """Serve all consumers, those to come too, each message in a green thread of its own.

        Returns:
            A green thread that ends when the connection is closed; to kill it stops consuming.
        """
        self._in_thread = True
        self._consuming.set()
        for _, _, left_to_them in self._take_deliveries():
            left_to_them.set(True)
        for source in self._sources:
            self._start(source, self._pool_size)
        if self.thread is None:
            self.thread = gevent.spawn(self._closed.wait)
            self.thread.link(lambda _: self._stop())
        return self.thread

    def consume(self, limit: int | None = None) -> None:
        """Run messages in this green thread: ``limit`` of them, or until the connection is closed."""
        for _ in self.iterconsume(limit):
            pass

    def iterconsume(self, limit: int | None = None, timeout: float | None = None) -> Iterator[None]:
        """Run one message for each step.

        Without ``limit``, what is for a proxy is run in a green thread of its own, and a step only starts it.

        Args:
            limit: so many at most.
            timeout: seconds to wait for each.

        Raises:
            Timeout: none came in time.
        """
        counted = range(limit) if limit is not None else itertools.count()
        for source in self._sources:
            source.threaded = limit is None and getattr(source.callback, "threaded", False) is True
            self._start(source, self._pool_size if source.threaded else 1)
        self._consuming.set()
        try:
            for number in counted:
                handed = self._next(timeout)
                if handed is None:
                    return
                last = limit is not None and number == limit - 1
                if last:
                    # Before this one is settled, so that no further one is given to us.
                    self._leave()
                self._run(handed)
                yield
        finally:
            self._leave()
            self._run_deliveries()
            self._stop()
            self._run_deliveries()

    def _take_deliveries(self) -> list[_Delivery]:
        return [self._handed.get() for _ in range(self._handed.qsize())]

    def _run_deliveries(self) -> None:
        """Run received messages except fanned-out ones, which wait for the next consumer."""
        handed = self._take_deliveries()
        for each in handed:
            if each[0].fanout:
                self._handed.put(each)
        for each in handed:
            if not each[0].fanout:
                self._run(each)

    def _next(self, timeout: float | None) -> _Delivery | None:
        deadline = gevent.Timeout.start_new(timeout)
        try:
            while not self._closed.is_set():
                try:
                    return self._handed.get(timeout=0.5)
                except Empty:
                    continue  # look whether it was closed meanwhile
        except gevent.Timeout as expired:
            if expired is not deadline:
                raise
            raise common.Timeout(f"no message within {timeout:g} s") from None
        finally:
            deadline.close()
        return None

    @staticmethod
    def _run(handed: _Delivery) -> None:
        source, message, left = handed
        if not source.threaded:
            process(source.callback, message)
        left.set(source.threaded)

    def _leave(self, everything: bool = False) -> list[Source]:
        """Stop accepting messages except fanned-out ones, which are for this consumer only."""
        leaving = [each for each in self._sources if each.incoming is not None and (everything or not each.fanout)]
        for source in leaving:
            if source.incoming is not None:
                source.incoming.leave()
        return leaving

    def _stop(self, everything: bool = False) -> None:
        """Stop consuming; fanned-out messages still arrive until the connection is closed."""
        leaving = self._leave(everything)
        # What came before the router knew that we leave is begun now, and so must find us consuming.
        gevent.sleep(0)
        for source in leaving:
            if source.incoming is not None:
                source.incoming.stop(0)
                source.incoming = None
        self._consuming.clear()
        self._in_thread = False
        self.thread = None

    def pause(self) -> None:
        """Stop consuming until told to start again."""
        self._stop()

    def reset(self) -> None:
        """Forget the consumers, and drop what waits here for them alone."""
        self._stop(everything=True)
        for source in self._sources:
            source.ended = source.fanout
        self._sources.clear()
        for source, _, left_to_them in self._take_deliveries():
            left_to_them.set(not source.fanout)
        # Whoever waits for us to consume sees that the consumer has ended.
        self._consuming.set()
        self._consuming.clear()

    def close(self) -> None:
        """Stop consuming; handlers that run finish by themselves."""
        if not self._closed.is_set():
            self._closed.set()
            self.reset()

    # --- sending -----------------------------------------------------------------------------

    def topic_send(self, topic: str, msg: Any, timeout: float | None = None) -> None:
        """Send to one consumer of each queue of ``topic``, unless it waits longer than ``timeout`` seconds."""
        self._send(topic, msg, ttl=timeout)

    def fanout_send(self, topic: str, msg: Any) -> None:
        """Send to every consumer made with ``fanout``."""
        self._send(topic, msg, fanout=True)

    def notify_send(self, topic: str, msg: Any, **kwargs: Any) -> None:
        """Like :meth:`topic_send`, but it waits for a consumer though there has never been one."""
        transport.declare(self._client, Address(topic, "", amqp.exchange(self.conf)))
        self._send(topic, msg)

    def direct_send(self, msg_id: str, msg: Any) -> None:
        """Send to whoever waits for the message id: the caller of a call that runs here, or a direct consumer.

        Where nobody does, it is dropped.
        """
        call = transport.calls.get(msg_id)
        if call is None:
            self._send(msg_id, msg, fanout=True, where=_DIRECT)
        elif msg.get("failure"):
            call.fail(common.exception_from(self.conf, msg["failure"]))
        elif msg.get("ending"):
            call.end()
        else:
            call.send_item(msg.get("result"))

    def publisher_send(self, cls: Any, topic: str, msg: Any, timeout: float | None = None, **kwargs: Any) -> None:
        """Send by a publisher made of ``cls``, until it succeeds."""

        def publish() -> None:
            publisher = cls(connection=self, **{_ADDRESSED.get(cls.__name__, "topic"): topic})
            publisher.send(msg, **({} if timeout is None else {"timeout": timeout}))

        self.ensure(lambda error: LOG.error("cannot publish to %r: %s", topic, error), publish)

    def _send(
        self, topic: str, msg: Any, fanout: bool = False, where: str | None = None, ttl: float | None = None
    ) -> None:
        context, message = transport.to_wire(msg)
        amqp.send(self.conf, self._server_params, topic, context, message, fanout, where, ttl)
