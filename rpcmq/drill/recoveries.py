"""After the router's return each caller gets an answer again, soon."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from rpcmq.drill.disturbances import RESTART, SILENCE, Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.lives import Lives
from rpcmq.drill.promises import Bounds, Violation
from rpcmq.drill.work import Work

__all__ = ["Recoveries"]

#: A message sent longer before the return than this (seconds) may have been answered before it.
_SENT_WITHIN = 60.0


@dataclass
class _Return:
    """The router has come back: who has not had an answer since."""

    at: float
    waiting: set[str]


class Recoveries:
    """Checks how soon callers have an answer after the router's return.

    Attributes:
        longest: of these times (seconds).

    Args:
        works: all calls and casts so far, by their ids.
        callers: processes that call for themselves.
    """

    def __init__(
        self,
        bounds: Bounds,
        disturbances: Disturbances,
        lives: Lives,
        works: Mapping[str, Work],
        callers: Collection[str],
    ) -> None:
        self.longest = 0.0
        self._bounds = bounds
        self._disturbances = disturbances
        self._lives = lives
        self._works = works
        self._callers = callers
        self._returns: list[_Return] = []
        self._late: list[tuple[str, float]] = []
        self._now = 0.0

    def see(self, event: Event) -> None:
        """The next event."""
        self._now = event.at
        target = event.fields.get("target", "")
        if event.what == What.END and event.fields["outcome"] == "ok":
            self._answered(event)
        elif event.what == What.DONE:
            for each in self._returns:
                each.waiting.discard(event.process)
        elif event.what == What.EXITED or (event.what == What.FAULT and (event.id, target) == ("kill", "router")):
            self._returns = []
        elif event.what == What.HEALED and target == "router" and event.id in ("kill", RESTART, SILENCE):
            gone = self._lives.dead.keys() | self._lives.done.keys()
            self._returns.append(_Return(event.at, {each for each in self._callers if each not in gone}))

    def _answered(self, event: Event) -> None:
        work = self._works.get(event.id)
        for each in self._returns:
            if work is not None and event.process in each.waiting and work.submitted_at >= each.at - _SENT_WITHIN:
                each.waiting.discard(event.process)
                self._recovered(event.process, self._running_seconds(each.at, event.at))
        self._returns = [each for each in self._returns if each.waiting]

    def _running_seconds(self, since: float, until: float) -> float:
        return until - since - self._disturbances.stalled_seconds(since, until)

    def _recovered(self, caller: str, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        if seconds > self._bounds.recovery:
            self._late.append((caller, seconds))

    def violations(self) -> Iterator[Violation]:
        """Report callers that waited for too long, or still do."""
        for each in self._returns:
            for caller in sorted(each.waiting - self._lives.dead.keys() - self._lives.done.keys()):
                seconds = self._running_seconds(each.at, self._now)
                if seconds > self._bounds.recovery:
                    self._recovered(caller, seconds)
        for caller, seconds in self._late:
            text = f"{caller} had its first answer {seconds:.3f} s after the router's return"
            yield Violation("slow recovery", text)
