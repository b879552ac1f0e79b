"""Routers that start, die, stop and lose each other at random: in the end each is linked to each."""

from __future__ import annotations

from itertools import combinations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rpcmq.core.router.link_states import LinkState
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import MeshNetwork
from tests.core.router.mesh.joining import check_full_mesh, members_of

ROUTERS = "abcd"

routers = st.sampled_from(ROUTERS)
pairs = st.sampled_from(list(combinations(ROUTERS, 2)))


class MeshOfRouters(RuleBasedStateMachine):
    """Four routers, the ids and first urls of which are drawn."""

    @initialize(ids=st.permutations(range(1, 5)), dialed=st.lists(routers, min_size=4, max_size=4))
    def start(self, ids: list[int], dialed: list[str]) -> None:
        self.net = MeshNetwork(names=())
        self.left: set[str] = set()
        for name, id, other in zip(ROUTERS, ids, dialed, strict=True):
            peers = {f"inproc://{other}", "inproc://a"} - {f"inproc://{name}"}
            self.net.add_router(name, router_id=id, mesh_peers=tuple(sorted(peers)))

    @rule(pair=pairs)
    def reset(self, pair: tuple[str, str]) -> None:
        self.net.reset(*pair)

    @rule(pair=pairs, is_one_way=st.booleans())
    def cut(self, pair: tuple[str, str], is_one_way: bool) -> None:
        self.net.cut(*pair, is_one_way)

    @rule(pair=pairs)
    def heal(self, pair: tuple[str, str]) -> None:
        self.net.heal(*pair)

    @rule(pair=pairs, seconds=st.sampled_from((0.0, 0.004, 0.3)))
    def delay(self, pair: tuple[str, str], seconds: float) -> None:
        self.net.delay(*pair, seconds)

    @rule(name=routers)
    def kill(self, name: str) -> None:
        if not self.net.hosts[name].is_down:
            self.net.hosts[name].kill()
            self.left.discard(name)

    @rule(name=routers, clock_step=st.sampled_from((1.0, 60.0, -3600.0)))
    def start_again(self, name: str, clock_step: float) -> None:
        if self.net.hosts[name].is_down:
            self.net.hosts[name].start(clock_step)

    @rule(name=routers)
    def pause(self, name: str) -> None:
        if self.net.hosts[name].is_up:
            self.net.hosts[name].pause()

    @rule(name=routers)
    def resume(self, name: str) -> None:
        if self.net.hosts[name].is_paused:
            self.net.hosts[name].resume()

    # All know a, which does not leave: somebody who knows nobody else could not come back.
    @rule(name=st.sampled_from(ROUTERS[1:]))
    def leave(self, name: str) -> None:
        if self.net.hosts[name].is_up:
            members_of(self.net, name).leave(self.net.now)
            self.left.add(name)
            self.net.run()

    @rule(name=routers, other=routers)
    def join(self, name: str, other: str) -> None:
        if self.net.hosts[name].is_up and name != other:
            members_of(self.net, name).join(self.net.now, f"inproc://{other}")
            self.left.discard(name)
            self.net.run()

    @rule(seconds=st.sampled_from((0.0, 0.05, 0.7, 2.0, 7.0, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.net.advance(seconds)

    @invariant()
    def each_link_is_sound(self) -> None:
        for name, host in self.net.hosts.items():
            assert [note.text for note in host.notes if note.event == "internal error"] == []
            if host.is_down:
                continue
            check_router(host.router)
            mesh = host.router.mesh
            assert len(mesh.neighbours.by_id) == len(mesh.neighbours.by_link) == len(mesh.handshake.peerings)
            for neighbour in mesh.neighbours:
                assert neighbour.link.state not in (LinkState.NEW, LinkState.ENDED), name
                peering = mesh.handshake.peerings.of_link(neighbour.link)
                assert peering is not None and peering.route == neighbour.link.route

    def teardown(self) -> None:
        """Everything is healed and runs: each is linked to each that has not left."""
        if not hasattr(self, "net"):
            return
        self.net.heal()
        for host in self.net.hosts.values():
            if host.is_paused:
                host.resume()
            if host.is_down:
                host.start()
        self.net.advance(45.0)
        self.each_link_is_sound()
        check_full_mesh(self.net, *(name for name in ROUTERS if name not in self.left))


MeshOfRouters.TestCase.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, phases=[Phase.generate]
)
TestMeshOfRouters = MeshOfRouters.TestCase
