"""The engines under faults on a virtual network in virtual time: the same seed gives the same history.

The router, and both halves of each process, are the real engines. What is simulated is the network, the clock,
and what callers and handlers do; that is drawn from the seed by :mod:`rpcmq.drill.plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.tasks import Registration, Task, Tasks
from rpcmq.core.process.uplink import Uplink, Welcome
from rpcmq.core.router.link import Link
from rpcmq.drill.checks import LATE, Bounds, Checker, Verdict, Violation
from rpcmq.drill.history import Event, What, line_of
from rpcmq.drill.plan import Fault, Operation, Plan, plan_of
from rpcmq.drill.watched import WatchedRouter
from rpcmq.errors import CallError, Outcome
from rpcmq.testing.endpoint import Endpoint
from rpcmq.testing.invariants import check_router, left_behind
from rpcmq.testing.network import Network
from rpcmq.wire import NO_TTL, Address, Flag, Kind, message, payload_of

__all__ = ["Simulation", "minimised", "simulate"]

#: A connection that is silent for so long is given up by both ends (seconds).
_LOST_SECONDS = 20.0
#: An attempt to connect may take so long (seconds).
_CONNECT_SECONDS = 5.0
_RECONNECT_MAX = 2.0
#: So often (5 s each) it is looked whether all is at rest, in the end.
_MAX_ROUNDS = 120
_TOPICS = ("compute", "network")
_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}
_ANSWER = b"answer to "


class _Peer(Endpoint):
    """A process: what :class:`rpcmq.client.process.Process` does, without sockets and greenlets."""

    def __init__(self, simulation: Simulation, name: str, identity: str, seed: str) -> None:
        self._simulation = simulation
        self._rng = Random(seed)
        self._attempts = 0
        self._lost_at: float | None = None
        #: Actions that came due while it was stopped.
        self._deferred: list[Callable[[], None]] = []
        self.name = name
        self.is_dead = self.is_leaving = False
        hello = {"identity": identity, "queue_type": "roundrobin", "accepts": ["json"], "keeps": True}
        uplink = Uplink(hello, self._welcomed, self._refused)
        self.casts = Casts(uplink, self._cast_refused)
        self.calls = Calls(uplink, self.casts)
        self.tasks = Tasks(uplink, self.calls)
        super().__init__(simulation.net, identity, uplink)

    # --- time --------------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do ``action`` in a while: not before it goes on if it is stopped by then, and not when it is dead."""

        def due() -> None:
            if self.is_paused:
                self._deferred.append(due)
            elif not self.is_dead:
                action()

        self._simulation.later(seconds, due)

    def resume(self) -> None:
        super().resume()
        deferred, self._deferred = self._deferred, []
        for due in deferred:
            due()

    def next_deadline(self) -> float | None:
        ours, theirs = self.uplink.next_deadline(), self.calls.next_deadline()
        if ours is None or theirs is None:
            return theirs if ours is None else ours
        return min(ours, theirs)

    def tick(self, now: float) -> None:
        self.uplink.tick(now)
        self.calls.tick(now)

    def before_flush(self) -> None:
        self.tasks.flush(self._network.now)

    # --- the link ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect, and again whenever the connection is lost."""
        if self.is_dead or self.uplink.ready:
            return
        self.connect()
        if self.connection is None:
            self._again()
            return
        connection = self.connection

        def is_late() -> None:
            if self.connection is connection and not self.uplink.ready:
                self.lose()

        self.later(_CONNECT_SECONDS, is_late)

    def lose(self, is_noticed: bool = True) -> None:
        had = self.connection is not None
        if self.uplink.ready:
            self._lost_at = self._network.now
        super().lose(is_noticed)
        if had and not self.is_dead:
            self._again()

    def _again(self) -> None:
        self._attempts += 1
        pause = min(_RECONNECT_MAX, 0.02 * 2.0 ** min(self._attempts, 10))
        self.later(self._rng.uniform(0.0, pause), self.begin)

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self._attempts = 0
        away = {} if self._lost_at is None else {"away": round(now - self._lost_at, 6)}
        self._simulation.record(What.LINKED, "", {"resumed": welcome.resumed, **away}, self.name)
        self.calls.welcome(now, welcome)
        self.tasks.welcome(now, welcome)

    def _refused(self, reason: str, text: str) -> None:
        if reason != "protocol":
            self.later(0.0, self.lose)

    def die(self, is_noticed: bool = True) -> None:
        self.is_dead = True
        super().die(is_noticed)

    # --- calling -----------------------------------------------------------------------------

    def send(self, operation: Operation) -> None:
        """Send what ``operation`` says."""
        simulation, flags = self._simulation, 0
        for flag, wanted in (
            (Flag.IDEMPOTENT, operation.idempotent),
            (Flag.MANDATORY, operation.mandatory),
            (Flag.FANOUT, operation.verb == "fanout"),
            (Flag.CONFIRM, operation.confirm),
        ):
            flags |= flag if wanted else 0
        fields = {"verb": operation.verb, "topic": operation.topic, "idempotent": operation.idempotent}
        fields |= {"confirm": operation.confirm}
        if operation.verb == "call":
            fields["timeout"] = operation.timeout
        simulation.record(What.SUBMIT, operation.id, fields, self.name)
        address = Address(operation.topic, operation.server).encode()
        payload = f"{operation.id} {operation.topic} {operation.seconds} {int(operation.fails)}".encode()
        if operation.verb != "call" and not operation.confirm:
            ttl = NO_TTL if operation.timeout is None else int(operation.timeout * 1000)
            key = self.uplink.next_key()
            part = message(Kind.CAST, payload, key=key, flags=flags, format=1, address=address, method=b"m", ttl=ttl)
            self.casts.send(part, address)
            return
        is_call = operation.verb == "call"
        call = Call(operation.topic, flags, operation.timeout if is_call else None)
        call.waiter = lambda: self._ended(operation, call)
        kind = Kind.REQUEST if is_call else Kind.CAST
        self.calls.start(self._network.now, call, kind, payload, address=address, method=b"m")
        if operation.cancel_after is not None:
            self.later(operation.cancel_after, lambda: self._cancel(operation, call))

    def _cancel(self, operation: Operation, call: Call) -> None:
        if not call.done:
            self.calls.cancel(call)
            self._simulation.record(What.END, operation.id, {"outcome": "cancelled"}, self.name)

    def _ended(self, operation: Operation, call: Call) -> None:
        record = self._simulation.record
        if call.error is not None:
            outcome = call.error.details.get("outcome", type(call.error).__name__)
            name = _OUTCOMES.get(outcome, str(outcome)) if isinstance(outcome, int) else str(outcome)
            record(What.END, operation.id, {"outcome": name}, self.name)
            return
        assert call.answer is not None
        if call.answer[5] == Kind.CONFIRM:
            record(What.CONFIRM, operation.id, {}, self.name)
            record(What.END, operation.id, {"outcome": "ok"}, self.name)
            return
        of = bytes(payload_of(call.answer)).removeprefix(_ANSWER).decode()
        outcome = "ok" if call.answer[5] == Kind.REPLY else "remote_error"
        record(What.END, operation.id, {"outcome": outcome, "of": of}, self.name)

    def _cast_refused(self, part: bytes, error: CallError) -> bytes | None:
        self._simulation.record(What.SETTLE, _id_of(part), {"outcome": "refused"}, self.name)
        return None

    # --- serving -----------------------------------------------------------------------------

    def serve(self, credit: int) -> None:
        """Consume all topics."""
        for tag, topic in enumerate(_TOPICS):
            registration = Registration(tag, Address(topic, self.identity.partition("/")[0]), credit, "", self._start)
            call = self.tasks.register(self._network.now, registration, 60.0)
            call.waiter = lambda: None

    def after_receive(self, now: float) -> None:
        while self.calls.changed or self.tasks.delivered:
            for call in self.calls.take_changed():
                if call.waiter is not None and call.done:
                    call.waiter()
            tasks, self.tasks.delivered = self.tasks.delivered, []
            for task in tasks:
                task.registration.on_task(task)

    def _start(self, task: Task) -> None:
        id, topic, seconds, fails = bytes(task.payload).decode().split()
        # What it was sent for, and what it was delivered to, must be the same.
        served = task.registration.address.topic
        fields = {"topic": topic if topic == served else f"{topic} at {served}", "attempt": task.attempt}
        self._simulation.record(What.START, id, fields, self.name)
        self.later(float(seconds), lambda: self._finish(task, id, fails == "1"))

    def _finish(self, task: Task, id: str, fails: bool) -> None:
        now = self._network.now
        self._simulation.record(What.FINISH, id, {"failed": fails}, self.name)
        if task.is_call:
            kind = Kind.FAULT if fails else Kind.REPLY
            self.tasks.answer(now, task, kind, 1, _ANSWER + id.encode())
        else:
            self.tasks.settle(now, task, Outcome.REMOTE_ERROR if fails else Outcome.OK)

    def leave(self, then: Callable[[], None]) -> None:
        """Take no more, finish what runs, say goodbye."""
        self.is_leaving = True
        now = self._network.now
        for registration in list(self.tasks.registrations.values()):
            self.tasks.unregister(now, registration, 2.0).waiter = lambda: None
        self._leave_when_done(then)

    def _leave_when_done(self, then: Callable[[], None]) -> None:
        if self.tasks.running and self.uplink.ready:
            self.later(0.1, lambda: self._leave_when_done(then))
            return
        self.is_dead = True
        self.stop()
        then()


