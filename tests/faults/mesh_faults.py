"""The faults of a simulation of several routers: routers, the links between them, and processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from rpcmq.drill.history import What
from rpcmq.server.leftovers import under_way
from rpcmq.testing.mesh_network import MeshNetwork
from tests.faults.plan import Fault
from tests.faults.roaming_process import RoamingProcess
from tests.faults.simulated_process import SimulatedProcess, Stage

__all__ = ["MeshFaults"]

#: Between the restart of a router and that of the next one (seconds).
_PAUSE = 3.0


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
        if fault.kind == "rolling restart":
            self._restart_each(fault, fault.target)
        elif fault.target in self._stage.processes:
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
        elif fault.kind == "drain router":
            self._drain(fault, lambda: None)
        elif fault.kind == "isolate router":
            others = [name for name in self._net.hosts if name != fault.target]
            self._net.partition([fault.target], others)
            self._while(fault, lambda: self._heal(fault.target, others))
        else:
            host.kill(is_delivered=fault.kind == "kill router and deliver")
            self._while(fault, lambda: host.start(fault.amount))

    def _restart_each(self, fault: Fault, routers: str) -> None:
        """Drain one router after the other, and start each again before the next one's turn."""
        if not routers:
            return
        one, rest = replace(fault, kind="drain router", target=routers[0]), routers[1:]
        go_on = partial(self._stage.later, _PAUSE, lambda: self._restart_each(fault, rest))
        if self._net.hosts[one.target].is_up:
            self._drain(one, go_on)
        else:
            go_on()

    def _drain(self, fault: Fault, then: Callable[[], None]) -> None:
        """Do as :func:`rpcmq.server.drain.drain`, end the router, and start it again."""
        host = self._net.hosts[fault.target]
        router, until = host.router, self._net.now + fault.seconds
        self._stage.record(What.FAULT, fault.kind, {"target": fault.target}, "drill")
        router.begin_drain(self._net.now)

        def look() -> None:
            if not host.is_up or host.router is not router:
                then()  # it was killed, or stopped, meanwhile
                return
            is_busy = under_way(router) or router.links.has_undrained_senders
            if is_busy and self._net.now < until:
                self._stage.later(0.1, look)
                return
            router.refuse_nested_work()
            router.finish_drain(self._net.now)
            host.perform_effects()
            host.kill(is_delivered=True)
            self._stage.later(fault.amount, start)

        def start() -> None:
            host.start()
            self._stage.record(What.HEALED, fault.kind, {"target": fault.target}, "drill")
            then()

        self._stage.later(0.1, look)

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
        elif fault.kind == "leave":
            self._leave(fault, peer)
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

    def _leave(self, fault: Fault, peer: RoamingProcess) -> None:
        """Let ``peer`` finish what it has, say goodbye, and begin again under its name."""
        if peer.is_leaving or not peer.uplink.ready:
            return
        self._stage.record(What.FAULT, fault.kind, {"target": fault.target}, "drill")

        def come_back() -> None:
            self._stage.begin(fault.target, peer.identity)
            self._stage.record(What.HEALED, fault.kind, {"target": fault.target}, "drill")

        peer.leave(lambda: self._stage.later(fault.seconds, come_back))
