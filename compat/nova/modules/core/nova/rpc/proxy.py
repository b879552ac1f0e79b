"""The caller's side of a versioned interface, as ``nova.rpc`` had it in Folsom.

``nova.openstack.common.rpc.proxy`` is another module: its messages have a namespace from Havana on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova import rpc


class RpcProxy:
    """Sends requests of one interface to its topic.

    Everything goes through the functions of the front module, looked up when called: tests replace them.

    Args:
        topic: where requests go unless a call names another topic.
        default_version: what requests need unless a call says otherwise.
    """

    def __init__(self, topic: str, default_version: str) -> None:
        self.topic = topic
        self.default_version = default_version

    def _set_version(self, msg: dict[str, Any], vers: str | None) -> None:
        msg["version"] = vers or self.default_version

    def _get_topic(self, topic: str | None) -> str:
        return topic or self.topic

    def _prepared(self, context: Any, msg: dict[str, Any], version: str | None) -> dict[str, Any]:
        """``msg`` itself, as it is sent."""
        self._set_version(msg, version)
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
        return ask(context, self._get_topic(topic), self._prepared(context, msg, version), timeout)

    @staticmethod
    def make_msg(method: str, **kwargs: Any) -> dict[str, Any]:
        """The request to run ``method(**kwargs)``."""
        return {"method": method, "args": kwargs}

    def call(
        self,
        context: Any,
        msg: dict[str, Any],
        topic: str | None = None,
        version: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """``rpc.call``; ``timeout`` in seconds."""
        return self._ask(rpc.call, context, msg, topic, version, timeout)

    def multicall(
        self,
        context: Any,
        msg: dict[str, Any],
        topic: str | None = None,
        version: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """``rpc.multicall``; ``timeout`` in seconds for each reply."""
        return self._ask(rpc.multicall, context, msg, topic, version, timeout)

    def cast(self, context: Any, msg: dict[str, Any], topic: str | None = None, version: str | None = None) -> None:
        """``rpc.cast``."""
        rpc.cast(context, self._get_topic(topic), self._prepared(context, msg, version))

    def fanout_cast(
        self, context: Any, msg: dict[str, Any], topic: str | None = None, version: str | None = None
    ) -> None:
        """``rpc.fanout_cast``."""
        rpc.fanout_cast(context, self._get_topic(topic), self._prepared(context, msg, version))

    def cast_to_server(
        self,
        context: Any,
        server_params: dict[str, Any],
        msg: dict[str, Any],
        topic: str | None = None,
        version: str | None = None,
    ) -> None:
        """``rpc.cast_to_server``."""
        rpc.cast_to_server(context, server_params, self._get_topic(topic), self._prepared(context, msg, version))

    def fanout_cast_to_server(
        self,
        context: Any,
        server_params: dict[str, Any],
        msg: dict[str, Any],
        topic: str | None = None,
        version: str | None = None,
    ) -> None:
        """``rpc.fanout_cast_to_server``."""
        rpc.fanout_cast_to_server(context, server_params, self._get_topic(topic), self._prepared(context, msg, version))
