"""The part of the mesh that limits links to the topics that may pass: see :mod:`rpcmq.core.router.mesh.limits`."""

from __future__ import annotations

from rpcmq.core.router.mesh.limits import limits_of
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart

__all__ = ["LimitedLinks"]


class LimitedLinks(MeshPart):
    """Limits a link before any other part uses it. A link without limits costs nothing."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Limit its link, if anything may not pass."""
        link, context = neighbour.link, self._context
        limits = None if resumed else limits_of(link, context.node.settings.mesh_peer)
        if limits is not None:
            context.limits[link] = limits
            context.places.may_get[link] = limits.may_get
            context.pubsub.limits[link] = limits.may_get
            link.handlers = limits.handlers(context.handlers)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Forget them."""
        link = neighbour.link
        self._context.limits.pop(link, None)
        self._context.places.forget(link)
        self._context.pubsub.limits.pop(link, None)
