"""The driver that configurations of ``zmq`` name: it is rpcmq.

What each host ran beside its services, ``nova-rpc-zmq-receiver``, may go on running: it has nothing to do.
"""

from __future__ import annotations

from typing import Any

from gevent.event import Event

from nova.rpc.driver import *  # noqa: F403

#: Options of its own: none, since those of the broker mean nothing here.
zmq_opts: list[Any] = []

cast_to_server, fanout_cast_to_server = of_module(__name__)  # noqa: F405


class InternalContext:
    """The context in which a receiver answered its own requests."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy


class ZmqReactor:
    """A receiver, whose place the router takes."""

    def __init__(self, conf: Any = None) -> None:
        self.conf = conf
        self._closed = Event()

    def register(self, proxy: Any, in_addr: str, zmq_type_in: Any, *others: Any, **more: Any) -> None:
        """Nothing comes there."""

    def consume_in_thread(self) -> None:
        """Nothing to consume."""

    def wait(self) -> None:
        """Until it is closed."""
        self._closed.wait()

    def close(self) -> None:
        """End :meth:`wait`."""
        self._closed.set()


class ZmqProxy(ZmqReactor):
    """The receiver of a host."""
