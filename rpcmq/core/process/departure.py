"""The time at which a process leaves a router of a mesh that drains, or takes no consumers of its topic.

Not all processes leave at the same time, and none before what it has under way has ended: tasks, calls, casts that no
consumer has. Where routers go on with each other's calls (``adopts``) that keeps it for a moment only, for a task may
run for hours, and this process takes no other work meanwhile. Streams keep it: no other router goes on with them.

A topic of a domain is consumed at one router only. A process whose router was killed goes on at another one, where it
is told so; it goes back when the router of the domain is one of the mesh again.
"""

from __future__ import annotations

from rpcmq.core.process.router_choice import RouterChoice
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.uplink_states import UplinkState

__all__ = ["Departure"]

#: Time over which the processes of a router spread their departures (seconds).
_SPREAD = 0.2
#: Wait for calls and casts, where another router goes on with it; as much again is spread (seconds).
_PATIENCE = 1.0
#: Interval at which it is looked whether something is under way (seconds).
_LOOK_EVERY = 0.02


class Departure:
    """Decides when the process behind ``uplink`` leaves its router because that drains, or another one is to be used.

    Args:
        routers: those that it may go to.
    """

    __slots__ = ("_destination", "_earliest", "_latest", "_look_at", "_routers", "_uplink")

    def __init__(self, uplink: Uplink, routers: RouterChoice) -> None:
        self._uplink = uplink
        self._routers = routers
        self._earliest = self._latest = 0.0
        #: The name of the router that is to be used; empty: any.
        self._destination = ""
        #: None: nothing has been decided for this drain, or destination.
        self._look_at: float | None = None

    def go_to(self, router: str) -> None:
        """Leave for the router of that name as soon as it is one of the mesh, unless this process is there."""
        self._destination = router

    def arrived(self) -> None:
        """A router has welcomed this process: where it is to be is found out anew."""
        self._destination = ""

    @property
    def reason(self) -> str:
        """The reason for which the router is left, in words."""
        return "the router is shutting down" if self._is_draining else f"{self._destination} takes what is served here"

    @property
    def url(self) -> str:
        """The url of the router that is to be used instead; empty: of any, or there is none."""
        mesh = self._uplink.moves.mesh
        if not self._destination or mesh is None:
            return ""
        return self._routers.other(url for name, urls in mesh.routers if name == self._destination for url in urls)

    def is_due(self, now: float, jitter: float) -> bool:
        """Whether to leave now.

        Args:
            jitter: from 0 to 1, this process's place among all that leave; used when the drain begins.
        """
        uplink = self._uplink
        if not self._is_wanted:
            self._look_at = None
            return False
        if self._look_at is None:
            self._earliest, self._latest = now + jitter * _SPREAD, now + (1.0 + jitter) * _PATIENCE
        self._look_at = max(now + _LOOK_EVERY, self._earliest)
        if now < self._earliest:
            return False
        uplink.ask_acknowledgement()
        if uplink.moves.has_streams:
            return False
        if uplink.outbox or uplink.unacknowledged:
            # A router that drains gets nothing new; another one may always have something under way.
            return not self._is_draining and uplink.moves.is_adopted and now >= self._latest
        return not uplink.moves.has_work or (uplink.moves.is_adopted and now >= self._latest)

    @property
    def _is_draining(self) -> bool:
        return self._uplink.state is UplinkState.DRAINING

    @property
    def _is_wanted(self) -> bool:
        if self._uplink.moves.mesh is None or len(self._routers) < 2:
            return False
        return self._is_draining or (self._uplink.state is UplinkState.READY and bool(self.url))

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`is_due` (monotonic seconds); None while the router is to be used."""
        if not self._is_wanted:
            return None
        return self._uplink.heard if self._look_at is None else self._look_at
