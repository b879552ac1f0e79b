"""The nodes of the same name at other routers of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rpcmq.core.router.mesh.node_news import NodeNews

__all__ = ["OtherRouters"]


class OtherRouters:
    """Passes on what they tell, and tells them something.

    Args:
        name: of the node.
        event: has the method of the node with this name told: (now, name, arguments).
    """

    def __init__(self, name: str, event: Callable[..., None]) -> None:
        self._name = name
        self._event = event
        self._news: NodeNews | None = None

    def meet(self, news: NodeNews) -> None:
        """Get to know the part of the mesh that carries it."""
        self._news = news
        news.readers[self._name] = self

    def tell(self, news: Mapping[str, Any], router: str) -> None:
        """Tell all of them, or only the one of ``router``."""
        if self._news is not None:
            self._news.tell(self._name, news, router)

    def router_joined(self, now: float, router: str) -> None:
        """See :class:`rpcmq.core.router.mesh.node_news.NewsReader`."""
        self._event(now, "router_joined", router)

    def told(self, now: float, router: str, news: Mapping[str, Any]) -> None:
        """See :class:`rpcmq.core.router.mesh.node_news.NewsReader`."""
        self._event(now, "told", router, news, is_asked=True)
