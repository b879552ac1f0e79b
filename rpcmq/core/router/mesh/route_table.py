"""The ways of one router to all others, as far as it knows, and which of them did not work.

A router on the way may drop whatever it is to pass on, and nobody but the ends can notice. So a way on which nothing
has come through is avoided: the next attempt goes over another neighbour, if there is a way over one.
"""

from __future__ import annotations

from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.routes import Route, path, routes

__all__ = ["RouteTable"]

#: Most sets of neighbours without which ways are found.
_MOST_DETOURS = 16
#: A way on which two batches were lost within this time (seconds) is avoided; most losses that are remembered.
_AGAIN_SECONDS, _MOST_LOST = 10.0, 1000


class RouteTable:
    """Finds ways when they are asked for."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._is_stale = True
        #: The ids of the neighbours that may carry something now.
        self._hops: list[int] = []
        #: By the ids of the neighbours that are avoided: the ways without them.
        self._found: dict[frozenset[int], dict[int, Route]] = {}
        #: By the id of a router, the neighbours over which nothing has come through to it.
        self._avoided: dict[int, frozenset[int]] = {}
        #: By router and neighbour: the time at which a batch was lost last on that way (monotonic seconds).
        self._lost: dict[tuple[int, int], float] = {}

    def find_anew(self) -> None:
        """Find ways anew when one is asked for next: connections are others than they were."""
        self._is_stale = True

    def route_to(self, id: int) -> Route | None:
        """Return the way to the router ``id``; None if there is none."""
        return self._ways_to(id).get(id)

    def path_to(self, id: int) -> list[int]:
        """Return the ids of the routers on the way to the router ``id``, in their order."""
        return path(self._ways_to(id), id)

    def avoid(self, id: int) -> None:
        """Nothing has come through on the way to the router ``id``: take another, in the end the first again."""
        route = self.route_to(id)
        if route is not None and route.length > 1:
            self._avoided[id] = self._avoided.get(id, frozenset()) | {route.hop}

    def lost(self, now: float, id: int) -> None:
        """A batch was lost on the way to or from the router ``id``: where that happens again, the way is avoided."""
        route = self.route_to(id)
        if route is None:
            return
        before = self._lost.pop((id, route.hop), None)
        if before is not None and now < before + _AGAIN_SECONDS:
            self.avoid(id)
            return
        self._lost[id, route.hop] = now
        if len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]

    def detour(self, id: int, hop: int) -> Route | None:
        """Return the way to the router ``id`` that does not begin with the neighbour ``hop``."""
        self._renew()
        return self._without(frozenset([hop])).get(id)

    def _ways_to(self, id: int) -> dict[int, Route]:
        self._renew()
        avoided = self._avoided.get(id)
        if avoided:
            found = self._without(avoided)
            if id in found:
                return found
            del self._avoided[id]
        return self._without(frozenset())

    def _renew(self) -> None:
        if not self._is_stale:
            return
        self._is_stale = False
        self._found.clear()
        context = self._context
        usable = (each for each in context.neighbours if each.link.is_responsive and context.is_hop(each))
        hops = sorted(each.identity.id for each in usable)
        if hops != self._hops:
            self._hops = hops
            self._avoided.clear()

    def _without(self, avoided: frozenset[int]) -> dict[int, Route]:
        found = self._found.get(avoided)
        if found is None:
            if len(self._found) > _MOST_DETOURS:
                return {}
            hops = [id for id in self._hops if id not in avoided]
            found = self._found[avoided] = routes(self._context.own.id, hops, self._context.members)
        return found
