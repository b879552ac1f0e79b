"""The time at which a process leaves a router of a mesh that drains, or takes no consumers of its topic.

Not all processes leave at the same time, and none before what it has under way has ended: tasks, calls, casts that no
consumer has. Where routers go on with each other's calls (``adopts``) that keeps it for a moment only, for a task may
run for hours, and this process takes no other work meanwhile. Streams keep it: no other router goes on with them.

A topic of a domain is consumed at one router only. A process whose router was killed goes on at another one, where it
is told so; it goes back when the router of the domain is one of the mesh again.

A router that has more processes than others asks some of its own to go there. Such a move is of no use to the process
itself: it goes within some seconds when it has nothing under way, or not at all; not from a router of its configuration
to one that it has only learned of, nor a second time to one that it could not reach.
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
#: Time after which a process that was asked to go, and could not, stays (seconds).
_ASKED_SECONDS = 5.0
#: Most urls that are remembered because they were not reached.
_MOST_UNREACHED = 100
#: Interval at which it is looked whether something is under way (seconds).
_LOOK_EVERY = 0.02


class Departure:
    """Decides when the process behind ``uplink`` leaves its router because that drains, or another one is to be used.

    Args:
        routers: those that it may go to.
    """

    __slots__ = (
        "_asked_until", "_destination", "_earliest", "_latest", "_look_at", "_offered", "_routers", "_tried",
        "_unreached", "_uplink",
    )  # fmt: skip

    def __init__(self, uplink: Uplink, routers: RouterChoice) -> None:
        self._uplink = uplink
        self._routers = routers
        self._earliest = self._latest = 0.0
        #: The name of the router that is to be used; empty: any.
        self._destination = ""
        #: A url of the router that this process is asked to go on at, empty: none; and until when (monotonic seconds).
        self._offered = ""
        self._asked_until = 0.0
        #: The url for which the last router was left as it had asked for that; and such ones that were not reached.
        self._tried = ""
        self._unreached: set[str] = set()
        #: None: nothing has been decided for this drain, or destination.
        self._look_at: float | None = None

    def go_to(self, router: str) -> None:
        """Leave for the router of that name as soon as it is one of the mesh, unless this process is there."""
        self._destination = router

    def asked(self, now: float, url: str) -> None:
        """Leave for the router that has ``url`` among its urls, as it has fewer processes, if that can be done soon."""
        self._offered, self._asked_until = url, now + _ASKED_SECONDS

    def arrived(self) -> None:
        """A router has welcomed this process: where it is to be is found out anew."""
        if self._tried and self._tried != self._routers.url:
            if len(self._unreached) >= _MOST_UNREACHED:
                self._unreached.clear()
            self._unreached.add(self._tried)
        self._unreached.discard(self._routers.url)
        self._destination = self._offered = self._tried = ""

    def leave(self) -> str:
        """The router is left, as :meth:`is_due` has decided; return the url of the next one, as :attr:`url` has it."""
        url = self.url
        self._tried = "" if self._is_draining or self._destination else url
        return url

    @property
    def reason(self) -> str:
        """The reason for which the router is left, in words."""
        if self._is_draining:
            return "the router is shutting down"
        if self._destination:
            return f"{self._destination} takes what is served here"
        return "the router has more processes than its share"

    @property
    def url(self) -> str:
        """The url of the router that is to be used instead; empty: of any, or there is none."""
        mesh = self._uplink.moves.mesh
        if mesh is None:
            return ""
        if self._destination:
            return self._routers.other(url for name, urls in mesh.routers if name == self._destination for url in urls)
        if not self._offered:
            return ""
        url = self._routers.other(url for _, urls in mesh.routers if self._offered in urls for url in urls)
        return url if url not in self._unreached and self._routers.may_go_to(url) else ""

    def is_due(self, now: float, jitter: float) -> bool:
        """Return whether to leave now.

        Args:
            jitter: from 0 to 1, this process's place among all that leave; used when the drain begins.
        """
        uplink = self._uplink
        if self._offered and now >= self._asked_until:
            self._offered = ""
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
        is_over = self._is_needed and uplink.moves.is_adopted and now >= self._latest
        if uplink.outbox or uplink.unacknowledged:
            # A router that drains gets nothing new; another one may always have something under way.
            return not self._is_draining and is_over
        return not uplink.moves.has_work or is_over

    @property
    def _is_needed(self) -> bool:
        """Whether the process cannot stay: what it does goes on elsewhere, or is done again."""
        return self._is_draining or bool(self._destination)

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
