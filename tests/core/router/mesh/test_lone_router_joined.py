"""A router that was alone is killed as another one joins it: its processes, which know of no mesh yet, go on there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.testing.process import Message
from rpcmq.wire import Flag, Kind, with_flag


@pytest.fixture
def net() -> MeshNetwork:
    """Router a, which has no peers, and so the id 1 in the keys of its processes."""
    made = MeshNetwork((), Settings(recovery_seconds=2.0, router_id=1))
    made.add_router("a", peers=(), router_id=1, mesh_id=70)
    made.advance(3.0)
    return made


def join_and_kill(net: MeshNetwork, seconds: float) -> None:
    """Have router b join, and kill a so much later."""
    net.add_router("b", peers=("a",), router_id=90)
    net.advance(seconds)
    net.hosts["a"].kill()


def move(process: Process, *topics: str, had: Iterable[Message] = ()) -> None:
    """As a client does that has lost its router: go on at b, and send again what was not acknowledged."""
    process.move("b")
    for topic in topics:
        process.register(topic, credit=10, recent=b"".join(each.key for each in had).hex())
    welcome = process.welcomes[-1]
    for message in (*welcome.sent, *welcome.unsent):
        if Kind(message[5]) is Kind.CAST:
            again = process.uplink.with_current_origin(message)
            process.uplink.send(with_flag(again, Flag.RESENT) if message in welcome.sent else again)


def payloads(*processes: Process) -> list[bytes]:
    return sorted(message.payload for process in processes for message in process.got(Kind.CAST))


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.005, 0.009])
def test_no_cast_runs_twice_and_none_is_lost(net: MeshNetwork, seconds: float) -> None:
    api, node, other = (net.process(name, router="a") for name in ("api", "node", "other"))
    node.register("jobs", credit=10)
    for number in range(3):
        api.cast("jobs", payload=b"%d" % number)
    had = node.got(Kind.CAST)
    assert len(had) == 3
    join_and_kill(net, seconds)
    assert all(not process.welcome.mesh for process in (api, node, other)), "it was not told yet"
    lost = api.cast("jobs", payload=b"3")
    other.move("b")
    other.register("jobs", credit=10)
    move(api)
    move(node, "jobs", had=had)
    net.advance(1.0)
    assert payloads(node, other) == [], "whoever had it may not be back yet"
    net.advance(2.0)
    assert payloads(node, other) == [b"3"], "the one that was sent into the void"
    assert lost.key[:4] == (1).to_bytes(4), "keys stay as they were"


def test_a_router_that_is_started_again_with_peers_knows_the_keys_of_its_former_life(net: MeshNetwork) -> None:
    api, node = (net.process(name, router="a") for name in ("api", "node"))
    node.register("jobs", credit=10)
    api.cast("jobs", payload=b"once")
    had = node.got(Kind.CAST)
    net.hosts["a"].kill()
    net.hosts["a"].settings.router_id = 70
    net.hosts["a"].settings.mesh_peers = ("inproc://b",)
    net.hosts["a"].start(clock_step=1.0)
    net.add_router("b", peers=("a",), router_id=90)
    for process in (api, node):
        process.move("a")
        assert process.welcome.router_id == 1 and process.welcomes[-1].next_life
    api.uplink.send(with_flag(api.welcomes[-1].sent[0], Flag.RESENT))
    node.register("jobs", credit=10, recent=had[0].key.hex())
    net.advance(3.0)
    assert payloads(node) == []
