"""Tells a plugged-in node of the losses of processes that consume."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link
from rpcmq.nodes.loss import Loss
from rpcmq.nodes.node import Node
from rpcmq.nodes.peer import Peer

__all__ = ["LossWatch"]


class LossWatch:
    """An observer of losses for one node; see :class:`rpcmq.core.router.roundrobin.losses.LossObserver`.

    Args:
        links: of the router.
        peer_of: returns the peer of a link.
        tell: has the method of the node with this name told: (now, name, what it is about).
    """

    def __init__(self, links: LinkTable, peer_of: Callable[[Link], Peer], tell: Callable[..., None]) -> None:
        self._links = links
        self._peer_of = peer_of
        self._tell = tell

    @staticmethod
    def is_wanted_by(make: type[Node]) -> bool:
        """Return whether nodes of this class have a method that is told of losses."""
        base = (Node.consumer_away, Node.consumer_gone, Node.consumer_back)
        return (make.consumer_away, make.consumer_gone, make.consumer_back) != base

    def consumer_away(self, now: float, link: Link) -> None:
        """Pass it on."""
        self._tell(now, "consumer_away", Loss(now, self._links, link, self._peer_of(link)))

    def consumer_gone(self, now: float, link: Link) -> None:
        """Pass it on."""
        self._tell(now, "consumer_gone", Loss(now, self._links, link, self._peer_of(link)))

    def consumer_back(self, now: float, link: Link) -> None:
        """Pass it on."""
        self._tell(now, "consumer_back", self._peer_of(link))
