"""The routers that are asked for messages, and have a say in whether these may be started again.

A consumer that was given anything is known to two routers (rules ``names`` and ``announce``). What had been ended by
one that is gone, or what that had when it left, is known to its own router only. So nothing is decided before each one
that answers has spoken, and all but one, whether they answer or not. That one may have been a former life of this
router, of which this one knows nothing. One that answers heartbeats, and no question, may be the only one that knows:
the message is given up in time, not started, for it must not run twice. What may run twice is not asked for.
"""

from __future__ import annotations

from rpcmq.core.router.mesh.fences import PlaceKey
from rpcmq.core.router.mesh.limits import LinkLimits
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.questions import Question
from rpcmq.core.router.model import Link

__all__ = ["AskedRouters"]

#: A router that is gone counts among those that could know a consumer for so long (seconds).
_MISSED_SECONDS = 90.0


class AskedRouters:
    """Knows the routers that may know a consumer of a place, those that were lost lately included."""

    __slots__ = ("_context", "_limits", "_missed", "_new_until")

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._new_until = context.node.now + _MISSED_SECONDS
        #: Routers that were lost, by id: when, and the limits that their links had.
        self._missed: dict[int, tuple[float, LinkLimits | None]] = {}
        self._limits: dict[Link, LinkLimits] = {}

    def came(self, neighbour: Neighbour, resumed: bool) -> None:
        """``neighbour`` is linked."""
        self._missed.pop(neighbour.identity.id, None)
        if not resumed and (limits := self._context.limits.get(neighbour.link)) is not None:
            self._limits[neighbour.link] = limits

    def gone(self, now: float, neighbour: Neighbour) -> None:
        """``neighbour`` is gone: it may have known consumers that nobody else knows."""
        self._missed[neighbour.identity.id] = now, self._limits.pop(neighbour.link, None)

    def may_know(self, link: Link, place: PlaceKey) -> bool:
        """Return whether the neighbour at ``link`` can have messages for ``place``: others have no say."""
        return _may_know(self._limits.get(link), place)

    def of(self, place: PlaceKey) -> list[Neighbour]:
        """The neighbours that can have messages for ``place``."""
        return [each for each in self._context.neighbours if self.may_know(each.link, place)]

    def count(self, place: PlaceKey) -> int:
        """The number of routers that may know a consumer of ``place``, those that were lost lately included."""
        return len(self.of(place)) + sum(_may_know(limits, place) for _, limits in self._missed.values())

    def have_told(self, question: Question, known: int = 0) -> bool:
        """Return whether enough routers have said which consumers they know.

        Args:
            known: the number of routers that the sender knew of; 0: not told.
        """
        if question.silent_routers():
            return False
        told, met = len(question.told), len(self._context.neighbours) + len(self._missed)
        # A new life that has met nobody who is silent may be the next one of the router that is gone.
        speaks = met > told or question.put_at >= self._new_until
        return told + 1 >= self.count(question.place) and told + speaks >= known - 1

    def expire(self, now: float) -> None:
        """Forget those that were lost long ago."""
        for router, (since, _) in list(self._missed.items()):
            if now - since >= _MISSED_SECONDS:
                del self._missed[router]


def _may_know(limits: LinkLimits | None, place: PlaceKey) -> bool:
    """Return whether a router whose link has ``limits`` (None: it has none) may have got messages for ``place``."""
    address, is_group = place
    return limits is None or limits.may_get(address.encode(), is_group)
