"""Several routers in place of the one that a test of the engines has: ``ROUTERS=3 pytest tests/core/router``.

Callers, services and subscribers are then spread over them, in the order in which a test makes them. A test that holds
for one router holds for the mesh, unless it is about something that each router has for itself: then it is skipped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pytest

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Message, Process
from rpcmq.testing.network import Network

__all__ = ["ROUTERS", "SKIPPED", "new_network", "reason_to_skip", "routers_of"]

ROUTERS = int(os.environ.get("ROUTERS", "1"))

_INSIDE = "looks into its one router"
#: Tests that do not hold for several routers, with the reason.
SKIPPED: Mapping[str, str] = {}
#: Seconds that a mesh has for linking its routers.
_LINKING = 1.0
#: Seconds for which routers gather their news, at most; each verb of a process waits for it.
_GATHERING = 0.03


def reason_to_skip(nodeid: str) -> str | None:
    """Why the test ``nodeid`` is left out with several routers; None: it is not."""
    return next((reason for start, reason in SKIPPED.items() if nodeid.startswith(start)), None)


def new_network(settings: Settings, sink: Sink | None = None, routers: int = ROUTERS) -> Network:
    """Make the network of a test: with one router, or with several that take its place."""
    if routers == 1:
        return Network(settings, sink=sink)
    return _Spread(settings, sink, routers)  # type: ignore[return-value]


def routers_of(network: Network) -> list[Router]:
    """The engines of all routers of ``network``."""
    return [host.router for host in network.hosts.values()]


class _Spread(MeshNetwork):
    """Several routers in the place of one: each identity connects to the next of them."""

    def __init__(self, settings: Settings, sink: Sink | None, routers: int) -> None:
        names = "abcdefghijklmnop"[:routers]
        self._next = cycle(names)
        self._places: dict[str, str] = {}
        self._is_settling = True
        super().__init__(names, settings, sinks=dict.fromkeys(names, sink) if sink else None)
        self._is_settling = False
        self.settings = settings
        self.router = _AllRouters(self)
        self.advance(_LINKING)

    def process(
        self, identity: str, queue_type: str = "roundrobin", user: str = "", *, router: str = "", **hello: Any
    ) -> Process:
        if identity not in self._places:
            self._places[identity] = router or next(self._next)
        return super().process(identity, queue_type, user, router=router or self._places[identity], **hello)

    def run(self) -> None:
        """Run all engines until nothing is pending, and all routers know of it."""
        super().run()
        if not (self._is_settling or self._is_holding):
            self._is_settling = True
            try:
                while (due := self._next_news()) <= self.now + _GATHERING:
                    super().advance(max(due - self.now, 0.0))
            finally:
                self._is_settling = False

    def _next_news(self) -> float:
        return min(host.router.mesh.next_deadline() for host in self.hosts.values())

    def advance(self, seconds: float) -> None:
        """Advance the clock; see :meth:`MeshNetwork.advance`."""
        was_settling, self._is_settling = self._is_settling, True
        super().advance(seconds)
        self._is_settling = was_settling
        self.run()

    @property
    def notes(self) -> list[LogEvent]:
        """Log events of all routers, but for their links to each other."""
        return [note for host in self.hosts.values() for note in host.notes if note.event != "router linked"]

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Inject any bytes at the first router."""
        return self.hosts["a"].inject(route, batch, payloads)

    def __getattr__(self, name: str) -> Any:
        if hasattr(Network, name):
            pytest.skip(f"{_INSIDE}: {name}")
        raise AttributeError(name)


class _AllRouters:
    """The routers of a network, as far as a test can ask all of them as one."""

    def __init__(self, network: MeshNetwork) -> None:
        self._network = network

    @property
    def _all(self) -> list[Router]:
        return [host.router for host in self._network.hosts.values()]

    @property
    def refused(self) -> Counter[str]:
        return sum((router.refused for router in self._all), Counter[str]())

    @property
    def in_flight(self) -> int:
        return sum(router.in_flight for router in self._all)

    def set_authorized_keys(self, *args: Any) -> None:
        for router in self._all:
            router.set_authorized_keys(*args)

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"{_INSIDE}: router.{name}")
