"""A process of the simulation that has several routers, and goes from one to another as the client does."""

from __future__ import annotations

from random import Random
from typing import Any

from rpcmq.core.process.call import Call
from rpcmq.core.process.dialer import Dialer, Phase, Step
from rpcmq.core.process.welcome import Welcome
from tests.faults.simulated_process import Seen, SimulatedProcess, Stage

__all__ = ["RoamingProcess"]

_ATTEMPT_SECONDS, _LONGEST_PAUSE = 5.0, 2.0


class RoamingProcess(SimulatedProcess):
    """Keeps a link to one router of a mesh, with the policy of the client (:class:`Dialer`).

    Args:
        routers: the names of all routers.
        home: the one that it dials first.
        rest: as of :class:`SimulatedProcess`.
        hello: further fields of its HELLO.
    """

    def __init__(self, routers: str, home: str, *rest: Any, **hello: Any) -> None:
        stage: Stage = rest[0]
        self._jitter = Random(f"jitter of {rest[-1]}")
        super().__init__(*rest, follows_mesh=True, **hello)
        urls = [stage.net.hosts[name].url for name in routers]
        self._dialer = Dialer(self.uplink, urls, _ATTEMPT_SECONDS, _LONGEST_PAUSE, routers.index(home))
        self._names = dict(zip(urls, routers, strict=True))
        self.router = home

    # --- time --------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        times = (super().next_deadline(), self._dialer.next_deadline())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        super().tick(now)
        self._step(now)

    def _step(self, now: float) -> None:
        step = self._dialer.tick(now, self._jitter.random())
        if step is Step.HANG_UP:
            self._hang_up()
        elif step is Step.DIAL:
            self._open(now)

    # --- the link ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._dialer.start(self._network.now)

    def _open(self, now: float) -> None:
        router = self._names[self._dialer.url]
        if router != self.router:
            # What was cut is the path to the former one.
            self._is_cut_to_router = self._is_cut_to_process = False
        self.router = router
        self.connection = self._network.connection(self)
        if self.connection is None:
            self._dialer.ended(now, self._jitter.random(), "nothing listens there")
        else:
            self._dialer.greeted(now)

    def _hang_up(self) -> None:
        """Close the connection; its router mostly receives all that was sent before, sooner or later."""
        connection, self.connection = self.connection, None
        if connection is not None:
            is_delivered = self._jitter.random() < 0.8
            self._network.broken(self, connection, is_noticed=True, is_delivered=is_delivered)

    def lose(self, is_noticed: bool = True) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        now = self._network.now
        if self.is_dead:
            self.uplink.lost(now)
        else:
            self._dialer.ended(now, self._jitter.random(), "the connection is lost")
        self._network.broken(self, connection, is_noticed)
        self._network.run()

    def leave_router(self) -> None:
        """Go on at another router, if there is a connection."""
        self._refused("closing", "go to another one")

    def registered(self, call: Call, topic: str, server: str, group: str) -> None:
        if call.error is None:
            self._stage.record(Seen.SERVES, topic, {"server": server, "group": group}, self.name)

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self._dialer.welcomed(now)
        super()._welcomed(now, welcome)

    def _refused(self, reason: str, text: str) -> None:
        is_left = self._dialer.refused(self._network.now, self._jitter.random(), reason, text)
        assert self._dialer.phase is not Phase.STOPPED, f"{self.name} is refused for good: {text}"
        if is_left is Step.HANG_UP:
            self._hang_up()
