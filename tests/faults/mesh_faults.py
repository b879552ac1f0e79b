"""The faults of a simulation of several routers: routers, the links between them, and processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rpcmq.drill.history import What
from rpcmq.testing.mesh_network import MeshNetwork
from tests.faults.plan import Fault
from tests.faults.roaming_process import RoamingProcess
from tests.faults.simulated_process import SimulatedProcess, Stage

__all__ = ["MeshFaults"]


class MeshStage(Stage, Protocol):
    """A stage with several routers, and with its processes by their places."""

    @property
    def net(self) -> MeshNetwork:
        """The routers, and all that is between them."""

    processes: dict[str, SimulatedProcess]

    def begin(self, place: str, identity: str = "") -> None:
        """A process begins in ``place``."""


class MeshFaults:
    """Breaks what a fault says, and mends it again when its time is over."""

    def __init__(self, stage: MeshStage) -> None:
        self._stage = stage
        self._net = stage.net

    def inject(self, fault: Fault) -> None:
        """Let ``fault`` happen now, unless its target is in no state for it."""
        if fault.target in self._stage.processes:
            self._hurt_process(fault)
        elif len(fault.target) == 2:
            self._hurt_link(fault)
        elif self._net.hosts[fault.target].is_up:
            self._hurt_router(fault)

    def _while(self, fault: Fault, mend: Callable[[], None]) -> None:
        """The fault has begun; ``mend`` ends it."""
        self._stage.record(What.FAULT, fault.kind, {"target": fault.target}, "drill")

        def over() -> None:
            mend()
            self._stage.record(What.HEALED, fault.kind, {"target": fault.target}, "drill")

        self._stage.later(fault.seconds, over)

    def _hurt_router(self, fault: Fault) -> None:
        host = self._net.hosts[fault.target]
        if fault.kind == "stop router":
            host.pause()
            self._while(fault, host.resume)
        elif fault.kind == "isolate router":
            others = [name for name in self._net.hosts if name != fault.target]
            self._net.partition([fault.target], others)
            self._while(fault, lambda: self._heal(fault.target, others))
        else:
            host.kill(is_delivered=fault.kind == "kill router and deliver")
            self._while(fault, lambda: host.start(fault.amount))

    def _heal(self, router: str, others: list[str]) -> None:
        for other in others:
            self._net.heal(router, other)

    def _hurt_link(self, fault: Fault) -> None:
        one, other = fault.target[0], fault.target[1]
        net = self._net
        if fault.kind == "reset routers":
            net.reset(one, other)
            self._while(fault, lambda: None)
        elif fault.kind == "delay routers":
            net.delay(one, other, fault.amount)
            self._while(fault, lambda: net.delay(one, other, 0.0))
        else:
            net.cut(one, other, is_one_way=fault.kind == "cut routers one way")
            self._while(fault, lambda: net.heal(one, other))

    def _hurt_process(self, fault: Fault) -> None:
        peer = self._stage.processes[fault.target]
        assert isinstance(peer, RoamingProcess)
        if peer.is_dead or peer.is_paused:
            return
        if fault.kind == "stop":
            peer.pause()
            self._while(fault, lambda: None if peer.is_dead else peer.resume())
        elif fault.kind == "cut":
            peer.cut_off()
            self._while(fault, lambda: None if peer.is_dead else peer.heal())
        elif fault.kind == "kill":
            peer.die()
            self._while(fault, lambda: self._stage.begin(fault.target))
        elif fault.kind == "move":
            peer.leave_router()
            self._net.run()
            self._while(fault, lambda: None)
        else:
            peer.lose(is_noticed=fault.kind == "reset")
            self._while(fault, lambda: None)
