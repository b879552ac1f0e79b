"""Check a history against the guarantees. Pure: events in, violations out, each with the ids it is about.

:class:`Checker` looks at each event as it comes, and at the end at what should have happened and did not. What
holds and what does not is what docs/guarantees.md says; where it names an exception, so does the code here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Protocol

from rpcmq.drill.accounts import Accounts
from rpcmq.drill.busy import Busy
from rpcmq.drill.connections import Connections
from rpcmq.drill.disturbances import DELAYING, DISTURBING, RESTART, SILENCE, SILENCING, Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.payloads import Payloads
from rpcmq.drill.promises import Bounds, Violation
from rpcmq.drill.restarts import Restarts
from rpcmq.drill.silence import Silence

__all__ = ["LATE", "Bounds", "Checker", "Judge", "Verdict", "Violation", "check"]

#: Prefix of the router's counters of unclaimed answers.
LATE = ("late", "reply of", "reply for", "answers")
#: Outcomes of a call or cast for its caller, in the words of real processes and of the simulation; all else is an
#: error of the library, or of the drill.
_ENDS = (
    "ok", "remote_error", "timeout", "link_lost", "no_consumer", "overloaded", "cancelled", "refused", "CallTimeout",
    "LinkLost", "NoConsumer", "Overloaded", "RemoteError", "AccessDenied", "RouterUnreachable",
)  # fmt: skip
_NEVER = inf
#: When, where and as which attempt a handler was started.
_Start = tuple[float, str, int]


@dataclass
class Verdict:
    """The result of checking a history.

    Attributes:
        violations: what must not have happened.
        submitted: how many there were of each verb.
        ended: how many calls ended with each outcome.
        lost: casts that nobody ran, and whose loss no guarantee allows.
        forgotten: casts that were lost with a router that was killed, and with their sender or their consumer.
        dropped: casts that nobody ran, of which the router has said so.
        doubled: calls and casts that were started twice and must not.
        misrouted: answers and requests that came to the wrong place.
        told: seconds, from the kill of a process to the failure of what it was running: the longest.
        recovery: seconds, from the router's return to a caller's first answer: the longest.
        late: answers that came after their call had ended: they were counted and dropped.
        after_large: seconds, of small calls of processes that have sent something large: the longest median.
        accounted: casts to topics that nobody has, which the router has counted by name.
        outlived: calls that ended with a router that was stopped in order, and had waited for them in vain.
    """

    violations: list[Violation] = field(default_factory=list)
    submitted: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    forgotten: int = 0
    dropped: int = 0
    doubled: int = 0
    misrouted: int = 0
    told: float = 0.0
    recovery: float = 0.0
    late: int = 0
    outlived: int = 0
    after_large: float = 0.0
    accounted: int = 0

    @property
    def ok(self) -> bool:
        """Whether all held."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class _Work:
    """A call or cast, as far as the history has come."""

    __slots__ = (
        "caller",
        "confirm",
        "confirmed_at",
        "ended_at",
        "finished",
        "idempotent",
        "outcome",
        "returned_at",
        "settled",
        "starts",
        "submitted_at",
        "timeout",
        "topic",
        "verb",
    )  # fmt: skip

    def __init__(self, event: Event) -> None:
        fields = event.fields
        self.caller = event.process
        self.verb: str = fields["verb"]
        self.topic: str = fields.get("topic", "")
        self.idempotent: bool = fields.get("idempotent", False)
        self.confirm: bool = fields.get("confirm", False)
        self.timeout: float | None = fields.get("timeout")
        self.submitted_at = event.at
        self.confirmed_at: float | None = None
        #: When the plain program's verb returned.
        self.returned_at: float | None = None
        self.ended_at: float | None = None
        self.outcome = ""
        self.starts: list[_Start] = []
        self.finished = 0
        #: The router's outcome, if not ok.
        self.settled = ""

    @property
    def waits(self) -> bool:
        """Whether somebody waits for its end."""
        return self.verb == "call" or self.confirm


@dataclass(frozen=True)
class _LostSession:
    """A session that its router did not resume although it lived on.

    Attributes:
        begin: when the process was linked last before.
        end: when it lost the connection.
        after: when it began the next session.
    """

    begin: float
    end: float
    after: float


