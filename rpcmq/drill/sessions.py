"""Sessions with the router: which were resumed, and which casts may run twice because one was not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from rpcmq.drill.disturbances import DELAYING, SILENCING, Disturbances
from rpcmq.drill.history import Event
from rpcmq.drill.lives import Lives
from rpcmq.drill.promises import Bounds, Violation
from rpcmq.drill.work import Start, Work

__all__ = ["LostSession", "Sessions"]


@dataclass(frozen=True)
class LostSession:
    """A session that its router did not resume although it lived on.

    Attributes:
        begin: when the process was linked last before.
        end: when it lost the connection.
        after: when it began the next session.
    """

    begin: float
    end: float
    after: float


class Sessions:
    """Follows the sessions.

    Attributes:
        links: process -> (when, resumed) of each of its sessions.
        lost: process -> its sessions that a router which lived on did not resume.
    """

    def __init__(self, bounds: Bounds, disturbances: Disturbances, lives: Lives) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        self._lives = lives
        self.links: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        self.lost: defaultdict[str, list[LostSession]] = defaultdict(list)

    def linked(self, event: Event) -> Iterator[Violation]:
        """A process has a session with the router: a resumed one if it was not away for too long."""
        resumed: bool = event.fields["resumed"]
        away: float | None = event.fields.get("away")
        links = self.links[event.process]
        # Processes may be back before it was written down that the router is.
        this_life = self._lives.router_ends[-1] if self._lives.router_ends else -inf
        started_over = bool(links) and links[-1][0] > this_life and not resumed
        if started_over:
            session = LostSession(links[-1][0], event.at - (away or 0.0), event.at)
            self.lost[event.process].append(session)
        # Its router may have missed it for longer than it has been without a connection.
        if (
            started_over
            and away is not None
            and away < self._bounds.resume
            and not self._disturbances.during(event.process, event.at - away - self._bounds.resume, event.at, SILENCING)
        ):
            text = f"{event.process} was away for {away:.3f} s and had to start over"
            yield Violation("not resumed", text)
        links.append((event.at, resumed))

    def last_link(self, process: str) -> float:
        """The time at which ``process`` was linked last (seconds of the history)."""
        links = self.links[process]
        return links[-1][0] if links else -inf

    def may_double(self, work: Work, first: Start, event: Event) -> bool:
        """The doubled casts that docs/guarantees.md allows."""
        if work.verb == "call":
            return False
        had = first[1]
        if had == event.process:
            return False
        if self._may_be_sent_again(work, first[0]):
            return True
        starts = [at for at in self._lives.router_starts if at > work.submitted_at]
        if starts and (had in self._lives.dead or had in self._lives.left):
            return True
        # After each start of the router the one that had it must have said so in time.
        window = self._bounds.recovery_window
        if any(self._disturbances.during(had, at, at + window, SILENCING) for at in starts):
            return True
        return any(not any(at <= link <= at + window for link, _ in self.links[had]) for at in starts)

    def _may_be_sent_again(self, work: Work, started_at: float) -> bool:
        """Return whether its sender lost a session with a router that lived on before it can have been acknowledged.

        That router may be the first that it was sent to, or the one after a restart.
        """
        for session in self.lost[work.caller]:
            # Heartbeats carry acknowledgements.
            since = max(started_at, session.begin)
            until = since + self._bounds.heartbeat + self._bounds.recovery_window
            is_told = until <= session.end and not self._disturbances.during(work.caller, since, until, DELAYING)
            if session.after > work.submitted_at and (not is_told or self._disturbances.during("router", since, until)):
                return True
        return False
