"""Check a history against the guarantees. Pure: events in, violations out, each of which names what it is about.

:class:`Checker` looks at each event as it comes, and at the end at what should have happened and did not. What
holds and what does not is what docs/guarantees.md says; where it names an exception, so does the code here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from rpcmq.drill.accounts import Accounts
from rpcmq.drill.busy import Busy
from rpcmq.drill.connections import Connections
from rpcmq.drill.declarations import Declarations
from rpcmq.drill.disturbances import DISTURBING, RESTART, Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.late_answers import LateAnswers
from rpcmq.drill.lives import Lives
from rpcmq.drill.losses import Losses
from rpcmq.drill.payloads import Payloads
from rpcmq.drill.promises import Bounds, Violation
from rpcmq.drill.recoveries import Recoveries
from rpcmq.drill.restarts import Restarts
from rpcmq.drill.sessions import Sessions
from rpcmq.drill.silence import Silence
from rpcmq.drill.verdict import Judge, Verdict
from rpcmq.drill.work import Start, Work

__all__ = ["Bounds", "Checker", "Verdict", "Violation", "check"]

#: Outcomes of a call or cast for its caller, in the words of real processes and of the simulation; all else is an
#: error of the library, or of the drill.
_ENDS = (
    "ok", "remote_error", "timeout", "link_lost", "no_consumer", "overloaded", "cancelled", "refused", "CallTimeout",
    "LinkLost", "NoConsumer", "Overloaded", "RemoteError", "AccessDenied", "RouterUnreachable",
)  # fmt: skip
_NEVER = inf


class Checker:
    """Looks at events in the order of their time.

    Args:
        bounds: the times that are promised.
        stalls: begin and end of each time in which the machine stood still, which excuses lateness.
    """

    def __init__(self, bounds: Bounds | None = None, stalls: Sequence[tuple[float, float]] = ()) -> None:
        self.bounds = bounds or Bounds()
        self.verdict = Verdict()
        self._works: dict[str, Work] = {}
        #: Process -> messages it runs.
        self._running: defaultdict[str, set[str]] = defaultdict(set)
        self._callers: dict[str, None] = {}
        self._disturbances = disturbances = Disturbances(stalls)
        #: Whether the history has what the router does.
        self._is_watched = False
        #: Messages that this life of the router has accepted.
        self._accepted: set[str] = set()
        #: The messages that any has taken, and those taken more than once.
        self._ever_accepted: set[str] = set()
        self._accepted_again: set[str] = set()
        #: Id -> to whom it was sent, and at which attempt.
        self._dispatched: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        #: Process -> the calls that it was the last to be given, and that have not ended.
        self._given: defaultdict[str, set[str]] = defaultdict(set)
        #: (when, process, id) of what ran in a process that was killed, or was given to it.
        self._hit: list[tuple[float, str, str]] = []
        self._lives = lives = Lives()
        self._sessions = sessions = Sessions(self.bounds, disturbances, lives)
        self._losses = Losses(self.bounds, disturbances, lives, sessions, self._accepted, self._dispatched)
        self._recoveries = Recoveries(self.bounds, disturbances, lives, self._works, self._callers)
        self._restarts = Restarts(self.bounds, disturbances)
        self._payloads = Payloads(disturbances)
        self._accounts = Accounts(disturbances)
        self._late_answers = LateAnswers(lives, self._works)
        self._judges: tuple[Judge, ...] = (
            self._recoveries,
            self._restarts,
            self._payloads,
            self._accounts,
            self._late_answers,
            Declarations(self.bounds, disturbances, sessions),
            Silence(self.bounds, disturbances),
            Busy(self.bounds, disturbances),
            Connections(self.bounds, disturbances),
        )

    def see(self, event: Event) -> None:
        """The next event: there is a method for each kind that matters here, named as the kind is."""
        handler = getattr(self, f"_on_{What(event.what)}", None)
        if handler is not None:
            handler(event)
        for judge in self._judges:
            judge.see(event)

    def _violated(self, check: str, text: str) -> None:
        self.verdict.violations.append(Violation(check, text))

    def _work(self, event: Event) -> Work | None:
        work = self._works.get(event.id)
        if work is None:
            self.verdict.misrouted += 1
            self._violated("misrouted", f"{event.process}: {event.what} of {event.id}, which nobody submitted")
        return work

    # --- a call or cast ----------------------------------------------------------------------

    def _on_submit(self, event: Event) -> None:
        if event.id in self._works:
            self._violated("history", f"{event.id} was submitted twice")
            return
        self._works[event.id] = work = Work(event)
        # Who only handles what others ask for need not get an answer soon.
        if not event.fields.get("nested"):
            self._callers[event.process] = None
        self.verdict.submitted[work.verb] += 1

    def _on_confirm(self, event: Event) -> None:
        work = self._work(event)
        if work is not None:
            work.confirmed_at = event.at

    def _on_return(self, event: Event) -> None:
        work = self._work(event)
        if work is not None:
            work.returned_at = event.at

    def _on_accept(self, event: Event) -> None:
        self._is_watched = True
        work = self._work(event)
        # An idempotent one is offered again by a process that has lost its session.
        is_once = work is not None and work.verb == "call" and not work.idempotent
        if is_once and event.id in self._accepted:
            self._violated("accepted twice", f"the router has taken call {event.id} a second time")
        if event.id in self._ever_accepted:
            self._accepted_again.add(event.id)
        self._accepted.add(event.id)
        self._ever_accepted.add(event.id)

    def _on_dispatch(self, event: Event) -> None:
        to = event.fields["to"]
        self._is_watched = True
        work = self._works.get(event.id)
        if work is not None and work.verb == "call":
            self._take_back(event.id)
            self._given[to].add(event.id)
        self._dispatched[event.id].append((to, event.fields["attempt"]))
        if event.id not in self._accepted:
            self._violated("not accepted", f"{event.id} was sent to {to} by a router that has not taken it")

    def _take_back(self, id: str) -> None:
        if sent := self._dispatched.get(id):
            self._given[sent[-1][0]].discard(id)

    def _on_start(self, event: Event) -> None:
        work = self._work(event)
        if work is None:
            return
        topic = event.fields.get("topic", "")
        if topic != work.topic:
            self.verdict.misrouted += 1
            self._violated(
                "misrouted", f"{event.id} is for {work.topic!r} and was run by {event.process} for {topic!r}"
            )
        self._running[event.process].add(event.id)
        self._is_dispatched(event)
        before = [s for s in work.starts if work.verb != "fanout" or s[1] == event.process]
        start = (event.at, event.process, event.fields.get("attempt", 0))
        self._is_another_attempt(event.id, work, before, start)
        work.starts.append(start)
        if before and not work.idempotent and not self._sessions.may_double(work, before[-1], event):
            self.verdict.doubled += 1
            first = before[-1]
            self._violated(
                "started twice",
                f"{work.verb} {event.id} of {work.caller} was started by {first[1]} at {first[0]:.3f} "
                f"and by {event.process} at {event.at:.3f}",
            )

    def _is_another_attempt(self, id: str, work: Work, before: list[Start], start: Start) -> None:
        """A router that was sent a message once counts each time that it gives it away again."""
        if not work.idempotent or id in self._accepted_again:
            return
        sent = self._dispatched.get(id, [])
        if work.consumers > 1:
            before = [each for each in before if each[1] == start[1]]  # others may have it, too
        if start[1:] in sent and any(each[2] == start[2] and each[1:] in sent for each in before):
            text = f"{work.verb} {id} of {work.caller} was started twice as attempt {start[2]}, by {start[1]} last"
            self._violated("same attempt", text)

    def _is_dispatched(self, event: Event) -> None:
        sent = self._dispatched.get(event.id, [])
        if self._is_watched and (event.process, event.fields.get("attempt", 0)) not in sent:
            others = ", ".join(f"{to} (attempt {attempt})" for to, attempt in sent) or "nobody"
            text = f"{event.id} was started by {event.process}; the router has sent it to {others}"
            self._violated("not dispatched", text)

    def _on_finish(self, event: Event) -> None:
        work = self._work(event)
        if work is not None:
            work.finished += 1
            self._running[event.process].discard(event.id)

    def _on_end(self, event: Event) -> None:
        work = self._work(event)
        if work is None:
            return
        outcome, of = event.fields["outcome"], event.fields.get("of")
        if event.process != work.caller or (of is not None and of != event.id):
            self.verdict.misrouted += 1
            self._violated(
                "misrouted", f"{event.process} got for {event.id} of {work.caller} an answer to {of or event.id}"
            )
        if work.ended_at is not None:
            self._violated(
                "ended twice",
                f"{event.id} of {work.caller} ended with {work.outcome} at {work.ended_at:.3f} "
                f"and with {outcome} at {event.at:.3f}",
            )
            return
        if outcome not in _ENDS:
            text = f"{work.verb} {event.id} of {work.caller} ended with {outcome}: {event.fields.get('text', '')}"
            self._violated("unexpected end", text)
        work.ended_at, work.outcome = event.at, outcome
        self._take_back(event.id)
        if work.verb == "call":
            self.verdict.ended[outcome] += 1
        if outcome == "ok" and work.verb == "call" and not work.starts:
            self._violated("answered by nobody", f"{event.id} has a result and was never started")
        self._is_in_time(event, work)

    def _is_in_time(self, event: Event, work: Work) -> None:
        if work.timeout is None:
            return
        late = event.at - work.submitted_at - work.timeout
        if late > self.bounds.overdue and not self._is_disturbed(work.caller, work.submitted_at, event.at, ("stop",)):
            self._violated("overdue", f"{event.id} ended {late:.3f} s after its timeout of {work.timeout:g} s")

    def _on_settle(self, event: Event) -> None:
        work = self._works.get(event.id)
        outcome = event.fields["outcome"]
        # A full queue gives a cast back to its sender, who offers it again, unless it waits to be told.
        if work is not None and outcome != "ok" and (outcome != "overloaded" or work.confirm):
            work.settled = outcome

    # --- processes and faults ----------------------------------------------------------------

    def _on_linked(self, event: Event) -> None:
        self.verdict.violations += self._sessions.linked(event)

    def _on_fault(self, event: Event) -> None:
        kind, target = event.id, event.fields.get("target", "")
        self._disturbances.begin(event.at, kind, target)
        if kind == "leave":
            self._lives.left.add(target)
        elif kind == "kill" and target != "router":
            self._lives.dead[target] = event.at
            hit = self._running.pop(target, set()) | self._given.pop(target, set())
            self._hit += [(event.at, target, id) for id in sorted(hit)]
        elif kind == "kill":
            self._lives.router_kills.append(event.at)
            self._router_is_gone(event.at)

    def _router_is_gone(self, at: float) -> None:
        self._lives.router_ends.append(at)
        self._accepted.clear()

    def _on_exited(self, event: Event) -> None:
        self._router_is_gone(event.at)

    def _on_healed(self, event: Event) -> None:
        kind, target = event.id, event.fields.get("target", "")
        self._disturbances.end(event.at, kind, target)
        if target == "router" and kind in ("kill", RESTART):
            self._lives.router_starts.append(event.at)

    def _on_done(self, event: Event) -> None:
        self._lives.done[event.process] = event.at
        if left := event.fields.get("left", 0):
            self._violated("not taken", f"{event.process} ended with {left} casts that the router has not taken")

    def _is_disturbed(self, target: str, since: float, until: float, kinds: tuple[str, ...] = DISTURBING) -> bool:
        return self._disturbances.during(target, since, until, kinds)

    # --- the end -----------------------------------------------------------------------------

    def finish(self) -> Verdict:
        """Check the complete history for missing events."""
        for id, work in self._works.items():
            if work.waits and work.ended_at is None and work.caller not in self._lives.dead:
                self._violated("never ended", f"{work.verb} {id} of {work.caller} has never ended")
            if work.verb == "cast" and not work.starts:
                self._nobody_ran(id, work)
        for at, process, id in self._hit:
            self._is_told(at, process, id)
        for judge in self._judges:
            self.verdict.violations += judge.violations()
        self.verdict.late = self._late_answers.counted
        self.verdict.recovery = self._recoveries.longest
        self.verdict.outlived = self._restarts.outlived
        self.verdict.after_large = self._payloads.after_large
        self.verdict.accounted = self._accounts.accounted
        return self.verdict

    def _nobody_ran(self, id: str, work: Work) -> None:
        fate = self._losses.fate(id, work)
        if fate == "forgotten":
            self.verdict.forgotten += 1
        elif fate == "dropped":
            self.verdict.dropped += 1
        elif fate == "lost":
            self.verdict.lost += 1
            state = "confirmed" if work.confirmed_at is not None else "sent" if work.returned_at else "taken"
            self._violated(f"{state} and lost", f"cast {id} of {work.caller} was {state} and nobody ran it")

    def _is_told(self, at: float, process: str, id: str) -> None:
        work = self._works[id]
        if work.verb != "call" or work.idempotent or work.caller in self._lives.dead:
            return
        if (sent := self._dispatched.get(id)) and sent[-1][0] != process:
            return  # it had not left the router, and went elsewhere
        ended = work.ended_at
        if ended is not None and ended <= at:
            return
        end = at + self.bounds.told if ended is None else ended
        if self._is_disturbed(work.caller, at, end) or self._is_disturbed("router", at, end):
            return
        begun = max((start for start in self._lives.router_starts if start <= at), default=-_NEVER)
        if begun > -_NEVER and not any(begun <= link <= at for link, _ in self._sessions.links[work.caller]):
            return  # it has not come back to that router yet
        seconds = _NEVER if ended is None else ended - at
        if ended is not None:
            self.verdict.told = max(self.verdict.told, seconds)
        if seconds > self.bounds.told:
            self._violated(
                "told late", f"the caller of {id} was told {seconds:.3f} s after {process} was killed with it"
            )


def check(events: Iterable[Event], bounds: Bounds | None = None, stalls: Sequence[tuple[float, float]] = ()) -> Verdict:
    """The verdict on a whole history. For ``stalls`` see :class:`Checker`."""
    checker = Checker(bounds, stalls)
    for event in events:
        checker.see(event)
    return checker.finish()
