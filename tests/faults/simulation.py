"""The engines under faults on a virtual network in virtual time: the same seed gives the same history.

The router, and both halves of each process, are the real engines. What is simulated is the network, the clock,
and what callers and handlers do; that is drawn from the seed by :mod:`tests.faults.plan`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from rpcmq.core.router.model import Link
from rpcmq.drill.checks import Bounds, Checker, Verdict, Violation
from rpcmq.drill.history import Event, What, line_of
from rpcmq.drill.late_answers import LATE
from rpcmq.drill.watched import WatchedRouter
from rpcmq.testing.invariants import check_router, left_behind
from rpcmq.testing.network import Network
from tests.faults.plan import Operation, Plan, plan_of
from tests.faults.simulated_faults import LOST_SECONDS, Faults
from tests.faults.simulated_process import OUTCOMES, SimulatedProcess, id_of

__all__ = ["Simulation", "simulate"]

#: So often (5 s each) it is looked whether all is at rest, in the end.
_MAX_ROUNDS = 120


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
                lost=LOST_SECONDS,
                heartbeat=settings.heartbeat_seconds + 0.1,
                recovery_window=settings.recovery_seconds,
                resume=settings.resume_seconds,
            )
        )
        self.net = Network(settings, lost_seconds=LOST_SECONDS, engine=partial(WatchedRouter, self))
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        #: Place -> the process that is there now, and all that live.
        self.processes: dict[str, SimulatedProcess] = {}
        self._everyone: list[SimulatedProcess] = []
        self._lives = count(1)
        self._faults = Faults(self)

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
            self._checker.verdict.violations.append(Violation("engine", f"{type(error).__name__}: {error}{inside}"))
        return self._checker.finish()

    def _run(self) -> None:
        plan = self.plan
        for number in range(plan.callers):
            self.begin(f"c{number}", f"c{number}")
        for number in range(plan.services):
            self.begin(f"s{number}", f"s{number}")
        start = self.net.now
        for at, step in plan.steps:
            action = (lambda step=step: self._operate(step)) if isinstance(step, Operation) else (
                lambda step=step: self._faults.inject(step)
            )  # fmt: skip
            heappush(self._due, (start + at, next(self._number), action))
        self._all_until(start + (plan.steps[-1][0] if plan.steps else 0.0) + LOST_SECONDS)
        for _ in range(_MAX_ROUNDS):
            self._all_until(self.net.now + 5.0)
            if not self._due and self._is_at_rest:
                break
        self._end()

    @property
    def _is_at_rest(self) -> bool:
        """Whether nothing is under way any more."""
        peers = [peer for peer in self.processes.values() if not peer.is_dead]
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

    def begin(self, place: str, identity: str = "") -> None:
        """A process begins in ``place``; without an ``identity``: with one that nobody has had."""
        life = next(self._lives)
        if not identity:
            identity, life = f"{place}/{life}", next(self._lives)
        peer = SimulatedProcess(self, f"{place}#{life}", identity, f"{self.plan.seed}/{life}")
        self.processes[place] = peer
        self._everyone = [p for p in self._everyone if not p.is_dead] + [peer]
        if place.startswith("s"):
            peer.serve(self.plan.credit)
        peer.begin()

    def _operate(self, operation: Operation) -> None:
        peer = self.processes[f"c{operation.caller}"]
        if not peer.is_dead and not peer.is_paused and peer.uplink.origin:
            peer.send(operation)

    # --- what is watched ---------------------------------------------------------------------

    def accepted(self, message: bytes) -> None:
        """See :class:`rpcmq.drill.watched.Watch`; this and the next three."""
        self.record(What.ACCEPT, id_of(message), {})

    def dispatched(self, message: bytes, link: Link, attempt: int) -> None:
        """See :meth:`accepted`."""
        if (peer := self._peer_of(link)) is not None:
            self.record(What.DISPATCH, id_of(message), {"to": peer.name, "attempt": attempt})

    def settled(self, message: bytes, outcome: int) -> None:
        """See :meth:`accepted`."""
        self.record(What.SETTLE, id_of(message), {"outcome": OUTCOMES[int(outcome)]})

    def declared(self, link: Link) -> None:
        """See :meth:`accepted`."""
        if (peer := self._peer_of(link)) is not None:
            self.record(What.DECLARED, peer.name, {"state": link.state.value})

    def _peer_of(self, link: Link) -> SimulatedProcess | None:
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
        for peer in self.processes.values():
            if not peer.is_dead:
                self.record(What.DONE, "", {"left": peer.casts.open}, peer.name)
                assert peer.uplink.ready, f"{peer.name} has not come back: {peer.uplink.state}"
                assert not peer.calls.open, f"{peer.name} still waits for {len(peer.calls.open)} calls"
        assert not router.refused, f"the router refused what an honest process said: {dict(router.refused)}"
        for peer in self.processes.values():
            peer.is_dead = True
            peer.stop()
        # Casts that nobody consumes any more are kept for as long as the mailbox is.
        self.net.advance(self.plan.settings.mailbox_max_seconds + 100.0)
        left = left_behind(self.net.router)
        assert not left, f"left behind: {left}"


def simulate(seed: int, **options: Any) -> Verdict:
    """Run the plan of ``seed``. ``options``: as of :func:`tests.faults.plan.plan_of`."""
    return Simulation(plan_of(seed, **options)).run()
