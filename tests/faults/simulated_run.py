"""A plan that is carried out in virtual time, and the history of what comes of it, which is checked as it grows."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from traceback import extract_tb
from typing import Any, Protocol

from rpcmq.core.router.router import Router
from rpcmq.drill.checks import Verdict, Violation
from rpcmq.drill.history import Event, line_of
from rpcmq.testing.invariants import check_hedges, check_router
from rpcmq.testing.virtual_time import VirtualTime
from tests.faults.plan import Fault, Operation, Plan
from tests.faults.simulated_faults import LOST_SECONDS
from tests.faults.simulated_process import SimulatedProcess

__all__ = ["Checks", "SimulatedRun"]

#: So often (5 s each) it is looked whether all is at rest, in the end.
_MAX_ROUNDS = 120


class Checks(Protocol):
    """Judges a history."""

    verdict: Verdict

    def see(self, event: Event) -> None:
        """The next event."""

    def finish(self) -> Verdict:
        """Check the complete history."""


class SimulatedRun:
    """One run of a plan.

    Args:
        plan: what happens.
        net: where.
        checks: judge the history.
        keeps_history: whether :attr:`history` is filled.

    Attributes:
        history: the lines of all events.
        processes: the process that is in each place now.
        everyone: all processes that live.
        inject: lets a fault happen.
    """

    inject: Callable[[Fault], None]
    #: Steps of the clock, at most (seconds): what a handler does later is late by no more than that.
    step_seconds = inf

    def __init__(self, plan: Plan, net: VirtualTime, checks: Checks, keeps_history: bool) -> None:
        self.plan = plan
        self.net = net
        self.history: list[bytes] = []
        self._keeps_history = keeps_history
        self._checker = checks
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self.processes: dict[str, SimulatedProcess] = {}
        self.everyone: list[SimulatedProcess] = []
        self._lives = count(1)

    # --- what differs ------------------------------------------------------------------------

    def routers(self) -> list[Router]:
        """The engines of all routers."""
        raise NotImplementedError

    def new_process(self, place: str, name: str, identity: str, seed: str) -> SimulatedProcess:
        """Return a process for ``place``."""
        raise NotImplementedError

    def end(self) -> None:
        """Everything is well again for so long that all must have ended."""
        raise NotImplementedError

    # --- what happens ------------------------------------------------------------------------

    def record(self, what: str, id: str, fields: dict[str, Any], process: str = "router") -> None:
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
            The verdict; a broken invariant of the routers' tables is a violation, too.
        """
        try:
            self._run()
        except (AssertionError, RuntimeError) as error:
            notes = (note for host in self.net.hosts.values() for note in host.notes)
            inside = "".join(note.text for note in notes if note.event == "internal error")
            where = extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {str(error) or where.line}{inside}"
            self._checker.verdict.violations.append(Violation("engine", text))
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
                lambda step=step: self.inject(step)
            )  # fmt: skip
            heappush(self._due, (start + at, next(self._number), action))
        self._all_until(start + (plan.steps[-1][0] if plan.steps else 0.0) + LOST_SECONDS)
        for _ in range(_MAX_ROUNDS):
            self._all_until(self.net.now + 5.0)
            if not self._due and self._is_at_rest:
                break
        self.end()

    @property
    def _is_at_rest(self) -> bool:
        """Whether nothing is under way any more."""
        peers = [peer for peer in self.processes.values() if not peer.is_dead]
        return all(p.uplink.ready and not p.calls.open and not p.casts.open for p in peers) and not any(
            any(router.dispatch.unsettled()) for router in self.routers()
        )

    def _all_until(self, end: float) -> None:
        while True:
            at = min(self._due[0][0] if self._due else inf, end)
            if at - self.net.now > self.step_seconds:
                self.net.advance(self.step_seconds)
                continue
            self.net.advance(max(0.0, at - self.net.now))
            if not self._due or self._due[0][0] > end:
                break
            heappop(self._due)[2]()
            self.net.run()
            self._check_routers()
        self._check_routers()

    def _check_routers(self) -> None:
        for host in self.net.hosts.values():
            if host.is_up:
                check_router(host.router)
                check_hedges(host.router)

    def begin(self, place: str, identity: str = "") -> None:
        """A process begins in ``place``; without an ``identity``: with one that nobody has had."""
        life = next(self._lives)
        if not identity:
            identity, life = f"{place}/{life}", next(self._lives)
        peer = self.new_process(place, f"{place}#{life}", identity, f"{self.plan.seed}/{life}")
        self.processes[place] = peer
        self.everyone = [p for p in self.everyone if not p.is_dead] + [peer]
        if place.startswith("s"):
            peer.serve(self.plan.credit)
        peer.begin()

    def _operate(self, operation: Operation) -> None:
        peer = self.processes[f"c{operation.caller}"]
        if not peer.is_dead and not peer.is_paused and peer.uplink.origin:
            peer.send(operation)
