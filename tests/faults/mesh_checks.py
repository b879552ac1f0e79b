"""The guarantees of a mesh, checked in a history: events in, violations out, each of which names what it is about."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import Protocol

from rpcmq.drill.history import Event
from rpcmq.drill.promises import Violation
from rpcmq.drill.verdict import Verdict
from rpcmq.drill.work import Work
from tests.faults.mesh_copy_checks import CopyChecks
from tests.faults.mesh_event_checks import EventChecks
from tests.faults.mesh_stream_checks import StreamChecks

__all__ = ["MeshChecker"]

_RESULTS = ("ok", "remote_error")
_LOST, _LATE = ("link_lost", "LinkLost"), ("timeout", "CallTimeout")
#: Ends of calls that the guarantees allow where several things fail at a time.
_ENDS = (*_RESULTS, *_LOST, *_LATE, "no_consumer")
#: A timeout of more seconds than this leads to a result wherever one thing fails at a time.
_AMPLE = 100.0
#: A call ends so many seconds after its timeout at the latest; the clock of a run goes in steps of a tenth.
_GRACE, _STEP = 0.5, 0.1


class Part(Protocol):
    """Checks one kind of promise."""

    def see(self, event: Event) -> None:
        """The next event."""

    def finish(self) -> None:
        """The history is complete."""


class MeshChecker:
    """Looks at events in the order of their time.

    Args:
        is_gentle: whether one thing fails at a time, and all processes live: then nothing is lost.
        is_stable: whether nothing fails at all: then what one process sends to a topic stays in order.
        patience: seconds after which what a router that is cut off from all others may have started is given up.
    """

    def __init__(self, is_gentle: bool, is_stable: bool, patience: float = inf) -> None:
        self.verdict = Verdict()
        self._is_gentle = is_gentle
        self._is_stable = is_stable
        self._patience = patience
        #: Since when each router is cut off from all others, and (since, until) of each time that this was so.
        self._isolated_at: dict[str, float] = {}
        self._isolations: list[tuple[float, float]] = []
        self._works: dict[str, Work] = {}
        self._dead: set[str] = set()
        #: The order in which messages were sent.
        self._numbers: dict[str, int] = {}
        #: The server that each message names.
        self._servers: dict[str, str] = {}
        #: The latest message that each consumer has started, by sender, verb, topic and server.
        self._latest: dict[tuple[str, ...], str] = {}
        #: The seconds for which each process was stopped, by its place.
        self._stopped: defaultdict[str, float] = defaultdict(float)
        #: Since when a process is stopped.
        self._stopped_at: dict[str, float] = {}
        self._parts: tuple[Part, ...] = (
            CopyChecks(self._violated, is_stable),
            StreamChecks(self._violated),
            EventChecks(self._violated),
        )

    def see(self, event: Event) -> None:
        """The next event."""
        handler = getattr(self, f"_on_{event.what}", None)
        if handler is not None:
            handler(event)
        for part in self._parts:
            part.see(event)

    def _violated(self, check: str, text: str) -> None:
        self.verdict.violations.append(Violation(check, text))

    def _on_submit(self, event: Event) -> None:
        self.verdict.submitted[event.fields["verb"]] += 1
        if event.fields["verb"] == "event":
            return
        self._works[event.id] = Work(event)
        self._numbers[event.id] = len(self._numbers)
        self._servers[event.id] = event.fields.get("server", "")

    def _work(self, event: Event) -> Work | None:
        work = self._works.get(event.id)
        if work is None:
            self._violated("misrouted", f"{event.process}: {event.what} of {event.id}, which nobody sent")
        return work

    def _on_start(self, event: Event) -> None:
        work = self._work(event)
        if work is None:
            return
        if event.fields["topic"] != work.topic:
            self._violated("misrouted", f"{event.id} is for {work.topic!r}, and was run for {event.fields['topic']!r}")
        if event.fields.get("group") or work.verb == "fanout":
            return  # a copy
        if work.starts and not work.idempotent:
            at, first, _ = work.starts[-1]
            self.verdict.doubled += 1
            self._violated(
                "started twice",
                f"{work.verb} {event.id} was started by {first} at {at:.3f} and by {event.process} at {event.at:.3f}",
            )
        work.starts.append((event.at, event.process, event.fields.get("attempt", 0)))
        if self._is_stable:
            if work.consumers == 1:  # one that is given another one late has had later ones before
                self._is_in_order(event, work)
            self._is_in_time(event, work)

    def _is_in_order(self, event: Event, work: Work) -> None:
        name = event.process, work.caller, work.verb, work.topic, self._servers[event.id]
        before = self._latest.get(name, event.id)
        if self._numbers[before] > self._numbers[event.id]:
            self._violated("order", f"{event.process} has started {event.id} of {work.caller} after {before}")
        self._latest[name] = event.id

    def _is_in_time(self, event: Event, work: Work) -> None:
        if work.ended_at is not None and work.verb != "cast" and event.at > work.ended_at + _STEP:
            self._violated(
                "started late", f"{event.process} has started {event.id} at {event.at:.3f}, {work.outcome} before"
            )

    def _on_end(self, event: Event) -> None:
        work = self._work(event)
        if work is None:
            return
        outcome, of = event.fields["outcome"], event.fields.get("of", event.id)
        if event.process != work.caller or of != event.id:
            self._violated("misrouted", f"{event.process} got an answer to {of} for {event.id} of {work.caller}")
        if work.ended_at is not None:
            self._violated("ended twice", f"{event.id} ended with {work.outcome}, and again with {outcome}")
            return
        work.ended_at, work.outcome = event.at, outcome
        if work.verb in ("call", "stream"):
            self.verdict.ended[outcome] += 1
            if outcome in _RESULTS and not work.starts:
                self._violated("answered by nobody", f"{event.id} has a result, and was never started")
            self._is_overdue(event, work)
        if outcome in _LOST and self._is_given_up(work):
            return
        if outcome != "cancelled" and outcome not in self._allowed(work):
            self._violated("no result", f"{work.verb} {event.id} of {work.caller} ended with {outcome}")

    def _allowed(self, work: Work) -> tuple[str, ...]:
        """The ends that ``work`` may have, unless its caller gives up."""
        if not self._is_gentle:
            return _ENDS
        allowed: tuple[str, ...] = _RESULTS
        if work.verb == "stream" and not self._is_stable:
            allowed += _LOST  # nobody goes on with those of another router
        if work.timeout is not None and work.timeout < _AMPLE:
            allowed += _LATE
        return allowed

    def _is_given_up(self, work: Work) -> bool:
        """Return whether ``work`` was under way while a router was cut off so long that nobody waits for it."""
        if work.idempotent:
            return False
        still = ((since, inf) for since in self._isolated_at.values())
        return any(
            work.submitted_at < until and until - since > self._patience
            and (work.ended_at is None or work.ended_at >= since + self._patience)
            for since, until in (*self._isolations, *still)
        )  # fmt: skip

    def _is_overdue(self, event: Event, work: Work) -> None:
        if work.verb == "stream" or work.timeout is None:
            return
        late = event.at - work.submitted_at - work.timeout - _GRACE - 2 * _STEP
        place = work.caller.partition("#")[0]
        held_up = self._stopped[place] + event.at - self._stopped_at.get(place, event.at)
        if late > held_up + (_GRACE if held_up else 0.0):
            self._violated("overdue", f"{work.verb} {event.id} ended {late:.3f} s after its timeout")

    def _on_fault(self, event: Event) -> None:
        if event.id == "kill":
            self._dead.add(event.fields["target"])
        elif event.id == "stop":
            self._stopped_at[event.fields["target"]] = event.at
        elif event.id == "isolate router":
            self._isolated_at[event.fields["target"]] = event.at

    def _on_healed(self, event: Event) -> None:
        if event.id == "stop":
            target = event.fields["target"]
            self._stopped[target] += event.at - self._stopped_at.pop(target, event.at)
        elif event.id == "isolate router":
            self._isolations.append((self._isolated_at.pop(event.fields["target"], event.at), event.at))

    def finish(self) -> Verdict:
        """Check the complete history for missing events."""
        unrun: defaultdict[str, list[str]] = defaultdict(list)
        for id, work in self._works.items():
            waits = work.waits or work.verb == "stream"
            if waits and work.ended_at is None and work.caller.partition("#")[0] not in self._dead:
                self._violated("never ended", f"{work.verb} {id} of {work.caller} has never ended")
            if work.verb == "cast" and not work.starts:
                self.verdict.lost += 1
                if not self._is_given_up(work):
                    unrun[work.caller].append(id)
        for caller, ids in unrun.items():
            if self._is_gentle:
                self._violated("lost", f"nobody ran the casts {', '.join(ids)} of {caller}")
        for part in self._parts:
            part.finish()
        return self.verdict