@dataclass
class _Return:
    """The router has come back: who has not had an answer since."""

    at: float
    waiting: set[str]


class Judge(Protocol):
    """Looks at one promise."""

    def see(self, event: Event) -> None:
        """The next event."""

    def violations(self) -> Iterable[Violation]:
        """Return the violations found at the end of the history."""


class Checker:
    """Looks at events in the order of their time.

    Args:
        bounds: the times that are promised.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.verdict = Verdict()
        self._works: dict[str, _Work] = {}
        #: Process -> messages it runs.
        self._running: defaultdict[str, set[str]] = defaultdict(set)
        self._dead: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._callers: dict[str, None] = {}
        self._disturbances = Disturbances()
        #: Target -> when its connections were reset last.
        self._reset: dict[str, float] = {}
        #: Target -> since when it is stopped.
        self._stopped: dict[str, float] = {}
        self._unresponsive: dict[str, float] = {}
        #: Whether the history has what the router does.
        self._is_watched = False
        #: Messages that this incarnation of the router has accepted.
        self._accepted: set[str] = set()
        #: What any has taken, and what was taken more than once.
        self._ever_accepted: set[str] = set()
        self._accepted_again: set[str] = set()
        #: Id -> to whom it was sent, and at which attempt.
        self._dispatched: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        #: Process -> the calls that it was the last to be given, and that have not ended.
        self._given: defaultdict[str, set[str]] = defaultdict(set)
        #: (when, process, id) of what ran in a process that was killed, or was given to it.
        self._hit: list[tuple[float, str, str]] = []
        self._returns: list[_Return] = []
        self._router_starts: list[float] = []
        self._router_kills: list[float] = []
        #: End times of its incarnations, orderly or not.
        self._router_ends: list[float] = []
        #: Process -> (when, resumed) of each of its sessions.
        self._links: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        #: Process -> its sessions that a router which lived on did not resume.
        self._lost_sessions: defaultdict[str, list[_LostSession]] = defaultdict(list)
        self._counted: Counter[str] = Counter()
        self._has_counted = False
        #: Processes that were told to end.
        self._left: set[str] = set()
        self._now = 0.0
        self._handlers: dict[What, Callable[[Event], None]] = {
            What.SUBMIT: self._submit,
            What.ACCEPT: self._accept,
            What.CONFIRM: self._confirm,
            What.RETURN: self._return,
            What.DISPATCH: self._dispatch,
            What.START: self._start,
            What.FINISH: self._finish,
            What.END: self._end,
            What.SETTLE: self._settle,
            What.LINKED: self._linked,
            What.DECLARED: self._declared,
            What.FAULT: self._fault,
            What.HEALED: self._healed,
            What.DONE: self._is_done,
            What.COUNTED: self._counts,
            What.EXITED: self._exited,
        }
        disturbances = self._disturbances
        self._restarts = Restarts(self.bounds, disturbances)
        self._payloads = Payloads(self.bounds, disturbances)
        self._accounts = Accounts(disturbances)
        self._judges: tuple[Judge, ...] = (
            self._restarts,
            self._payloads,
            self._accounts,
            Silence(self.bounds, disturbances),
            Busy(self.bounds, disturbances),
            Connections(self.bounds, disturbances),
        )

    def see(self, event: Event) -> None:
        """The next event."""
        self._now = event.at
        handler = self._handlers.get(What(event.what))
        if handler is not None:
            handler(event)
        for judge in self._judges:
            judge.see(event)

    def _violated(self, check: str, text: str, *ids: str) -> None:
        self.verdict.violations.append(Violation(check, text, ids))

    def _work(self, event: Event) -> _Work | None:
        work = self._works.get(event.id)
        if work is None:
            self.verdict.misrouted += 1
            self._violated(
                "misrouted", f"{event.process}: {event.what} of {event.id}, which nobody submitted", event.id
            )
        return work

    # --- a call or cast ----------------------------------------------------------------------

    def _submit(self, event: Event) -> None:
        if event.id in self._works:
            self._violated("history", f"{event.id} was submitted twice", event.id)
            return
        self._works[event.id] = work = _Work(event)
        # Who only handles what others ask for need not get an answer soon.
        if not event.fields.get("nested"):
            self._callers[event.process] = None
        self.verdict.submitted[work.verb] += 1

    def _confirm(self, event: Event) -> None:
        work = self._work(event)
        if work is not None:
            work.confirmed_at = event.at

    def _return(self, event: Event) -> None:
        work = self._work(event)
        if work is not None:
            work.returned_at = event.at

    def _accept(self, event: Event) -> None:
        self._is_watched = True
        work = self._work(event)
        # An idempotent one is offered again by a process that has lost its session.
        is_once = work is not None and work.verb == "call" and not work.idempotent
        if is_once and event.id in self._accepted:
            self._violated("accepted twice", f"the router has taken call {event.id} a second time", event.id)
        if event.id in self._ever_accepted:
            self._accepted_again.add(event.id)
        self._accepted.add(event.id)
        self._ever_accepted.add(event.id)

    def _dispatch(self, event: Event) -> None:
        to = event.fields["to"]
        self._is_watched = True
        work = self._works.get(event.id)
        if work is not None and work.verb == "call":
            self._take_back(event.id)
            self._given[to].add(event.id)
        self._dispatched[event.id].append((to, event.fields["attempt"]))
        if event.id not in self._accepted:
            self._violated(
                "not accepted", f"{event.id} was sent to {to} by a router that has not taken it", event.id, to
            )
        if to in self._unresponsive:
            since = event.at - self._unresponsive[to]
            self._violated(
                "sent to a silent process",
                f"{event.id} was sent to {to} {since:.3f} s after it was declared unresponsive",
                event.id,
                to,
            )

    def _take_back(self, id: str) -> None:
        if sent := self._dispatched.get(id):
            self._given[sent[-1][0]].discard(id)

    def _start(self, event: Event) -> None:
        work = self._work(event)
        if work is None:
            return
        topic = event.fields.get("topic", "")
        if topic != work.topic:
            self.verdict.misrouted += 1
            self._violated(
                "misrouted", f"{event.id} is for {work.topic!r} and was run by {event.process} for {topic!r}", event.id
            )
        self._running[event.process].add(event.id)
        self._is_dispatched(event)
        before = [s for s in work.starts if work.verb != "fanout" or s[1] == event.process]
        start = (event.at, event.process, event.fields.get("attempt", 0))
        self._is_another_attempt(event.id, work, before, start)
        work.starts.append(start)
        if before and not work.idempotent and not self._may_double(work, before[-1], event):
            self.verdict.doubled += 1
            first = before[-1]
            self._violated(
                "started twice",
                f"{work.verb} {event.id} of {work.caller} was started by {first[1]} at {first[0]:.3f} "
                f"and by {event.process} at {event.at:.3f}",
                event.id,
            )

    def _is_another_attempt(self, id: str, work: _Work, before: list[_Start], start: _Start) -> None:
        """A router that was sent a message once counts each time that it gives it away again."""
        if not work.idempotent or id in self._accepted_again:
            return
        sent = self._dispatched.get(id, [])
        if start[1:] in sent and any(each[2] == start[2] and each[1:] in sent for each in before):
            text = f"{work.verb} {id} of {work.caller} was started twice as attempt {start[2]}, by {start[1]} last"
            self._violated("same attempt", text, id)

    def _is_dispatched(self, event: Event) -> None:
        sent = self._dispatched.get(event.id, [])
        if self._is_watched and (event.process, event.fields.get("attempt", 0)) not in sent:
            others = ", ".join(f"{to} (attempt {attempt})" for to, attempt in sent) or "nobody"
            text = f"{event.id} was started by {event.process}; the router has sent it to {others}"
            self._violated("not dispatched", text, event.id, event.process)

    def _may_double(self, work: _Work, first: _Start, event: Event) -> bool:
        """The doubled casts that docs/guarantees.md allows."""
        if work.verb == "call":
            return False
        had = first[1]
        if had == event.process:
            return False
        if self._may_be_sent_again(work, first[0]):
            return True
        starts = [at for at in self._router_starts if at > work.submitted_at]
        if starts and (had in self._dead or had in self._left):
            return True
        # After each start of the router the one that had it must have said so in time.
        window = self.bounds.recovery_window
        if any(self._is_disturbed(had, at, at + window, SILENCING) for at in starts):
            return True
        return any(not any(at <= link <= at + window for link, _ in self._links[had]) for at in starts)

    def _may_be_sent_again(self, work: _Work, started_at: float) -> bool:
        """Whether its sender lost a session with a router that lived on before it can have been acknowledged.

        That router may be the first that it was sent to, or the one after a restart.
        """
        for session in self._lost_sessions[work.caller]:
            # Heartbeats carry acknowledgements.
            since = max(started_at, session.begin)
            until = since + self.bounds.heartbeat + self.bounds.recovery_window
            is_told = until <= session.end and not self._is_disturbed(work.caller, since, until, DELAYING)
            if session.after > work.submitted_at and (not is_told or self._is_disturbed("router", since, until)):
                return True
        return False

    def _finish(self, event: Event) -> None:
        work = self._work(event)
        if work is not None:
            work.finished += 1
            self._running[event.process].discard(event.id)

    def _end(self, event: Event) -> None:
        work = self._work(event)
        if work is None:
            return
        outcome, of = event.fields["outcome"], event.fields.get("of")
        if event.process != work.caller or (of is not None and of != event.id):
            self.verdict.misrouted += 1
            self._violated(
                "misrouted",
                f"{event.process} got for {event.id} of {work.caller} an answer to {of or event.id}",
                event.id,
                *filter(None, (of,)),
            )
        if work.ended_at is not None:
            self._violated(
                "ended twice",
                f"{event.id} of {work.caller} ended with {work.outcome} at {work.ended_at:.3f} "
                f"and with {outcome} at {event.at:.3f}",
                event.id,
            )
            return
        if outcome not in _ENDS:
            text = f"{work.verb} {event.id} of {work.caller} ended with {outcome}: {event.fields.get('text', '')}"
            self._violated("unexpected end", text, event.id)
        work.ended_at, work.outcome = event.at, outcome
        self._take_back(event.id)
        if work.verb == "call":
            self.verdict.ended[outcome] += 1
        if outcome == "ok":
            self._flows(event)
        if outcome == "ok" and work.verb == "call" and not work.starts:
            self._violated("answered by nobody", f"{event.id} has a result and was never started", event.id)
        self._is_in_time(event, work)

    def _is_in_time(self, event: Event, work: _Work) -> None:
        if work.timeout is None:
            return
        late = event.at - work.submitted_at - work.timeout
        if late > self.bounds.overdue and not self._is_disturbed(work.caller, work.submitted_at, event.at, ("stop",)):
            self._violated(
                "overdue", f"{event.id} ended {late:.3f} s after its timeout of {work.timeout:g} s", event.id
            )

    def _flows(self, event: Event) -> None:
        for each in self._returns:
            if event.process in each.waiting and self._works[event.id].submitted_at >= each.at - 60:
                each.waiting.discard(event.process)
                self._recovered(event.process, event.at - each.at)
        self._returns = [each for each in self._returns if each.waiting]

    def _recovered(self, caller: str, seconds: float) -> None:
        self.verdict.recovery = max(self.verdict.recovery, seconds)
        if seconds > self.bounds.recovery:
            self._violated(
                "slow recovery", f"{caller} had its first answer {seconds:.3f} s after the router's return", caller
            )

    def _settle(self, event: Event) -> None:
        work = self._works.get(event.id)
        outcome = event.fields["outcome"]
        # A full queue gives a cast back to its sender, who offers it again, unless it waits to be told.
        if work is not None and outcome != "ok" and (outcome != "overloaded" or work.confirm):
            work.settled = outcome

    # --- processes and faults ----------------------------------------------------------------

    def _linked(self, event: Event) -> None:
        resumed: bool = event.fields["resumed"]
        away: float | None = event.fields.get("away")
        links = self._links[event.process]
        # Processes may be back before it was written down that the router is.
        this_life = self._router_ends[-1] if self._router_ends else -_NEVER
        started_over = bool(links) and links[-1][0] > this_life and not resumed
        if started_over:
            session = _LostSession(links[-1][0], event.at - (away or 0.0), event.at)
            self._lost_sessions[event.process].append(session)
        # Its router may have missed it for longer than it has been without a connection.
        if (
            started_over
            and away is not None
            and away < self.bounds.resume
            and not self._is_disturbed(event.process, event.at - away - self.bounds.resume, event.at, SILENCING)
        ):
            self._violated(
                "not resumed", f"{event.process} was away for {away:.3f} s and had to start over", event.process
            )
        links.append((event.at, resumed))

    def _declared(self, event: Event) -> None:
        target, state = event.id, event.fields["state"]
        if state == "answering":
            self._unresponsive.pop(target, None)
            return
        stopped = self._stopped.get(target)
        promised = self.bounds.lost if state in ("away", "ended") else self.bounds.unresponsive
        excused = self._is_disturbed(target, event.at - promised, event.at, ("kill", "cut", "delay"))
        # A stopped router has received nothing.
        excused |= self._is_disturbed("router", event.at - promised, event.at)
        # One whose connection was reset, and that has not made another since, is away and not silent. The router may
        # notice that only when it has something to send.
        excused |= state == "away" and self._reset.get(target, -_NEVER) > self._last_link(target)
        if stopped is not None and not excused:
            # What was heard last may be as old as a heartbeat when the stop comes.
            early = promised - self.bounds.heartbeat - (event.at - stopped)
            if early > 0:
                self._violated(
                    "declared too early",
                    f"{target} was declared {state} {event.at - stopped:.3f} s after it was stopped; "
                    f"{promised:g} s of silence are allowed",
                    target,
                )
        if state == "unresponsive":
            self._unresponsive[target] = event.at

    def _last_link(self, process: str) -> float:
        links = self._links[process]
        return links[-1][0] if links else -_NEVER

    def _fault(self, event: Event) -> None:
        kind, target = event.id, event.fields.get("target", "")
        self._disturbances.begin(event.at, kind, target)
        if kind == "stop":
            self._stopped[target] = event.at
        elif kind == "reset":
            self._reset[target] = event.at
        elif kind == "leave":
            self._left.add(target)
        elif kind == "kill" and target != "router":
            self._dead[target] = event.at
            hit = self._running.pop(target, set()) | self._given.pop(target, set())
            self._hit += [(event.at, target, id) for id in sorted(hit)]
        elif kind == "kill":
            self._router_kills.append(event.at)
            self._router_is_gone(event.at)

    def _router_is_gone(self, at: float) -> None:
        self._router_ends.append(at)
        self._returns = []
        self._unresponsive.clear()
        self._accepted.clear()

    def _exited(self, event: Event) -> None:
        self._router_is_gone(event.at)

    def _healed(self, event: Event) -> None:
        kind, target = event.id, event.fields.get("target", "")
        self._disturbances.end(event.at, kind, target)
        if kind == "stop":
            self._stopped.pop(target, None)
        elif target == "router" and kind in ("kill", RESTART, SILENCE):
            if kind != SILENCE:
                self._router_starts.append(event.at)
            living = {c for c in self._callers if c not in self._dead and c not in self._done}
            self._returns.append(_Return(event.at, living))

    def _is_done(self, event: Event) -> None:
        self._done[event.process] = event.at
        if left := event.fields.get("left", 0):
            self._violated(
                "not taken", f"{event.process} ended with {left} casts that the router has not taken", event.process
            )
        for each in self._returns:
            each.waiting.discard(event.process)

    def _counts(self, event: Event) -> None:
        self._has_counted = True
        for name, count in event.fields.items():
            if isinstance(count, int):
                self._counted[name] += count

    def _is_disturbed(self, target: str, since: float, until: float, kinds: tuple[str, ...] = DISTURBING) -> bool:
        return self._disturbances.during(target, since, until, kinds)

    # --- the end -----------------------------------------------------------------------------

    def finish(self) -> Verdict:
        """Check the complete history for missing events."""
        for id, work in self._works.items():
            if work.waits and work.ended_at is None and work.caller not in self._dead:
                self._violated("never ended", f"{work.verb} {id} of {work.caller} has never ended", id)
            if work.verb == "cast" and not work.starts:
                self._nobody_ran(id, work)
        for at, process, id in self._hit:
            self._is_told(at, process, id)
        for each in self._returns:
            for caller in sorted(each.waiting - self._dead.keys() - self._done.keys()):
                if self._now - each.at > self.bounds.recovery:
                    self._recovered(caller, self._now - each.at)
        self._late_answers()
        for judge in self._judges:
            self.verdict.violations += judge.violations()
        self.verdict.outlived = self._restarts.outlived
        self.verdict.after_large = self._payloads.after_large
        self.verdict.accounted = self._accounts.accounted
        return self.verdict

    def _nobody_ran(self, id: str, work: _Work) -> None:
        if work.outcome not in ("", "ok") or work.settled == "refused":
            return  # its sender was told
        since = work.submitted_at if work.confirmed_at is None else work.confirmed_at
        if any(kill >= since and self._may_be_lost(id, work, since, kill) for kill in self._router_kills):
            self.verdict.forgotten += 1
        elif work.settled:
            self.verdict.dropped += 1
        elif work.confirmed_at is None and work.caller in self._dead and not self._must_have_left(id, work):
            return
        else:
            self.verdict.lost += 1
            state = "confirmed" if work.confirmed_at is not None else "sent" if work.returned_at else "taken"
            self._violated(f"{state} and lost", f"cast {id} of {work.caller} was {state} and nobody ran it", id)

    def _must_have_left(self, id: str, work: _Work) -> bool:
        """Whether the router has a cast, or must have it, whose sender was killed."""
        if id in self._accepted:
            return True
        killed = self._dead[work.caller]
        if work.returned_at is None or killed < work.returned_at + self.bounds.sent:
            return False
        since = work.returned_at - self.bounds.recovery
        others = tuple(kind for kind in DISTURBING if kind != "kill")
        return not (
            self._is_disturbed(work.caller, since, killed, others) or self._is_disturbed("router", since, killed)
        )

    def _may_be_lost(self, id: str, work: _Work, since: float, kill: float) -> bool:
        """Whether a cast that a killed router had is one that its sender did not have to offer again."""
        caller = work.caller
        if caller in self._dead or caller in self._left or self._done.get(caller, _NEVER) <= kill:
            return True
        # Its consumer had it, and went with it: the router that would have said so is no more.
        if any(to in self._dead for to, _ in self._dispatched.get(id, ())):
            return True
        # Its sender lost its session with a router that lived on, and left its casts to that, until it was killed.
        return any(since < session.after <= kill for session in self._lost_sessions[caller])

    def _is_told(self, at: float, process: str, id: str) -> None:
        work = self._works[id]
        if work.verb != "call" or work.idempotent or work.caller in self._dead:
            return
        if (sent := self._dispatched.get(id)) and sent[-1][0] != process:
            return  # it had not left the router, and went elsewhere
        ended = work.ended_at
        if ended is not None and ended <= at:
            return
        end = at + self.bounds.told if ended is None else ended
        if self._is_disturbed(work.caller, at, end) or self._is_disturbed("router", at, end):
            return
        begun = max((start for start in self._router_starts if start <= at), default=-_NEVER)
        if begun > -_NEVER and not any(begun <= link <= at for link, _ in self._links[work.caller]):
            return  # it has not come back to that router yet
        seconds = _NEVER if ended is None else ended - at
        if ended is not None:
            self.verdict.told = max(self.verdict.told, seconds)
        if seconds > self.bounds.told:
            self._violated(
                "told late", f"the caller of {id} was told {seconds:.3f} s after {process} was killed with it", id
            )

    def _late_answers(self) -> None:
        """Check that each answer that does not end its call is counted as late."""
        self.verdict.late = self._counted["late answers"]
        if not self._has_counted or self._left or self._dead or self._router_starts:
            return  # what they had counted is gone with them
        works = self._works.values()
        spare = sum(w.finished - (w.outcome in ("ok", "remote_error")) for w in works if w.verb == "call")
        if spare > self.verdict.late:
            self._violated(
                "answers not accounted for",
                f"{spare} answers of handlers ended no call, and only {self.verdict.late} were counted as late",
            )


def check(events: Iterable[Event], bounds: Bounds | None = None) -> Verdict:
    """The verdict on a whole history."""
    checker = Checker(bounds)
    for event in events:
        checker.see(event)
    return checker.finish()
