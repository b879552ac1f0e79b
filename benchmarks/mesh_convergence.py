"""How long a mesh takes to know of a change, and what it sends for that: 10, 50 and 100 routers, four connections each.

The real engines in virtual time, with 1 ms for each connection between two routers: the milliseconds are those of the
protocol, without the time that computing takes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import quantiles
from typing import Any

from benchmarks.report import Benchmark, Options, Row
from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import KIND_AT, Address, Kind, size_of
from rpcmq.wire.interest import place_key

__all__ = ["BENCHMARK", "Mesh"]

_ROUTERS = (10, 50, 100)
_DELAY = 0.001
#: Changes of each sort that are measured, and addresses that are there in the last case.
_CHANGES, _ADDRESSES = 5, 10_000
#: Of links that stand, whatever changes.
_UNCOUNTED = {Kind.HEARTBEAT, Kind.ACK}


class Mesh:
    """A random mesh: each router connects to two of those before it."""

    def __init__(self, routers: int, seed: int = 1) -> None:
        self._random = Random(seed)
        self.net = MeshNetwork((), Settings(recovery_seconds=0.0, mesh_dial="peers"))
        self.connections: list[tuple[str, str]] = []
        self.messages = self.bytes = 0
        for _ in range(routers):
            self.join()
        self.until(lambda name: len(self._linked(name)) == routers - 1)
        self._put, self.net.put = self.net.put, self._counting_put  # type: ignore[method-assign]

    def join(self) -> str:
        """Add a router; return its name."""
        names = list(self.net.hosts)
        name = f"r{len(names)}"
        for peer in self._random.sample(names, min(2, len(names))):
            self.connections.append((name, peer))
        self.net.add_router(name, peers=[])
        for _, peer in (each for each in self.connections if each[0] == name):
            self.net.delay(name, peer, _DELAY)
            self.net.router_of(name).mesh.targets.configure(self.net.now, f"inproc://{peer}")
        return name

    def _linked(self, name: str) -> set[str]:
        return {each.name for each in self.net.router_of(name).mesh.neighbours if each.is_usable}

    def _counting_put(self, connection: Any, way: Any, messages: list[bytes]) -> None:
        if messages and not {message[KIND_AT] for message in messages} - {Kind.RELAY} <= _UNCOUNTED:
            self.messages += 1
            self.bytes += sum(map(size_of, messages))
        self._put(connection, way, messages)

    def until(self, knows: Callable[[str], bool]) -> dict[str, float]:
        """Let time pass until all routers ``knows`` something; return the milliseconds that each took."""
        began = self.net.now
        took: dict[str, float] = {}
        while True:
            for name in self.net.hosts.keys() - took.keys():
                if knows(name):
                    took[name] = (self.net.now - began) * 1e3
            if len(took) == len(self.net.hosts):
                return took
            assert self.net.now < began + 60, f"{sorted(self.net.hosts.keys() - took.keys())} know nothing after 60 s"
            self.net.advance(max(0.0, self.net._next_event() - self.net.now))

    def rest(self) -> None:
        """Let everything that is due come to an end."""
        self.net.advance(1.0)
        self.messages = self.bytes = 0

    # --- changes -----------------------------------------------------------------------------

    def router_joins(self) -> dict[str, float]:
        """A router joins: until each is linked to it."""
        self.net.heal()
        name = self.join()
        others = len(self.net.hosts) - 1
        return self.until(lambda at: name in self._linked(at) or (at == name and len(self._linked(name)) == others))

    def connection_breaks(self) -> dict[str, float]:
        """A connection breaks, where all others stand: until each knows."""
        self.net.heal()
        self.net.advance(12.0)
        self.rest()
        one, other = self._random.choice(self.connections)
        ids = [self.net.router_of(name).mesh.own.id for name in (one, other)]
        self.net.cut(one, other)
        self.net.reset(one, other)

        def knows(name: str) -> bool:
            mesh = self.net.router_of(name).mesh
            said = [mesh.members.own(), *(member.said for member in mesh.members.table)]
            neighbours = {each.id: each.neighbours for each in said}
            return all(end not in neighbours[begin] for begin, end in (ids, ids[::-1]))

        return self.until(knows)

    def consumer_comes(self) -> dict[str, float]:
        """A consumer of a new address registers: until each knows the address."""
        name, number = self._random.choice(list(self.net.hosts)), len(self.net.processes)
        address = Address(f"topic-{number}")
        node = self.net.process(f"node-{number}", router=name)
        self.rest()
        node.register(address.topic)
        key = place_key(address)
        tables = {at: self._interest(at).learner.table for at in self.net.hosts}
        return self.until(lambda at: at == name or bool(tables[at].states(key)))

    def _interest(self, name: str) -> Interest:
        return next(part for part in self.net.router_of(name).mesh.parts if isinstance(part, Interest))


def _measured(mesh: Mesh, change: Callable[[], dict[str, float]]) -> list[dict[str, float]]:
    samples = []
    for _ in range(_CHANGES):
        mesh.rest()
        took = sorted(change().values())
        cuts = quantiles(took, n=100, method="inclusive")
        samples.append(
            {"p50_ms": cuts[49], "p99_ms": cuts[98], "last_ms": took[-1], "batches": mesh.messages, "bytes": mesh.bytes}
        )
    return samples


def run(options: Options) -> list[Row]:
    """Milliseconds until a router knows, and batches and bytes over all connections."""
    rows = []
    for routers in _ROUTERS:
        mesh = Mesh(routers)
        for case, change in (
            ("an address", mesh.consumer_comes),
            ("a connection breaks", mesh.connection_breaks),
            ("a router joins", mesh.router_joins),
        ):
            rows.append(Row(f"{routers} routers", case, _measured(mesh, change)))
            options.progress(f"{routers} routers, {case}: measured")
    mesh = Mesh(_ROUTERS[0])
    crowd = mesh.net.process("crowd", router="r0")
    with mesh.net.together():
        for number in range(_ADDRESSES):
            crowd.register(f"other-{number}", tag=number % 255, server=f"s{number}")
    mesh.net.advance(5.0)
    rows.append(
        Row(f"{_ROUTERS[0]} routers", f"an address, {_ADDRESSES:,} others", _measured(mesh, mesh.consumer_comes))
    )
    return rows


BENCHMARK = Benchmark(
    name="mesh-convergence",
    title="Until all routers of a mesh know of a change (virtual time, 1 ms for each connection)",
    case="change",
    metric="p50_ms",
    ours="10 routers",
    run=run,
)
