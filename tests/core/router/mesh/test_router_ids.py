"""Routers that were started without peers, with the same id in the keys of their processes, become a mesh later."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Flag, Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records


@pytest.fixture
def net() -> MeshNetwork:
    """Routers a and b, which do not know each other."""
    made = MeshNetwork((), Settings(recovery_seconds=0.0, router_id=1))
    for number, name in enumerate("ab"):
        made.add_router(name, peers=(), router_id=1, mesh_id=70 + number)
    made.advance(1.0)
    return made


@pytest.mark.parametrize("peers", [(), ("a", "b")], ids=["join", "a third router"])
def test_they_are_linked(net: MeshNetwork, peers: tuple[str, ...]) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("jobs", tag=0)
    if peers:
        net.add_router("c", peers=peers, router_id=90)
    else:
        net.router_of("a").mesh.members.join(net.now, net.hosts["b"].url)
    net.advance(3.0)
    assert "b" in [each.name for each in net.router_of("a").mesh.neighbours]
    assert api.welcome.router_id == node.welcome.router_id == 1, "they keep the keys that they had"
    call = api.request("jobs", "run", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"


def test_a_call_goes_on_at_the_other_one(net: MeshNetwork) -> None:
    net.add_router("c", peers=("a", "b"), router_id=90)
    net.advance(3.0)
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("jobs", tag=0)
    net.advance(1.0)
    call = api.request("jobs", "run", ttl=30)
    request = node.take(Kind.REQUEST)
    net.hosts["a"].kill()
    api.move("c")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(0.1)
    ((key, stamp),) = where_records(node.take(Kind.WHERE).message)
    node.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.RUNNING), consumer=0)
    node.send(Kind.REPLY, b"once", key=request.key, attempt=stamp[-1], consumer=0, format=1)
    assert call.end.payload == b"once"


def test_the_log_explains_a_router_that_comes_back_with_another_id() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    net.hosts["c"].kill()
    net.advance(0.1)
    noted = len(net.hosts["a"].notes)
    net.add_router("again", peers=("a",), router_name="c", router_id=33)
    net.advance(2.0)
    (linked,) = [note.text for note in net.hosts["a"].notes[noted:] if note.event == "router linked"]
    assert "router 3, which had the same name, is not linked" in linked and "router.id" in linked


def test_namesakes_that_are_linked_need_no_explanation() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.add_router("again", router_name="c", router_id=33)
    net.advance(2.0)
    texts = [note.text for host in net.hosts.values() for note in host.notes if note.event == "router linked"]
    assert len(texts) == 12 and not any("same name" in text for text in texts)
