"""The time at which a process leaves a router of a mesh that drains, and goes on at another one.

Not all processes leave at the same time, and none before what it has under way has ended: tasks, calls, casts that no
consumer has. Where routers go on with each other's calls (``adopts``) that keeps it for a moment only, for a task may
run for hours, and this process takes no other work meanwhile. Streams keep it: no other router goes on with them.
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
    """Decides when the process behind ``uplink`` leaves its router because that drains.

    Args:
        routers: those that it may go to.
    """

    __slots__ = ("_earliest", "_latest", "_look_at", "_routers", "_uplink")

    def __init__(self, uplink: Uplink, routers: RouterChoice) -> None:
        self._uplink = uplink
        self._routers = routers
        self._earliest = self._latest = 0.0
        #: None: nothing has been decided for this drain.
        self._look_at: float | None = None

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
        if uplink.outbox or uplink.unacknowledged or uplink.moves.has_streams:
            return False
        return not uplink.moves.has_work or (uplink.moves.is_adopted and now >= self._latest)

    @property
    def _is_wanted(self) -> bool:
        uplink = self._uplink
        return uplink.state is UplinkState.DRAINING and uplink.moves.mesh is not None and len(self._routers) > 1

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`is_due` (monotonic seconds); None while the router does not drain."""
        if not self._is_wanted:
            return None
        return self._uplink.heard if self._look_at is None else self._look_at
