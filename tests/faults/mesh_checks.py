"""The guarantees of a mesh, checked in a history: events in, violations out, each of which names what it is about."""

from __future__ import annotations

from collections import defaultdict

from rpcmq.drill.history import Event
from rpcmq.drill.promises import Violation
from rpcmq.drill.verdict import Verdict
from rpcmq.drill.work import Work

__all__ = ["MeshChecker"]

_RESULTS = ("ok", "remote_error")
#: Ends of calls that the guarantees allow where several things fail at a time.
_ENDS = (*_RESULTS, "link_lost", "LinkLost", "timeout", "CallTimeout", "no_consumer")


class MeshChecker:
    """Looks at events in the order of their time.

    Args:
        is_gentle: whether one thing fails at a time, and all processes live: then nothing is lost.
        is_stable: whether nothing fails at all: then what one process sends to a topic stays in order.
    """

    def __init__(self, is_gentle: bool, is_stable: bool) -> None:
        self.verdict = Verdict()
        self._is_gentle = is_gentle
        self._is_stable = is_stable
        self._works: dict[str, Work] = {}
        self._dead: set[str] = set()
        #: The order in which messages were sent.
        self._numbers: dict[str, int] = {}
        #: The server that each message names.
        self._servers: dict[str, str] = {}
        #: The latest message that each consumer has started, by sender, verb, topic and server.
        self._latest: dict[tuple[str, ...], str] = {}

    def see(self, event: Event) -> None:
        """The next event."""
        handler = getattr(self, f"_on_{event.what}", None)
        if handler is not None:
            handler(event)

    def _violated(self, check: str, text: str) -> None:
        self.verdict.violations.append(Violation(check, text))

    def _on_submit(self, event: Event) -> None:
        self._works[event.id] = Work(event)
        self._numbers[event.id] = len(self._numbers)
        self._servers[event.id] = event.fields.get("server", "")
        self.verdict.submitted[event.fields["verb"]] += 1

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
        if work.starts and not work.idempotent:
            at, first, _ = work.starts[-1]
            self.verdict.doubled += 1
            self._violated(
                "started twice",
                f"{work.verb} {event.id} was started by {first} at {at:.3f} and by {event.process} at {event.at:.3f}",
            )
        work.starts.append((event.at, event.process, event.fields.get("attempt", 0)))
        if self._is_stable:
            self._is_in_order(event, work)

    def _is_in_order(self, event: Event, work: Work) -> None:
        name = event.process, work.caller, work.verb, work.topic, self._servers[event.id]
        before = self._latest.get(name, event.id)
        if self._numbers[before] > self._numbers[event.id]:
            self._violated("order", f"{event.process} has started {event.id} of {work.caller} after {before}")
        self._latest[name] = event.id

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
        if work.verb == "call":
            self.verdict.ended[outcome] += 1
            if outcome in _RESULTS and not work.starts:
                self._violated("answered by nobody", f"{event.id} has a result, and was never started")
        allowed = _RESULTS if self._is_gentle else _ENDS
        if outcome not in allowed:
            self._violated("no result", f"{work.verb} {event.id} of {work.caller} ended with {outcome}")

    def _on_fault(self, event: Event) -> None:
        if event.id == "kill":
            self._dead.add(event.fields["target"])

    def finish(self) -> Verdict:
        """Check the complete history for missing events."""
        unrun: defaultdict[str, list[str]] = defaultdict(list)
        for id, work in self._works.items():
            if work.waits and work.ended_at is None and work.caller.partition("#")[0] not in self._dead:
                self._violated("never ended", f"{work.verb} {id} of {work.caller} has never ended")
            if work.verb == "cast" and not work.starts:
                unrun[work.caller].append(id)
        for caller, ids in unrun.items():
            self.verdict.lost += len(ids)
            if self._is_gentle:
                self._violated("lost", f"nobody ran the casts {', '.join(ids)} of {caller}")
        return self.verdict
