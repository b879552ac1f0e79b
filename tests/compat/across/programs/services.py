"""Services of each era: they consume their topic, ``topic.host``, and fanouts to the topic.

Each function starts a service and returns what stops it. What they import is what a program of the time did,
since that tells the shim which time it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def cactus(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """Three connections, three adapter consumers, each attached."""
    from nova import rpc

    connections = [rpc.Connection.instance(new=True) for _ in range(3)]
    consumers = [
        rpc.TopicAdapterConsumer(connection=connections[0], topic=topic, proxy=manager),
        rpc.TopicAdapterConsumer(connection=connections[1], topic=f"{topic}.{host}", proxy=manager),
        rpc.FanoutAdapterConsumer(connection=connections[2], topic=topic, proxy=manager),
    ]
    timers = [consumer.attach_to_eventlet() for consumer in consumers]

    def stop() -> None:
        for timer in timers:
            timer.stop()
        for timer in timers:
            timer.wait()
        for consumer in consumers:
            consumer.close()

    return stop


def diablo_m3(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """One connection, a ``ConsumerSet`` that a green thread waits in, until it is killed."""
    import greenlet

    import eventlet
    from nova import rpc

    connection = rpc.Connection.instance(new=True)
    consumers = [
        rpc.TopicAdapterConsumer(connection=connection, topic=topic, proxy=manager),
        rpc.TopicAdapterConsumer(connection=connection, topic=f"{topic}.{host}", proxy=manager),
        rpc.FanoutAdapterConsumer(connection=connection, topic=topic, proxy=manager),
    ]
    consumer_set = rpc.ConsumerSet(connection=connection, consumer_list=consumers)
    thread = eventlet.spawn(consumer_set.wait)

    def stop() -> None:
        thread.kill()
        try:
            thread.wait()
        except greenlet.GreenletExit:
            pass
        consumer_set.close()

    return stop


def diablo_m4(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """The short-lived ``rpc.create_consumer(conn, ...)`` and its consumer sets."""
    import greenlet

    import eventlet
    from nova import rpc

    connection = rpc.create_connection(new=True)
    consumers = [
        rpc.create_consumer(connection, topic, manager, fanout=False),
        rpc.create_consumer(connection, f"{topic}.{host}", manager, fanout=False),
        rpc.create_consumer(connection, topic, manager, fanout=True),
    ]
    consumer_set = rpc.create_consumer_set(connection, consumers)
    thread = eventlet.spawn(consumer_set.wait)

    def stop() -> None:
        thread.kill()
        try:
            thread.wait()
        except greenlet.GreenletExit:
            pass
        consumer_set.close()
        connection.close()

    return stop


def diablo_m4_attached(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """The same era with ``attach_to_eventlet()``."""
    from nova import rpc

    connections = [rpc.create_connection(new=True) for _ in range(3)]
    timers = [
        rpc.create_consumer(connections[0], topic, manager).attach_to_eventlet(),
        rpc.create_consumer(connections[1], f"{topic}.{host}", manager).attach_to_eventlet(),
        rpc.create_consumer(connections[2], topic, manager, fanout=True).attach_to_eventlet(),
    ]

    def stop() -> None:
        for timer in timers:
            timer.kill()
        for connection in connections:
            connection.close()

    return stop


def _three(connection: Any, topic: str, host: str, proxy: Any) -> Callable[[], None]:
    connection.create_consumer(topic, proxy, fanout=False)
    connection.create_consumer(f"{topic}.{host}", proxy, fanout=False)
    connection.create_consumer(topic, proxy, fanout=True)
    connection.consume_in_thread()
    stop: Callable[[], None] = connection.close
    return stop


def essex(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """2011.3 and Essex: ``create_connection(new=True)``, whose proxy is the service itself."""
    from nova import rpc

    return _three(rpc.create_connection(new=True), topic, host, manager)


def folsom(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """The last ``nova.rpc``: the same with a dispatcher."""
    from nova import rpc
    from nova.rpc import dispatcher

    return _three(rpc.create_connection(new=True), topic, host, dispatcher.RpcDispatcher([manager]))


def common(topic: str, host: str, manager: Any) -> Callable[[], None]:
    """2012.2 and later: ``nova.openstack.common.rpc``."""
    import nova.openstack.common.rpc.dispatcher

    rpc: Any = nova.openstack.common.rpc
    return _three(rpc.create_connection(new=True), topic, host, rpc.dispatcher.RpcDispatcher([manager]))