class Simulation:
    """One run of a plan.

    Args:
        plan: what happens.
        keeps_history: whether :attr:`history` is filled.

    Attributes:
        history: the lines of all events.
    """

    def __init__(self, plan: Plan, keeps_history: bool = False) -> None:
        self.plan = plan
        self.history: list[bytes] = []
        self._keeps_history = keeps_history
        settings = plan.settings
        self._checker = Checker(
            Bounds(
                told=settings.consumer_grace_seconds + 0.1,
                recovery=float("inf"),
                overdue=0.55,
                unresponsive=settings.unresponsive_seconds,
                lost=_LOST_SECONDS,
                heartbeat=settings.heartbeat_seconds + 0.1,
                recovery_window=settings.recovery_seconds,
                resume=settings.resume_seconds,
            )
        )
        self.net = Network(settings, lost_seconds=_LOST_SECONDS, engine=partial(WatchedRouter, self))
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        #: Place -> the process that is there now, and all that live.
        self._peers: dict[str, _Peer] = {}
        self._everyone: list[_Peer] = []
        self._lives = count(1)

    # --- what happens ------------------------------------------------------------------------

    def record(self, what: What, id: str, fields: dict[str, Any], process: str = "router") -> None:
        """Something happens now."""
        event = Event(self.net.now, process, what, id, fields)
        if self._keeps_history:
            self.history.append(line_of(event))
        self._checker.see(event)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do ``action`` in a while."""
        heappush(self._due, (self.net.now + seconds, next(self._number), action))

    def run(self) -> Verdict:
        """Do it.

        Returns:
            The verdict; a broken invariant of the router's tables is a violation, too.
        """
        try:
            self._run()
        except (AssertionError, RuntimeError) as error:
            inside = "".join(note.text for note in self.net.notes if note.event == "internal error")
            self._checker.verdict.violations.append(Violation("engine", f"{type(error).__name__}: {error}{inside}", ()))
        return self._checker.finish()

    def _run(self) -> None:
        plan = self.plan
        for number in range(plan.callers):
            self._begin(f"c{number}", f"c{number}")
        for number in range(plan.services):
            self._begin(f"s{number}", f"s{number}")
        start = self.net.now
        for at, step in plan.steps:
            action = (lambda step=step: self._operate(step)) if isinstance(step, Operation) else (
                lambda step=step: self._fail(step)
            )  # fmt: skip
            heappush(self._due, (start + at, next(self._number), action))
        self._all_until(start + (plan.steps[-1][0] if plan.steps else 0.0) + _LOST_SECONDS)
        for _ in range(_MAX_ROUNDS):
            self._all_until(self.net.now + 5.0)
            if not self._due and self._is_at_rest:
                break
        self._end()

    @property
    def _is_at_rest(self) -> bool:
        """Whether nothing is under way any more."""
        peers = [peer for peer in self._peers.values() if not peer.is_dead]
        return all(p.uplink.ready and not p.calls.open and not p.casts.open for p in peers) and not any(
            self.net.router.dispatch.unsettled()
        )

    def _all_until(self, end: float) -> None:
        while self._due and self._due[0][0] <= end:
            at, _, action = heappop(self._due)
            self.net.advance(max(0.0, at - self.net.now))
            action()
            self.net.run()
            if self.net.is_router_up:
                check_router(self.net.router)
        self.net.advance(max(0.0, end - self.net.now))
        check_router(self.net.router)

    def _begin(self, place: str, identity: str) -> None:
        life = next(self._lives)
        peer = _Peer(self, f"{place}#{life}", identity, f"{self.plan.seed}/{life}")
        self._peers[place] = peer
        self._everyone = [p for p in self._everyone if not p.is_dead] + [peer]
        if place.startswith("s"):
            peer.serve(self.plan.credit)
        peer.begin()

    def _operate(self, operation: Operation) -> None:
        peer = self._peers[f"c{operation.caller}"]
        if not peer.is_dead and not peer.is_paused and peer.uplink.origin:
            peer.send(operation)

    # --- faults ------------------------------------------------------------------------------

    def _fail(self, fault: Fault) -> None:
        if fault.target == "router":
            self._fail_router(fault)
            return
        peer = self._peers[fault.target]
        if peer.is_dead or peer.is_paused:
            return
        if fault.kind in ("reset", "drop"):
            self._fault("reset", peer.name)
            peer.lose(is_noticed=fault.kind == "reset")
        elif fault.kind == "stop":
            self._fault("stop", peer.name)
            peer.pause()
            self.later(fault.seconds, lambda: self._go_on(peer))
        elif "cut" in fault.kind or fault.kind == "half-open":
            self._cut(fault, peer)
        elif fault.kind == "delay":
            self._fault("delay", peer.name)
            peer.delay = fault.amount
            self.later(fault.seconds, lambda: self._speed_up(peer))
        elif fault.kind in ("kill", "vanish"):
            self._kill(fault, peer)
        elif fault.kind == "leave" and peer.uplink.ready and not peer.is_leaving:
            self._fault("leave", peer.name)
            peer.leave(lambda: self._begin(fault.target, peer.identity))

    def _cut(self, fault: Fault, peer: _Peer) -> None:
        if not (peer.sends and peer.receives):
            return
        self._fault("cut", peer.name)
        if fault.kind == "half-open":
            self.net.lose_at_router(peer)
            self.later(fault.seconds, lambda: self._heal(peer, is_broken=True))
        else:
            peer.cut_off(fault.kind != "cut to process", fault.kind != "cut to router")
            self.later(fault.seconds, lambda: self._heal(peer))

    def _fault(self, kind: str, target: str) -> None:
        self.record(What.FAULT, kind, {"target": target}, "drill")

    def _healed(self, kind: str, target: str) -> None:
        self.record(What.HEALED, kind, {"target": target}, "drill")

    def _go_on(self, peer: _Peer) -> None:
        if not peer.is_dead:
            self._healed("stop", peer.name)
            peer.resume()

    def _heal(self, peer: _Peer, is_broken: bool = False) -> None:
        if peer.is_dead:
            return
        self._healed("cut", peer.name)
        if is_broken:
            peer.lose()
        peer.heal()

    def _speed_up(self, peer: _Peer) -> None:
        peer.delay = 0.0
        self._healed("delay", peer.name)

    def _kill(self, fault: Fault, peer: _Peer) -> None:
        place = fault.target
        identity = peer.identity if fault.amount < 1.0 else f"{place}/{next(self._lives)}"
        if fault.kind == "vanish":
            # Nobody says that it is gone: the router finds out by its silence.
            peer.pause()
            peer.cut_off()
            self._fault("stop", peer.name)
            self.later(_LOST_SECONDS, lambda: self._died(peer))
        else:
            self._died(peer)
        self.later(fault.seconds, lambda: self._begin(place, identity))

    def _died(self, peer: _Peer) -> None:
        self._fault("kill", peer.name)
        peer.die()

    def _fail_router(self, fault: Fault) -> None:
        if not self.net.is_router_up:
            return
        if fault.kind == "stop router":
            self._fault("stop", "router")
            self.net.pause_router()
            self.later(fault.seconds, self._router_goes_on)
            return
        self._fault("kill", "router")
        self.net.kill_router()
        self.later(fault.seconds, lambda: self._router_returns(fault.amount))

    def _router_goes_on(self) -> None:
        self._healed("stop", "router")
        self.net.resume_router()

    def _router_returns(self, clock_step: float) -> None:
        self.net.start_router(clock_step)
        self._healed("kill", "router")

    # --- what is watched ---------------------------------------------------------------------

    def accepted(self, part: bytes) -> None:
        """As :class:`rpcmq.drill.watched.Watch` says; this and the next three."""
        self.record(What.ACCEPT, _id_of(part), {})

    def dispatched(self, part: bytes, link: Link, attempt: int) -> None:
        """See :meth:`accepted`."""
        if (peer := self._peer_of(link)) is not None:
            self.record(What.DISPATCH, _id_of(part), {"to": peer.name, "attempt": attempt})

    def settled(self, part: bytes, outcome: int) -> None:
        """See :meth:`accepted`."""
        self.record(What.SETTLE, _id_of(part), {"outcome": _OUTCOMES[int(outcome)]})

    def declared(self, link: Link) -> None:
        """See :meth:`accepted`."""
        if (peer := self._peer_of(link)) is not None:
            self.record(What.DECLARED, peer.name, {"state": link.state.value})

    def _peer_of(self, link: Link) -> _Peer | None:
        return next((p for p in self._everyone if p.uplink.origin == link.origin), None)

    # --- the end -----------------------------------------------------------------------------

    def _end(self) -> None:
        """Everything is well again for so long that all must have ended; then everyone leaves."""
        router = self.net.router
        counters = router.dispatch.requests.counters
        late = sum(counters[name] for name in counters if name.startswith(LATE))
        for peer in self._everyone:
            late += peer.calls.counters["late replies"] + peer.tasks.counters["late answers"]
        self.record(What.COUNTED, "", {"late answers": late})
        for peer in self._peers.values():
            if not peer.is_dead:
                self.record(What.DONE, "", {"left": peer.casts.open}, peer.name)
                assert peer.uplink.ready, f"{peer.name} has not come back: {peer.uplink.state}"
                assert not peer.calls.open, f"{peer.name} still waits for {len(peer.calls.open)} calls"
        assert not router.refused, f"the router refused what an honest process said: {dict(router.refused)}"
        for peer in self._peers.values():
            peer.is_dead = True
            peer.stop()
        # Casts that nobody consumes any more are kept for as long as the mailbox is.
        self.net.advance(self.plan.settings.mailbox_max_seconds + 100.0)
        left = left_behind(self.net.router)
        assert not left, f"left behind: {left}"


def _id_of(part: bytes) -> str:
    return bytes(payload_of(part)).partition(b" ")[0].decode()


def simulate(seed: int, **options: Any) -> Verdict:
    """Run the plan of ``seed``. ``options``: as of :func:`rpcmq.drill.plan.plan_of`."""
    return Simulation(plan_of(seed, **options)).run()


def minimised(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The plan with all steps left out without which it ``fails`` as well."""
    size = max(1, len(plan.steps) // 2)
    while True:
        for shorter in _shorter(plan, size):
            if fails(shorter):
                plan = shorter
                break
        else:
            if size == 1:
                return plan
            size //= 2


def _shorter(plan: Plan, size: int) -> Iterator[Plan]:
    for start in range(0, len(plan.steps), size):
        yield plan.with_steps(plan.steps[:start] + plan.steps[start + size :])
