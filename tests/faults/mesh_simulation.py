"""Three to seven routers under faults, with the real engines of all of them and of processes, in virtual time.

To see one seed line by line, the same in any process::

    python -m tests.faults.mesh_simulation 17
    python -m tests.faults.mesh_simulation 17 gentle     # or quiet, or rough: whatever the seed would draw
    python -m tests.faults.mesh_simulation 17 plain      # calls and casts only
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rpcmq.core.router.router import Router
from rpcmq.drill.checks import Verdict
from rpcmq.testing.invariants import left_behind
from rpcmq.testing.mesh_network import MeshNetwork
from tests.faults.event_process import EventProcess
from tests.faults.mesh_checks import MeshChecker
from tests.faults.mesh_faults import MeshFaults
from tests.faults.mesh_plan import MeshPlan, mesh_plan_of
from tests.faults.mesh_rest import unrest
from tests.faults.plan import Operation, minimised
from tests.faults.roaming_process import RoamingProcess
from tests.faults.simulated_faults import LOST_SECONDS
from tests.faults.simulated_process import SimulatedProcess
from tests.faults.simulated_run import SimulatedRun

__all__ = ["MeshSimulation", "simulate_mesh"]

#: Tables of what is remembered for ten minutes, and bounded; a pool of numbers, which keeps those that are free; counts
#: of the links between routers, which stand, and the ways over these, as found or avoided.
_REMEMBERED = (
    "fences", "_lost", "_sought", "_missed", "_identities", "_closed", "unread._", "endedruns", "untoldends",
    "_avoided", "_found",
)  # fmt: skip

#: Everything has ended, and been told of, within so many seconds of the last fault.
_REST_SECONDS = 60.0

#: The topic that is declared before anybody serves it.
_MAIL = "mail"


class MeshSimulation(SimulatedRun):
    """One run of a plan with several routers."""

    net: MeshNetwork
    plan: MeshPlan
    step_seconds = 0.1

    def __init__(self, plan: MeshPlan, keeps_history: bool = False, engine: Callable[..., Router] = Router) -> None:
        names = "" if plan.is_ring else plan.routers
        net = MeshNetwork(names, plan.settings, lost_seconds=LOST_SECONDS, engine=engine)
        for place, name in enumerate(plan.routers if plan.is_ring else ""):
            before, after = plan.routers[place - 1], plan.routers[(place + 1) % len(plan.routers)]
            net.add_router(name, peers=[each for each in (before, after) if each in net.hosts])
        checks = MeshChecker(plan.is_gentle, not plan.has_faults, plan.patience)
        super().__init__(plan, net, checks, keeps_history)
        net.advance(3.0)
        #: The tables that a mesh without processes has.
        self._own = {name: self._left(name) for name in plan.routers}
        self.inject = MeshFaults(self).inject

    def routers(self) -> list[Router]:
        return [host.router for host in self.net.hosts.values()]

    def new_process(self, place: str, name: str, identity: str, seed: str) -> SimulatedProcess:
        roams = self.plan.routers, dict(self.plan.homes)[place], self, name, identity, seed
        if place.startswith("e"):
            return EventProcess(self.plan.patterns[int(place[1:])], *roams)
        return RoamingProcess(*roams)

    def _run(self) -> None:
        for number in range(len(self.plan.patterns)):
            self.begin(f"e{number}", f"e{number}")
        super()._run()

    def begin(self, place: str, identity: str = "") -> None:
        super().begin(place, identity)
        peer, mail_at = self.processes[place], self.plan.mail_at
        for there, topic, group in self.plan.groups:
            if there == place:
                peer.serve(self.plan.credit, (topic,), group)
        if mail_at is not None and place == "c0":
            peer.later(0.5, lambda: self._declare(peer))
        elif mail_at is not None and place == "s0":
            peer.later(mail_at, lambda: peer.serve(1, (_MAIL,)))

    def _declare(self, peer: SimulatedProcess) -> None:
        """Have ``peer`` declare the topic of the mail once it has been linked, as the client's verbs wait for that."""
        if peer.uplink.origin:
            peer.declare(_MAIL)
        else:
            peer.later(0.5, lambda: self._declare(peer))

    def _operate(self, operation: Operation) -> None:
        if operation.verb != "event":
            super()._operate(operation)
            return
        peer = self.processes[f"e{operation.caller}"]
        if not peer.is_dead and not peer.is_paused and peer.uplink.origin:
            peer.send(operation)

    def end(self) -> None:
        for peer in self.processes.values():
            assert peer.uplink.ready, f"{peer.name} has not come back: {peer.uplink.state}"
            assert not peer.calls.open, f"{peer.name} still waits for {len(peer.calls.open)} calls"
            assert not peer.casts.open, f"{peer.name} still has {peer.casts.open} casts that no router has taken"
            assert not peer.uplink.discarded, f"{peer.name} has discarded messages: {dict(peer.uplink.discarded)}"
        for host in self.net.hosts.values():
            assert not host.router.refused, f"router {host.name} refused messages: {dict(host.router.refused)}"
        self._come_to_rest()
        for peer in self.processes.values():
            peer.is_dead = True
            peer.stop()
        until = self.net.now + self.plan.settings.mailbox_max_seconds + 35.0
        while self.net.now < until and any(map(self._left_behind, self.plan.routers)):
            self.net.advance(5.0)
        for name in self.plan.routers:
            assert not self._left_behind(name), f"left behind in router {name}: {self._left_behind(name)}"

    def _come_to_rest(self) -> None:
        """See that routers remember nothing of messages that have ended while those live who sent and ran them."""
        until = self.net.now + _REST_SECONDS
        while self.net.now < until and any(unrest(router) for router in self.routers()):
            self.net.advance(1.0)
        for router, name in zip(self.routers(), self.plan.routers, strict=True):
            assert not unrest(router), f"router {name} is not at rest: {unrest(router)}"

    def _left_behind(self, name: str) -> list[str]:
        """The tables of router ``name`` that are left behind."""
        return sorted(self._left(name) - self._own[name])

    def _left(self, name: str) -> set[str]:
        left = left_behind(self.net.router_of(name))
        return {path for path in left if not any(f".{each}" in path for each in _REMEMBERED)}


def simulate_mesh(seed: int, **options: Any) -> Verdict:
    """Run the plan of ``seed``. ``options``: as of :func:`tests.faults.mesh_plan.mesh_plan_of`."""
    return MeshSimulation(mesh_plan_of(seed, **options)).run()


def _replay(seed: int, kind: str = "") -> None:
    plan = mesh_plan_of(seed, is_plain=True) if kind == "plain" else mesh_plan_of(seed, mode=kind)
    if not MeshSimulation(plan).run().ok:
        plan = minimised(plan, lambda shorter: not MeshSimulation(shorter).run().ok)
        print("the steps that matter:")
    print(f"routers {plan.routers}, homes {dict(plan.homes)}, credit {plan.credit}, gentle {plan.is_gentle}")
    for at, step in plan.steps:
        print(f"{at:8.3f} {step}")
    simulation = MeshSimulation(plan, keeps_history=True)
    verdict = simulation.run()
    for line in simulation.history:
        print(line.decode(), end="")
    for violation in verdict.violations:
        print(violation)


if __name__ == "__main__":
    _replay(int(sys.argv[1]), *sys.argv[2:])
