"""Check the history of a drill with several routers: which of them a message went by is of no interest, its fate is.

Only the death of a process excuses anything, and only of what that process may have had; the death of a router excuses
nothing. A link between routers that is cut for longer than ``mesh.lost_seconds`` excuses calls that end without a
result; a shorter cut excuses nothing. Pure, as :mod:`rpcmq.drill.checks`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Bounds, Violation
from rpcmq.drill.verdict import Verdict
from rpcmq.drill.work import Work

__all__ = ["LINK", "check_mesh"]

#: The target of a fault of the link between two routers begins with this.
LINK = "link"

#: A handler's own error is an answer.
_ANSWERS = ("ok", "remote_error", "RemoteError")


class _MeshChecker:
    """Looks at events in the order of their time."""

    def __init__(self, bounds: Bounds) -> None:
        self.verdict = Verdict()
        self._bounds = bounds
        self._works: dict[str, Work] = {}
        #: Faults of processes: target, begin, end and whether it was killed.
        self._faults: list[tuple[str, float, float, bool]] = []

    def see(self, event: Event) -> None:
        """The next event."""
        if event.what == What.SUBMIT:
            self._works[event.id] = work = Work(event)
            self.verdict.submitted[work.verb] += 1
        elif event.what in (What.FAULT, What.HEALED):
            self._fault(event)
        elif event.what in (What.START, What.END):
            work_or_none = self._works.get(event.id)
            if work_or_none is None:
                self._misrouted(f"{event.process}: {event.what} of {event.id}, which nobody submitted")
            elif event.what == What.START:
                self._start(event, work_or_none)
            else:
                self._end(event, work_or_none)
        elif event.what == What.DONE and event.fields.get("left"):
            self._violated("not taken", f"{event.process} ended with {event.fields['left']} casts not taken")
        elif event.what == What.COUNTED:
            self.verdict.late += event.fields.get("late answers", 0)

    def _violated(self, check: str, text: str) -> None:
        self.verdict.violations.append(Violation(check, text))

    def _misrouted(self, text: str) -> None:
        self.verdict.misrouted += 1
        self._violated("misrouted", text)

    def _fault(self, event: Event) -> None:
        target = event.fields.get("target", "")
        if target == "router":
            return
        if event.what == What.FAULT:
            self._faults.append((target, event.at, inf, event.id == "kill"))
            return
        for number, (name, begin, end, is_killed) in enumerate(self._faults):
            if name == target and end == inf:
                self._faults[number] = (name, begin, event.at, is_killed)

    def _start(self, event: Event, work: Work) -> None:
        if event.fields.get("topic", work.topic) != work.topic:
            self._misrouted(f"{event.id} is for {work.topic!r} and was run for {event.fields['topic']!r}")
        before = [start for start in work.starts if work.verb != "fanout" or start[1] == event.process]
        work.starts.append((event.at, event.process, event.fields.get("attempt", 0)))
        if before and not work.idempotent:
            self.verdict.doubled += 1
            self._violated(
                "started twice",
                f"{work.verb} {event.id} of {work.caller} was started by {before[0][1]} at {before[0][0]:.3f} "
                f"and by {event.process} at {event.at:.3f}",
            )

    def _end(self, event: Event, work: Work) -> None:
        outcome, of = event.fields["outcome"], event.fields.get("of")
        if event.process != work.caller or (of is not None and of != event.id):
            self._misrouted(f"{event.process} got for {event.id} of {work.caller} an answer to {of or event.id}")
        if work.ended_at is not None:
            self._violated("ended twice", f"{event.id} of {work.caller} ended with {work.outcome}, then with {outcome}")
            return
        work.ended_at, work.outcome = event.at, outcome
        if work.verb == "call":
            self.verdict.ended[outcome] += 1
            if outcome == "ok" and not work.starts:
                self._violated("answered by nobody", f"{event.id} has a result and was never started")
        if outcome not in _ANSWERS and not self._is_excused(work, event.at):
            text = f"{work.verb} {event.id} of {work.caller} ended with {outcome}: {event.fields.get('text', '')}"
            self._violated("failed", text)

    def _is_excused(self, work: Work, until: float) -> bool:
        """Return whether a process had a fault that ``work`` may have felt."""
        since = work.submitted_at - self._bounds.recovery
        return any(
            begin < until
            and end > since
            and (not name.startswith(LINK) or min(end, until) - begin >= self._bounds.parted)
            for name, begin, end, _ in self._faults
        )

    def finish(self) -> Verdict:
        """Check the complete history for missing events."""
        killed = [(target, begin) for target, begin, _, is_killed in self._faults if is_killed]
        dead = {target for target, _ in killed}
        for id, work in self._works.items():
            if work.waits and work.ended_at is None and work.caller not in dead:
                self._violated("never ended", f"{work.verb} {id} of {work.caller} has never ended")
            if work.verb != "cast" or work.starts or (work.ended_at is not None and work.outcome != "ok"):
                continue
            if any(begin > work.submitted_at for _, begin in killed):
                self.verdict.forgotten += 1
                continue
            self.verdict.lost += 1
            self._violated("lost", f"cast {id} of {work.caller} was never started")
        return self.verdict


def check_mesh(events: Iterable[Event], bounds: Bounds) -> Verdict:
    """The verdict on a whole history of a drill with several routers."""
    checker = _MeshChecker(bounds)
    for event in events:
        checker.see(event)
    return checker.finish()
