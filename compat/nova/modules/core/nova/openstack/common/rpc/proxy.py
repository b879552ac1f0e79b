"""The caller's side of a versioned interface, as ``nova.openstack.common.rpc`` had it in Havana.

Beyond ``nova.rpc.proxy`` (which also stands in for this one in Folsom and Grizzly): a request always has a
``namespace``, even None; a version cap; a serializer of arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from nova.rpc import common as rpc_common
from nova.rpc import proxy
from nova.rpc.serializer import NoOpSerializer, Serializer


class _static_before:
    """Decorates a method that was static before Havana: of the class, it is the one of the era in force."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None and not rpc_common.since("havana"):
            return getattr(proxy.RpcProxy, self._method.__name__)
        return self._method.__get__(instance, owner)


class RpcProxy(proxy.RpcProxy):
    """Sends requests of one interface to its topic.

    Args:
        topic: where requests go unless a call names another topic.
        default_version: what requests need unless a call says otherwise.
        version_cap: nothing that needs a later version, or another major one, is sent.
        serializer: applied to arguments and results.
    """

    RPC_API_NAMESPACE: ClassVar[str | None] = None
    """The name of this interface among those of a service."""

    def __init__(
        self,
        topic: str,
        default_version: str,
        version_cap: str | None = None,
        serializer: Serializer | None = None,
    ) -> None:
        super().__init__(topic, default_version)
        self.version_cap = version_cap
        self.serializer = NoOpSerializer() if serializer is None else serializer

    def can_send_version(self, version: str) -> bool:
        """Return whether the cap lets through what needs ``version``."""
        return not self.version_cap or rpc_common.version_is_compatible(self.version_cap, version)

    def _set_version(self, msg: dict[str, Any], vers: str | None) -> None:
        if not self.can_send_version(vers or self.default_version):
            raise rpc_common.RpcVersionCapError(version_cap=self.version_cap)
        super()._set_version(msg, vers)

    @staticmethod
    def make_namespaced_msg(method: str, namespace: str | None, **kwargs: Any) -> dict[str, Any]:
        """The request to run ``method(**kwargs)`` of an interface."""
        return {"method": method, "namespace": namespace, "args": kwargs}

    @_static_before
    def make_msg(self, method: str, **kwargs: Any) -> dict[str, Any]:
        """The request to run ``method(**kwargs)`` of this interface."""
        return self.make_namespaced_msg(method, self.RPC_API_NAMESPACE, **kwargs)

    def _prepared(self, context: Any, msg: dict[str, Any], version: str | None) -> dict[str, Any]:
        """``msg`` itself, its arguments made plain."""
        msg = super()._prepared(context, msg, version)
        args = msg.get("args") or {}
        msg["args"] = {key: self.serializer.serialize_entity(context, value) for key, value in args.items()}
        return msg

    def _ask(
        self,
        ask: Callable[..., Any],
        context: Any,
        msg: dict[str, Any],
        topic: str | None,
        version: str | None,
        timeout: float | None,
    ) -> Any:
        """The result of ``ask``, as the program's own object.

        Raises:
            Timeout: no reply came; names topic and method.
            RpcVersionCapError: it needs a version that may not be sent.
        """
        try:
            result = super()._ask(ask, context, msg, topic, version, timeout)
        except rpc_common.Timeout as error:
            raise rpc_common.Timeout(error.info, self._get_topic(topic), msg.get("method")) from error
        return self.serializer.deserialize_entity(context, result)
