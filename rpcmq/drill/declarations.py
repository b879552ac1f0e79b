"""The router's declarations about processes: none too early, and nothing is sent to one that it has declared silent."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from rpcmq.drill.disturbances import Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Bounds, Violation
from rpcmq.drill.sessions import Sessions

__all__ = ["Declarations"]


class Declarations:
    """Checks the states of processes."""

    def __init__(self, bounds: Bounds, disturbances: Disturbances, sessions: Sessions) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        self._sessions = sessions
        self._violations: list[Violation] = []
        #: Target -> when its connections were reset last.
        self._reset: dict[str, float] = {}
        #: Target -> since when it is stopped.
        self._stopped: dict[str, float] = {}
        self._unresponsive: dict[str, float] = {}

    def see(self, event: Event) -> None:
        """The next event."""
        target = event.fields.get("target", "")
        if event.what == What.FAULT and event.id == "stop":
            self._stopped[target] = event.at
        elif event.what == What.FAULT and event.id == "reset":
            self._reset[target] = event.at
        elif event.what == What.HEALED and event.id == "stop":
            self._stopped.pop(target, None)
        elif event.what == What.EXITED or (event.what == What.FAULT and (event.id, target) == ("kill", "router")):
            self._unresponsive.clear()
        elif event.what == What.DISPATCH:
            self._dispatched(event)
        elif event.what == What.DECLARED:
            self._declared(event)

    def violations(self) -> Iterable[Violation]:
        """Declarations that came too early, and messages sent to silent processes."""
        return self._violations

    def _dispatched(self, event: Event) -> None:
        to = event.fields["to"]
        if to in self._unresponsive:
            since = event.at - self._unresponsive[to]
            text = f"{event.id} was sent to {to} {since:.3f} s after it was declared unresponsive"
            self._violations.append(Violation("sent to a silent process", text))

    def _declared(self, event: Event) -> None:
        target, state = event.id, event.fields["state"]
        if state == "answering":
            self._unresponsive.pop(target, None)
            return
        stopped = self._stopped.get(target)
        promised = self._bounds.lost if state in ("away", "ended") else self._bounds.unresponsive
        excused = self._disturbances.during(target, event.at - promised, event.at, ("kill", "cut", "delay"))
        # A stopped router has received nothing.
        excused |= self._disturbances.during("router", event.at - promised, event.at)
        # One whose connection was reset, and that has not made another since, is away and not silent. The router may
        # notice that only when it has something to send.
        excused |= state == "away" and self._reset.get(target, -inf) > self._sessions.last_link(target)
        if stopped is not None and not excused:
            # What was heard last may be as old as a heartbeat when the stop comes.
            early = promised - self._bounds.heartbeat - (event.at - stopped)
            if early > 0:
                text = (
                    f"{target} was declared {state} {event.at - stopped:.3f} s after it was stopped; "
                    f"{promised:g} s of silence are allowed"
                )
                self._violations.append(Violation("declared too early", text))
        if state == "unresponsive":
            self._unresponsive[target] = event.at
