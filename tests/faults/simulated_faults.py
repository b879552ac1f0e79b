"""The faults of a simulation: connections, processes and the router break, and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rpcmq.drill.history import What
from rpcmq.testing.network import Network
from tests.faults.plan import Fault
from tests.faults.simulated_process import SimulatedProcess, Stage

__all__ = ["LOST_SECONDS", "Faults"]

#: A connection that is silent for so long is given up by both ends (seconds).
LOST_SECONDS = 20.0


class Cast(Stage, Protocol):
    """A stage with one router, and with its processes by their places."""

    @property
    def net(self) -> Network:
        """The network, with its one router."""

    processes: dict[str, SimulatedProcess]

    def begin(self, place: str, identity: str = "") -> None:
        """A process begins in ``place``."""


class Faults:
    """Breaks what a fault says, and mends it again when its time is over."""

    def __init__(self, stage: Cast) -> None:
        self._stage = stage
        self._net = stage.net
        self._later: Callable[[float, Callable[[], None]], None] = stage.later

    def inject(self, fault: Fault) -> None:
        """Let ``fault`` happen now."""
        if fault.target == "router":
            self._fail_router(fault)
            return
        peer = self._stage.processes[fault.target]
        if peer.is_dead or peer.is_paused:
            return
        if fault.kind in ("reset", "drop"):
            self._fault("reset", peer.name)
            peer.lose(is_noticed=fault.kind == "reset")
        elif fault.kind == "stop":
            self._fault("stop", peer.name)
            peer.pause()
            self._later(fault.seconds, lambda: self._go_on(peer))
        elif "cut" in fault.kind or fault.kind == "half-open":
            self._cut(fault, peer)
        elif fault.kind == "delay":
            self._fault("delay", peer.name)
            peer.delay = fault.amount
            self._later(fault.seconds, lambda: self._speed_up(peer, fault.amount))
        elif fault.kind in ("kill", "vanish"):
            self._kill(fault, peer)
        elif fault.kind == "leave" and peer.uplink.ready and not peer.is_leaving:
            self._fault("leave", peer.name)
            peer.leave(lambda: self._stage.begin(fault.target, peer.identity))

    def _cut(self, fault: Fault, peer: SimulatedProcess) -> None:
        if not (peer.sends and peer.receives):
            return
        self._fault("cut", peer.name)
        if fault.kind == "half-open":
            self._net.lose_at_router(peer)
            self._later(fault.seconds, lambda: self._heal(peer, is_broken=True))
        else:
            peer.cut_off(fault.kind != "cut to process", fault.kind != "cut to router")
            self._later(fault.seconds, lambda: self._heal(peer))

    def _fault(self, kind: str, target: str) -> None:
        self._stage.record(What.FAULT, kind, {"target": target}, "drill")

    def _healed(self, kind: str, target: str) -> None:
        self._stage.record(What.HEALED, kind, {"target": target}, "drill")

    def _go_on(self, peer: SimulatedProcess) -> None:
        if not peer.is_dead:
            self._healed("stop", peer.name)
            peer.resume()

    def _heal(self, peer: SimulatedProcess, is_broken: bool = False) -> None:
        if peer.is_dead:
            return
        self._healed("cut", peer.name)
        if is_broken:
            peer.lose()
        peer.heal()

    def _speed_up(self, peer: SimulatedProcess, delay: float) -> None:
        peer.delay = 0.0
        # Messages on their way arrive so much later, and all others behind them.
        self._later(delay, lambda: self._healed("delay", peer.name))

    def _kill(self, fault: Fault, peer: SimulatedProcess) -> None:
        place = fault.target
        identity = peer.identity if fault.amount < 1.0 else ""
        if fault.kind == "vanish":
            # Nobody says that it is gone: the router finds out by its silence.
            peer.pause()
            peer.cut_off()
            self._fault("stop", peer.name)
            self._later(LOST_SECONDS, lambda: self._died(peer))
        else:
            self._died(peer)
        self._later(fault.seconds, lambda: self._stage.begin(place, identity))

    def _died(self, peer: SimulatedProcess) -> None:
        self._fault("kill", peer.name)
        peer.die()

    def _fail_router(self, fault: Fault) -> None:
        if not self._net.is_router_up:
            return
        if fault.kind == "stop router":
            self._fault("stop", "router")
            self._net.pause_router()
            self._later(fault.seconds, self._router_goes_on)
            return
        self._fault("kill", "router")
        self._net.kill_router()
        self._later(fault.seconds, lambda: self._router_returns(fault.amount))

    def _router_goes_on(self) -> None:
        self._healed("stop", "router")
        self._net.resume_router()

    def _router_returns(self, clock_step: float) -> None:
        self._net.start_router(clock_step)
        self._healed("kill", "router")
