"""``Service(host, topic, manager)`` of ``nova.openstack.common.rpc.service`` (Folsom to Havana).

What ``nova.service`` does for Nova's own daemons, for any other program: three consumers and a dispatcher.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from nova import rpc
from nova.rpc import common as rpc_common
from nova.rpc.dispatcher import RpcDispatcher
from nova.rpc.serializer import Serializer

LOG = logging.getLogger(__name__)


class _Plain:
    """Stands in for ``nova.openstack.common.service`` where a tree has none."""

    def start(self) -> None:
        """Nothing else to start."""

    def stop(self) -> None:
        """Nothing else to stop."""

    def wait(self) -> None:
        """Nothing else to wait for."""


def _base() -> type[_Plain]:
    """The tree's own service, whose thread group a program adds its timers to."""
    try:
        module: Any = importlib.import_module("nova.openstack.common.service")
    except ImportError:
        return _Plain
    base: type[_Plain] = module.Service
    return base


if TYPE_CHECKING:
    _Base = _Plain
else:
    _Base = _base()


class Service(_Base):
    """Serves a manager's methods at a topic: in turn with other hosts, for this host, and for all.

    Args:
        host: name of this host.
        topic: what the service is reached by.
        manager: the object with the methods; None is the service itself. Its ``initialize_service_hook(service)``,
            if it has one, is called when the consumers exist and nothing is consumed yet.
        serializer: applied to arguments and results (Havana).
    """

    def __init__(self, host: str, topic: str, manager: Any = None, serializer: Serializer | None = None) -> None:
        super().__init__()
        self.host = host
        self.topic = topic
        self.serializer = serializer
        self.manager = self if manager is None else manager
        self.conn: rpc_common.Connection | None = None

    def start(self) -> None:
        """Begin to serve."""
        super().start()
        LOG.debug("consuming %s on %s", self.topic, self.host)
        connection: rpc_common.Connection = rpc.create_connection(new=True)
        self.conn = connection
        dispatcher = RpcDispatcher([self.manager], self.serializer)
        connection.create_consumer(self.topic, dispatcher, fanout=False)
        connection.create_consumer(f"{self.topic}.{self.host}", dispatcher, fanout=False)
        connection.create_consumer(self.topic, dispatcher, fanout=True)
        hook = getattr(self.manager, "initialize_service_hook", None)
        if callable(hook):
            hook(self)
        connection.consume_in_thread()

    def stop(self) -> None:
        """Stop serving, even if the connection is gone already."""
        connection, self.conn = self.conn, None
        try:
            if connection is not None:
                connection.close()
        except Exception:
            LOG.debug("closing the connection of %s failed", self.topic, exc_info=True)
        super().stop()
