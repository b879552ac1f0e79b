"""The engines under faults on a virtual network in virtual time: the same seed gives the same history.

The router, and both halves of each process, are the real engines. What is simulated is the network, the clock,
and what callers and handlers do; that is drawn from the seed by :mod:`tests.faults.plan`. Several routers:
:mod:`tests.faults.mesh_simulation`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.drill.checks import Bounds, Checker, Verdict
from rpcmq.drill.history import What
from rpcmq.drill.late_answers import LATE
from rpcmq.drill.watched import WatchedRouter
from rpcmq.testing.invariants import left_behind
from rpcmq.testing.network import Network
from tests.faults.plan import Plan, plan_of
from tests.faults.simulated_faults import LOST_SECONDS, Faults
from tests.faults.simulated_process import OUTCOMES, SimulatedProcess, id_of
from tests.faults.simulated_run import SimulatedRun

__all__ = ["Simulation", "simulate"]


class Simulation(SimulatedRun):
    """One run of a plan with one router."""

    net: Network

    def __init__(self, plan: Plan, keeps_history: bool = False) -> None:
        settings = plan.settings
        bounds = Bounds(
            told=settings.consumer_grace_seconds + 0.1,
            recovery=float("inf"),
            overdue=0.55,
            unresponsive=settings.unresponsive_seconds,
            lost=LOST_SECONDS,
            heartbeat=settings.heartbeat_seconds + 0.1,
            recovery_window=settings.recovery_seconds,
            resume=settings.resume_seconds,
        )
        net = Network(settings, lost_seconds=LOST_SECONDS, engine=partial(WatchedRouter, self))
        super().__init__(plan, net, Checker(bounds), keeps_history)
        self.inject = Faults(self).inject

    def routers(self) -> list[Router]:
        return [self.net.router]

    def new_process(self, place: str, name: str, identity: str, seed: str) -> SimulatedProcess:
        return SimulatedProcess(self, name, identity, seed)

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
        return next((p for p in self.everyone if p.uplink.origin == link.origin), None)

    # --- the end -----------------------------------------------------------------------------

    def end(self) -> None:
        """Everything is well again for so long that all must have ended; then everyone leaves."""
        router = self.net.router
        counters = router.dispatch.requests.counters
        late = sum(counters[name] for name in counters if name.startswith(LATE))
        for peer in self.everyone:
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
