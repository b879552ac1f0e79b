"""Links that are to go on over another connection than the present one, because this router says HELLO there.

While a link is away the side that has dialled dials again, and nobody else. A link that others carry may go on over a
direct connection that either side can make: perhaps the other one never can. Where both try, that of the side that has
been dialled counts, which refuses the other one's HELLO while its own is not answered; so it becomes the side that has
dialled.
"""

from __future__ import annotations

from collections.abc import Mapping

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import Peering
from rpcmq.core.router.mesh.targets import Target

__all__ = ["Resuming"]


class Resuming:
    """The connections on which a link is to go on.

    Args:
        dials: the connections without a link, with the targets that they were made for.
    """

    def __init__(self, context: MeshContext, dials: Mapping[bytes, Target]) -> None:
        self._context = context
        self._dials = dials
        self._peerings: dict[bytes, Peering] = {}

    def is_possible(self, peering: Peering, target: Target) -> bool:
        """Return whether the session of ``peering`` may be resumed on a connection made by way of ``target``."""
        if peering.link in self._context.limits:
            return False
        if target.is_relayed:
            return bool(
                peering.token
                and not peering.link.is_responsive
                and not any(each.has_greeted and each.id == target.id for each in self._dials.values())
            )
        is_again = peering.target is target and peering.link.state is LinkState.AWAY
        return peering.neighbour.is_relayed or bool(peering.token and is_again)

    def begin(self, now: float, route: bytes, peering: Peering) -> None:
        """The link of ``peering`` is to go on on ``route``: nothing more is taken of its present connection.

        HELLO says how much was received.
        """
        self._peerings[route] = peering
        peering.link.forget_inbox()
        former = peering.route
        if former is not None:
            self._context.hang_up(former)
            self._context.route_lost(now, former, "the link goes on elsewhere")

    def end(self, route: bytes) -> Peering | None:
        """HELLO was answered on ``route``, or will not be; return the peering that was to go on there."""
        return self._peerings.pop(route, None)

    def routes_of(self, peering: Peering) -> list[bytes]:
        """Return the connections on which the link of ``peering`` is to go on."""
        return [route for route, each in self._peerings.items() if each is peering]
