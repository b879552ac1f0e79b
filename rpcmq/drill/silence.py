"""A silent router: its processes must notice, log it, give up the connection in time, and reconnect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from rpcmq.drill.disturbances import SILENCE, Disturbances
from rpcmq.drill.history import ANSWERS, SILENT, Event, What
from rpcmq.drill.promises import Bounds, Violation

__all__ = ["Silence"]


@dataclass
class _Silence:
    begin: float
    end: float = inf


class Silence:
    """Checks what processes log while their router is silent."""

    def __init__(self, bounds: Bounds, disturbances: Disturbances) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        self._silences: list[_Silence] = []
        #: Process -> when it said so.
        self._said: defaultdict[str, list[float]] = defaultdict(list)
        #: Process -> when it said that the router answers again.
        self._answered: defaultdict[str, list[float]] = defaultdict(list)
        #: Process -> when it had a session.
        self._linked: defaultdict[str, list[float]] = defaultdict(list)
        #: Process -> when it ended.
        self._gone: dict[str, float] = {}

    def see(self, event: Event) -> None:
        """The next event."""
        what, at = event.what, event.at
        if what == What.SAYS:
            {SILENT: self._said, ANSWERS: self._answered}[event.id][event.process].append(at)
        elif what == What.LINKED:
            self._linked[event.process].append(at)
        elif what == What.FAULT and event.id == SILENCE:
            self._silences.append(_Silence(at))
        elif what == What.HEALED and event.id == SILENCE and self._silences:
            self._silences[-1].end = at
        elif what == What.DONE:
            self._gone.setdefault(event.process, at)
        elif what == What.FAULT and event.id in ("kill", "leave"):
            self._gone.setdefault(event.fields.get("target", ""), at)

    def violations(self) -> Iterator[Violation]:
        """Of each process and each time that the router was silent."""
        for silence in self._silences:
            until = silence.end + self._bounds.recovery
            for process, links in self._linked.items():
                begun = silence.begin - self._bounds.unresponsive
                if links[0] > begun or self._gone.get(process, inf) < until:
                    continue
                # By something else: of the router, that is another fault before.
                if self._disturbances.during(process, begun, until) or self._disturbances.during(
                    "router", begun, silence.begin
                ):
                    continue
                yield from self._of(process, silence)

    def _of(self, process: str, silence: _Silence) -> Iterator[Violation]:
        bounds, lasted = self._bounds, silence.end - silence.begin
        said = next((at - silence.begin for at in self._said[process] if silence.begin < at < silence.end), None)
        if lasted < bounds.unresponsive + bounds.noticed:
            return
        if said is None or said > bounds.unresponsive + bounds.noticed:
            when = "did not say so" if said is None else f"said so after {said:.3f} s"
            yield self._violation("silence not noticed", process, silence, when)
            return
        # What was heard last may be as old as a heartbeat.
        if said < bounds.unresponsive - bounds.heartbeat:
            yield self._violation("called silent too early", process, silence, f"said so after {said:.3f} s")
        is_given_up = lasted >= bounds.lost + bounds.noticed
        back = self._linked[process] if is_given_up else [*self._answered[process], *self._linked[process]]
        until = silence.end + bounds.recovery
        since = silence.begin + bounds.lost - bounds.heartbeat if is_given_up else silence.begin + said
        if not any(since < at <= until for at in back):
            how = "make another connection" if is_given_up else "say that it answers again"
            yield self._violation("not back after silence", process, silence, f"did not {how} by {until:.3f}")

    def _violation(self, check: str, process: str, silence: _Silence, what: str) -> Violation:
        times = f"from {silence.begin:.3f} to {silence.end:.3f}"
        return Violation(check, f"the router was silent {times}; {process} {what}")
