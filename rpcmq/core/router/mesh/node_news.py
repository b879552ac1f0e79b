"""The part of the mesh by which plugged-in nodes of one name at several routers talk to each other.

It goes to neighbours whose links have no limits, and that say that they take it; once and in order, as all that a
session counts. A router without such a node ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, Kind, size_of
from rpcmq.wire.mesh_bodies import NodeNewsBody

__all__ = ["MAX_NEWS_BYTES", "NewsReader", "NodeNews"]

#: Bytes of one message.
MAX_NEWS_BYTES = 64 << 10


class NewsReader(Protocol):
    """A node that talks to those of its name at other routers."""

    def router_joined(self, now: float, router: str) -> None:
        """The router with this name is linked, and knows nothing of what was told before."""

    def told(self, now: float, router: str, news: Mapping[str, Any]) -> None:
        """The node of the router with this name has told something.

        Raises:
            ProtocolError: it makes no sense.
        """


class NodeNews(MeshPart):
    """Passes on what nodes tell each other."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        #: By the names of the nodes.
        self.readers: dict[str, NewsReader] = {}
        self.kinds = {Kind.NODE_NEWS: self._take}

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """It is told by those who have something to tell."""
        if not resumed and self._takes(neighbour):
            for reader in self.readers.values():
                reader.router_joined(now, neighbour.name)

    def _takes(self, neighbour: Neighbour) -> bool:
        return neighbour.identity.nodes and neighbour.link not in self._context.limits

    def tell(self, node: str, news: Mapping[str, Any], router: str = "") -> None:
        """Tell the nodes named ``node`` of other routers, or only the one of ``router``.

        Raises:
            TypeError, ValueError: it is no JSON, or too large.
        """
        neighbours = [each for each in self._context.neighbours if self._takes(each)]
        message = NodeNewsBody(node=node, news=news).message()
        if (size := size_of(message)) > MAX_NEWS_BYTES:
            raise ValueError(f"news of {size} bytes; at most {MAX_NEWS_BYTES} are allowed")
        for each in neighbours:
            if not router or each.name == router:
                each.link.send(message)

    def _take(self, now: float, link: Link, message: bytes) -> None:
        """NODE_NEWS.

        Raises:
            ProtocolError: it is malformed, too large, or comes over a link with limits.
        """
        neighbour = self._context.neighbours.by_link.get(link)
        if neighbour is None or not self._takes(neighbour):
            raise ProtocolError(f"kind {message[KIND_AT]:#04x} over a link with limits", "kind")
        if (size := size_of(message)) > MAX_NEWS_BYTES:
            raise ProtocolError(f"NODE_NEWS of {size} bytes; at most {MAX_NEWS_BYTES} are allowed", "size")
        body = NodeNewsBody.of(message)
        reader = self.readers.get(body.node)
        if reader is not None:
            self._context.node.turns.spend(size >> 5)
            reader.told(now, neighbour.name, body.news)
