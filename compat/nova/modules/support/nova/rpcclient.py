"""The client of Havana: options of a request are prepared first, then methods are named as such.

::

    client = proxy.get_client()
    client.prepare(server="node-1", timeout=10).call(context, "method", argument=1)
"""

from __future__ import annotations

from typing import Any, Self

from nova.openstack.common.rpc import proxy


class RPCClient:
    """Sends requests through a proxy.

    Args:
        proxy: knows topic, default version and serializer.
        namespace: the interface; None is the one without a name.
        server_params: where else casts go (``cast_to_server``); None is here.
    """

    def __init__(
        self, proxy: RpcProxy, namespace: str | None = None, server_params: dict[str, Any] | None = None
    ) -> None:
        self.proxy = proxy
        self.namespace = namespace
        self.server_params = server_params
        self.kwargs: dict[str, Any] = {}
        self.fanout: bool | None = None

    def prepare(self, **kwargs: Any) -> Self:
        """A client with these options besides its own.

        Args:
            kwargs: ``server`` (host whose topic is meant), ``topic``, ``fanout`` (to every host), ``version``,
                ``timeout`` (seconds).
        """
        client = type(self)(self.proxy, self.namespace, self.server_params)
        client.kwargs = self.kwargs | kwargs
        server = client.kwargs.pop("server", None)
        if server:
            client.kwargs["topic"] = f"{client.kwargs.get('topic') or self.proxy.topic}.{server}"
        client.fanout = client.kwargs.pop("fanout", None) or self.fanout
        return client

    def can_send_version(self, version: str) -> bool:
        """Return whether the proxy's version cap lets ``version`` through."""
        return self.proxy.can_send_version(version)

    def call(self, ctxt: Any, method: str, **kwargs: Any) -> Any:
        """Call ``method(**kwargs)`` there and return its result."""
        return self.proxy.call(ctxt, self._message(method, kwargs), **self.kwargs)

    def cast(self, ctxt: Any, method: str, **kwargs: Any) -> None:
        """Have ``method(**kwargs)`` run there."""
        msg = self._message(method, kwargs)
        if self.server_params:
            to_server = self.proxy.fanout_cast_to_server if self.fanout else self.proxy.cast_to_server
            to_server(ctxt, self.server_params, msg, **self.kwargs)
        else:
            send = self.proxy.fanout_cast if self.fanout else self.proxy.cast
            send(ctxt, msg, **self.kwargs)

    def _message(self, method: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        return self.proxy.make_namespaced_msg(method, self.namespace, **kwargs)


class RpcProxy(proxy.RpcProxy):
    """A proxy that gives clients."""

    def get_client(self, namespace: str | None = None, server_params: dict[str, Any] | None = None) -> RPCClient:
        """A client of this proxy's topic."""
        return RPCClient(self, namespace=namespace, server_params=server_params)
