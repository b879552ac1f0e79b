"""Faults by target and time: lateness and failures they cause are excused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["DELAYING", "DISTURBING", "RESTART", "SILENCE", "SILENCING", "Disturbances"]

#: The router is stopped (SIGSTOP) for so long that its processes must notice.
SILENCE = "silence"
#: The router is stopped in order (SIGTERM), and started again.
RESTART = "restart"
#: Faults after which a process, or everybody if it is the router, may be late.
DISTURBING = ("stop", SILENCE, "cut", "hog", "delay", "kill", RESTART, "reset", "fds")
SILENCING = ("stop", SILENCE, "cut", "delay")
DELAYING = (*SILENCING, "hog", "fds")


#: Time after a stall in which what waited meanwhile is caught up with (seconds).
_AFTER_A_STALL = 0.5


@dataclass
class _Disturbance:
    kind: str
    begin: float
    end: float = inf


class Disturbances:
    """The faults of a history, as far as it has come.

    Args:
        stalls: begin and end of each time in which the whole machine stood still: everybody is disturbed by it.
    """

    def __init__(self, stalls: Sequence[tuple[float, float]] = ()) -> None:
        self._stalls = [(begin, end + _AFTER_A_STALL) for begin, end in stalls]
        self._of: defaultdict[str, list[_Disturbance]] = defaultdict(list)

    def begin(self, at: float, kind: str, target: str) -> None:
        """A fault begins."""
        if kind in DISTURBING:
            self._of[target].append(_Disturbance(kind, at))

    def end(self, at: float, kind: str, target: str) -> None:
        """It is over."""
        for fault in self._of.get(target, ()):
            if fault.kind == kind:
                fault.end = min(fault.end, at)

    def during(self, target: str, since: float, until: float, kinds: tuple[str, ...] = DISTURBING) -> bool:
        """Return whether one of ``kinds`` disturbs ``target`` at some time between ``since`` and ``until``."""
        if self.stalled_seconds(since, until):
            return True
        faults = self._of.get(target, ())
        return any(f.begin < until and f.end > since and f.kind in kinds for f in faults)

    def stalled_seconds(self, since: float, until: float) -> float:
        """The seconds between ``since`` and ``until`` in which the machine stood still, or caught up."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in self._stalls)
