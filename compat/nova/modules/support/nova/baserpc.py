"""The interface that every service of Havana has besides its own, in the namespace ``baseapi``."""

from __future__ import annotations

from typing import Any

from compat.nova import primitives

from nova import rpcclient

_NAMESPACE = "baseapi"


class BaseAPI(rpcclient.RpcProxy):
    """The caller's side.

    1.0: ``ping``; 1.1: ``get_backdoor_port``.

    Args:
        topic: the service's.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(topic=topic, default_version="1.0")
        self.namespace = _NAMESPACE
        self.client = self.get_client(namespace=_NAMESPACE)

    def ping(self, context: Any, arg: Any, timeout: float | None = None) -> Any:
        """``{'service': its name, 'arg': arg}``; ``timeout`` in seconds."""
        client = self.client.prepare(timeout=timeout)
        return client.call(context, "ping", arg=primitives.to_primitive(arg))

    def get_backdoor_port(self, context: Any, host: str) -> Any:
        """The port of the service's debugging shell on ``host``, or None."""
        return self.client.prepare(server=host, version="1.1").call(context, "get_backdoor_port")


class BaseRPCAPI:
    """The service's side.

    Args:
        service_name: what ``ping`` answers with.
        backdoor_port: port of its debugging shell, or None.
    """

    RPC_API_VERSION = "1.1"
    RPC_API_NAMESPACE = _NAMESPACE

    def __init__(self, service_name: str, backdoor_port: int | None) -> None:
        self.service_name = service_name
        self.backdoor_port = backdoor_port

    def ping(self, context: Any, arg: Any) -> dict[str, Any]:
        """Say that the service is there."""
        answer: dict[str, Any] = primitives.to_primitive({"service": self.service_name, "arg": arg})
        return answer

    def get_backdoor_port(self, context: Any) -> int | None:
        """See ``BaseAPI``."""
        return self.backdoor_port
