"""Whose word is waited for before a message is started again."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def not_had(process: Process) -> int:
    """Say of all that ``process`` was asked for that it has not had it; return how many these are."""
    found = [message for message in process.inbox if message.kind is Kind.WHERE]
    count = 0
    for message in found:
        process.inbox.remove(message)
        for key, stamp in where_records(message.message):
            process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NOT_HAD), consumer=0)
            count += 1
    return count


def consumer(net: MeshNetwork, name: str, router: str, server: str = "") -> Process:
    process = net.process(name, router=router)
    process.register("jobs", server=server, credit=2, tag=0)
    net.advance(1.0)
    return process


@pytest.mark.parametrize("server", ["", "node"])
def test_a_consumer_that_died_at_a_living_router_is_not_waited_for(net: MeshNetwork, server: str) -> None:
    """All that it had is known there."""
    node = consumer(net, "node", "c", server="node")
    dead = consumer(net, "dead", "b", server="dead")
    net.process("other", router="b").request("jobs", server="dead", ttl=60)
    api = net.process("api", router="a")
    dead.take(Kind.REQUEST)
    call = api.request("jobs", server="node", ttl=60)
    node.take(Kind.REQUEST)
    dead.die()
    net.advance(1.0)
    net.hosts["c"].kill()
    node.move("b")
    node.register("jobs", server="node", credit=2, tag=0)
    net.advance(7.0)
    assert not_had(node) == 1
    net.advance(0.1)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"


def test_a_consumer_that_finishes_what_it_has_is_asked_for_messages_to_its_own_server_only(net: MeshNetwork) -> None:
    node, leaving = consumer(net, "node", "c", server="node"), consumer(net, "leaving", "b", server="leaving")
    net.process("other", router="b").request("jobs", server="leaving", ttl=60)
    running = leaving.take(Kind.REQUEST)
    leaving.unregister(0)
    api = net.process("api", router="a")
    call = api.request("jobs", server="node", ttl=60)
    node.take(Kind.REQUEST)
    net.hosts["c"].kill()
    node.move("b")
    node.register("jobs", server="node", credit=2, tag=0)
    net.advance(7.0)
    assert not_had(node) == 1 and not_had(leaving) == 0
    leaving.reply(running)
    net.advance(0.1)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
