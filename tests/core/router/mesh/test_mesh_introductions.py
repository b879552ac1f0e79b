"""Introductions in a mesh: the caller at one router, the consumer at another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh.introductions import Introductions
from rpcmq.core.router.rights import MESH_VERB, Key, Right
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind
from rpcmq.wire.bodies import MESH_TYPE
from tests.core.router.mesh.links import link_all, neighbour_of


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Three routers, each linked to each."""
    net = link_all(MeshNetwork())
    yield net
    for host in net.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []


@pytest.fixture
def api(net: MeshNetwork) -> Process:
    return net.process("api", router="a")


def listener(net: MeshNetwork, router: str, credit: int = 5, url: str = "tcp://10.0.0.7:4711") -> Process:
    """A process that consumes ``compute``, and of which all routers know."""
    process = net.process(f"node-{router}", router=router)
    process.register("compute", credit=credit, peer_url=url)
    net.advance(0.5)
    return process


def introduced(process: Process) -> dict[str, object]:
    (answer,) = process.introduce("compute").answers
    return answer.body


def test_a_consumer_of_another_router_is_introduced(net: MeshNetwork, api: Process):
    node = listener(net, "b")
    body = introduced(api)
    notice = node.take(Kind.INTRODUCTION).body
    assert body["url"] == "tcp://10.0.0.7:4711" and body["identity"] == "node-b" and body["topic"] == "compute"
    assert notice == {"ticket": body["ticket"], "topic": "compute", "identity": "api", "url": "", "via": "a"}


def test_a_consumer_of_its_own_router_comes_first(net: MeshNetwork, api: Process):
    other, own = listener(net, "b"), net.process("own", router="a")
    own.register("compute", peer_url="tcp://own:1")
    assert introduced(api)["identity"] == "own"
    assert other.got(Kind.INTRODUCTION) == []


def test_the_next_router_is_asked_when_one_has_nobody(net: MeshNetwork, api: Process):
    deaf, willing = listener(net, "b", credit=50, url=""), listener(net, "c")
    assert introduced(api)["identity"] == "node-c"
    willing.stop()
    deaf.stop()
    assert introduced(api)["text"] == "'compute' has no consumer that answers"


def test_the_reason_is_that_of_the_last_router(net: MeshNetwork, api: Process):
    listener(net, "b", url="")
    assert introduced(api) == {"text": "'compute' has no peer socket", "url": ""}


def test_a_router_that_does_not_answer_is_passed_over(net: MeshNetwork, api: Process):
    listener(net, "c", credit=1)
    listener(net, "b", credit=5)
    net.partition(["a"], ["b"], ["c"])
    call = api.introduce("compute")
    net.heal("a", "c")
    net.advance(2.1)
    (answer,) = call.answers
    assert answer.body["identity"] == "node-c"
    net.heal()
    assert call.answers == call.answers[:1], "an answer that comes late is dropped"


def test_a_router_that_has_gone_is_passed_over(net: MeshNetwork, api: Process):
    listener(net, "b")
    net.cut("a", "b")
    call = api.introduce("compute")
    net.hosts["b"].kill()
    net.router_of("a").links.end(net.now, neighbour_of(net, "a", "b"), "connection lost")
    net.run()
    (answer,) = call.answers
    assert answer.body == {"text": "'compute' has no consumer that answers", "url": ""}


def test_introductions_that_are_not_answered_are_bounded_for_each_caller(net: MeshNetwork, api: Process):
    listener(net, "b")
    net.cut("a", "b")
    asked = [api.introduce("compute") for _ in range(101)]
    assert [len(call.answers) for call in asked] == [0] * 100 + [1]
    other = net.process("other", router="a").introduce("compute")
    assert other.answers == []
    api.stop()
    net.heal()
    assert [m.body["identity"] for m in other.answers] == ["node-b"]
    (part,) = (each for each in net.router_of("a").mesh.parts if isinstance(each, Introductions))
    assert not part._asked and not part._of_callers


# --- keys ------------------------------------------------------------------------------------

WEB = Key("web", "WEB", (Right(frozenset(["call"]), ("#",), ("*",)),))
NODE = Key("node", "NODE", (Right(frozenset(["serve"]), ("#",), ("*",)),))
IDLE = Key("idle", "IDLE", (Right(frozenset(["subscribe"]), ("#",), ("*",)),))
ROUTER = Key("b", "B", (Right(frozenset([MESH_VERB]), ("#",), ("*",)),))


def test_processes_of_other_routers_are_told_of_a_key_that_is_revoked(net: MeshNetwork):
    for host in net.hosts.values():
        host.router.set_authorized_keys(net.now, [WEB, NODE, IDLE])
    api = net.process("web", router="a", user="WEB")
    node = net.process("node", router="b", user="NODE")
    idle = net.process("idle", router="b", user="IDLE")
    node.register("compute", credit=5, peer_url="tcp://10.0.0.7:4711")
    net.advance(0.5)
    body = introduced(api)
    assert body["key"] == "NODE" and node.take(Kind.INTRODUCTION).body["key"] == "WEB"
    net.router_of("a").set_authorized_keys(net.now, [NODE, IDLE])
    net.run()
    assert [m.body["revoked"] for m in node.got(Kind.INTRODUCTION)] == ["WEB"]
    assert idle.got(Kind.INTRODUCTION) == []
    net.router_of("a").set_authorized_keys(net.now, [WEB, NODE, IDLE])
    api = net.process("web", router="a", user="WEB")
    assert introduced(api)["url"]
    net.router_of("b").set_authorized_keys(net.now, [WEB, IDLE])
    net.run()
    assert api.got(Kind.INTRODUCTION)[-1].body["revoked"] == "NODE", "the caller, which does not listen itself"


def test_a_router_s_link_outlives_a_reload_of_keys_whatever_its_processes_have(net: MeshNetwork):
    node = listener(net, "b")
    net.process("sub", queue_type="pubsub", router="b").subscribe("secret.#")
    router, link = net.router_of("a"), neighbour_of(net, "a", "b")
    assert link.patterns
    router.set_authorized_keys(net.now, [ROUTER])
    router.links.access.admit("B", "b").attach(link)
    router.set_authorized_keys(net.now, [ROUTER])
    net.run()
    assert neighbour_of(net, "a", "b") is link and node.refusals == []
    router.set_authorized_keys(net.now, [])
    assert router.links.by_identity("b", MESH_TYPE) is None
