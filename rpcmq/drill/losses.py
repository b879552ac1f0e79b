"""Casts that nobody ran: which of them may be lost, and which were."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf

from rpcmq.drill.disturbances import DISTURBING, Disturbances
from rpcmq.drill.lives import Lives
from rpcmq.drill.promises import Bounds
from rpcmq.drill.sessions import Sessions
from rpcmq.drill.work import Work

__all__ = ["Losses"]


class Losses:
    """Judges casts that nobody ran.

    Args:
        accepted: what the present life of the router has accepted.
        dispatched: id -> to whom it was sent, and at which attempt.
    """

    def __init__(
        self,
        bounds: Bounds,
        disturbances: Disturbances,
        lives: Lives,
        sessions: Sessions,
        accepted: Collection[str],
        dispatched: Mapping[str, list[tuple[str, int]]],
    ) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        self._lives = lives
        self._sessions = sessions
        self._accepted = accepted
        self._dispatched = dispatched

    def fate(self, id: str, work: Work) -> str:
        """Return ``told`` (to its sender, or never sent), ``forgotten``, ``dropped`` or ``lost``; see ``Verdict``."""
        if work.outcome not in ("", "ok") or work.settled == "refused":
            return "told"
        since = work.submitted_at if work.confirmed_at is None else work.confirmed_at
        if any(kill >= since and self._may_be_lost(id, work, since, kill) for kill in self._lives.router_kills):
            return "forgotten"
        if work.settled:
            return "dropped"
        if work.confirmed_at is None and work.caller in self._lives.dead and not self._must_have_left(id, work):
            return "told"
        return "lost"

    def _must_have_left(self, id: str, work: Work) -> bool:
        """Return whether the router has a cast, or must have it, whose sender was killed."""
        if id in self._accepted:
            return True
        killed = self._lives.dead[work.caller]
        if work.returned_at is None or killed < work.returned_at + self._bounds.sent:
            return False
        since = work.returned_at - self._bounds.recovery
        others = tuple(kind for kind in DISTURBING if kind != "kill")
        disturbances = self._disturbances
        return not (
            disturbances.during(work.caller, since, killed, others) or disturbances.during("router", since, killed)
        )

    def _may_be_lost(self, id: str, work: Work, since: float, kill: float) -> bool:
        """Return whether a cast that a killed router had is one that its sender did not have to offer again."""
        caller, lives = work.caller, self._lives
        if caller in lives.dead or caller in lives.left or lives.done.get(caller, inf) <= kill:
            return True
        # Its consumer had it, and went with it: the router that would have said so is no more.
        if any(to in lives.dead for to, _ in self._dispatched.get(id, ())):
            return True
        # Its sender lost its session with a router that lived on, and left its casts to that, until it was killed.
        return any(since < session.after <= kill for session in self._sessions.lost[caller])
