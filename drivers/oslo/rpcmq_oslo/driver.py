"""The driver: oslo.messaging loads it for transport urls of the scheme ``rpcmq``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oslo_messaging import ServerListenError
from oslo_messaging._drivers.base import BaseDriver

from rpcmq_oslo.addresses import Addresses
from rpcmq_oslo.connections import SharedConnection
from rpcmq_oslo.failures import RefusedByRouter
from rpcmq_oslo.global_options import register_global_options
from rpcmq_oslo.listener import RpcmqListener
from rpcmq_oslo.options import executor_pool_size, options_of
from rpcmq_oslo.router_urls import router_urls, virtual_host
from rpcmq_oslo.sending import Outgoing, Sending

__all__ = ["RpcmqDriver"]


class RpcmqDriver(BaseDriver):
    """Messages of oslo.messaging over the routers of rpcmq.

    Nothing is connected until it is used, so it may be made before a process forks.

    Args:
        conf: the configuration; options are registered with it.
        url: the parsed transport url.
        default_exchange: of targets that name none.
        allowed_remote_exmods: modules whose remote exceptions are raised as themselves.

    Raises:
        InvalidTransportURL: the url names no router, an unknown option, or a user.
    """

    def __init__(
        self,
        conf: Any,
        url: Any,
        default_exchange: str | None = None,
        allowed_remote_exmods: list[str] | None = None,
    ) -> None:
        # First: it refuses passwords, which errors about the url would show.
        routers = router_urls(url)
        options = options_of(conf, url)
        register_global_options(conf)
        super().__init__(conf, url, default_exchange, allowed_remote_exmods)
        self._routers, self._key_file = routers, options.key_file
        self._addresses = Addresses(virtual_host(url), default_exchange)
        self._connection = self._new_connection()
        self._sending = Sending(self._connection, self._allowed_remote_exmods)

    def require_features(self, requeue: bool = False) -> None:
        """Do nothing: all features are there."""

    def send(
        self,
        target: Any,
        ctxt: Mapping[str, Any],
        message: Mapping[str, Any],
        wait_for_reply: bool | None = None,
        timeout: float | None = None,
        call_monitor_timeout: float | None = None,
        retry: int | None = None,
        transport_options: Any = None,
    ) -> Any:
        """Send a call, cast or fanout; see oslo.messaging's BaseDriver.

        Returns:
            Of a call: what the method returned. A cast returns when the router has it.

        Raises:
            MessagingTimeout: the time is over; the text says why.
            MessageDeliveryFailure: all attempts are used up, or the router has lost it.
            MessageUndeliverable: nobody listens, and ``transport_options.at_least_once`` is set.
            Exception: what the method raised.
        """
        is_fanout = bool(target.fanout)
        address = self._addresses.of_topic(target) if is_fanout else self._addresses.of(target)
        at_least_once = bool(getattr(transport_options, "at_least_once", False))
        outgoing = Outgoing(target, address, ctxt, message, timeout, retry, at_least_once)
        if wait_for_reply:
            return self._sending.call(outgoing, call_monitor_timeout)
        if is_fanout:
            self._sending.fanout(outgoing)
        else:
            self._sending.cast(outgoing)
        return None

    def send_notification(
        self, target: Any, ctxt: Mapping[str, Any], message: Mapping[str, Any], version: float, retry: int | None = None
    ) -> None:
        """Give a notification to the router, which keeps it until somebody listens.

        Raises:
            MessageDeliveryFailure: all attempts are used up.
        """
        address = self._addresses.of_topic(target)
        self._sending.notify(Outgoing(target, address, ctxt, message, retry=retry))

    def listen(self, target: Any, batch_size: int | None, batch_timeout: float | None) -> RpcmqListener:
        """Listen to topic, server and fanout of ``target``; returns when the router delivers.

        Raises:
            ServerListenError: this process may not listen there.
        """
        addresses = [self._addresses.of(target)]
        return self._listener(target, addresses, "", batch_size, batch_timeout, acknowledged_first=True)

    def listen_for_notifications(
        self,
        targets_and_priorities: Iterable[tuple[Any, str]],
        pool: str | None,
        batch_size: int | None,
        batch_timeout: float | None,
    ) -> RpcmqListener:
        """Listen to notifications: each pool gets each of them, and those without a pool share them.

        Raises:
            ServerListenError: this process may not listen there.
            MessagingException: no pool can be called so.
        """
        wanted = list(targets_and_priorities)
        addresses = [self._addresses.of_priority(target, priority) for target, priority in wanted]
        targets = list(dict.fromkeys(target for target, _ in wanted))
        return self._listener(targets, addresses, pool or "", batch_size, batch_timeout)

    def cleanup(self) -> None:
        """Release the connection; the last one who does closes it. To use the driver again connects anew."""
        self._connection.release()

    def _listener(
        self,
        shown: Any,
        addresses: list[Any],
        pool: str,
        batch_size: int | None,
        batch_timeout: float | None,
        acknowledged_first: bool = False,
    ) -> RpcmqListener:
        try:
            return RpcmqListener(
                self._new_connection(),
                addresses,
                workers=executor_pool_size(self.conf),
                pool=pool,
                batch_size=batch_size or 1,
                batch_timeout=batch_timeout,
                acknowledged_first=acknowledged_first,
            )
        except RefusedByRouter as error:
            # Servers are to make it of a TransportDriverError; in 17.3 to 18.3 they end with an AttributeError.
            raise ServerListenError(shown, error) from error

    def _new_connection(self) -> SharedConnection:
        return SharedConnection(self._routers, self._key_file)
