"""Whose word is waited for before a message is started again."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Flag, Kind
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


def ask_nothing_of(net: MeshNetwork, router: str) -> None:
    """Let ``router`` answer no question, and everything else."""
    for neighbour in net.router_of(router).mesh.neighbours:
        neighbour.link.handlers[Kind.WHERE] = lambda now, link, message: None


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_router_that_answers_heartbeats_and_no_question_is_named_and_counted(
    net: MeshNetwork, kind: Kind, is_silent: bool
) -> None:
    """It may be the only one that knows who has had the message: that is given up in time, and not started."""
    other, api = consumer(net, "other", "b"), net.process("api", router="a")
    call = api._message(kind, "jobs", "run", b"", server="nobody", ttl=60)
    if is_silent:
        ask_nothing_of(net, "c")
    api.move("b")
    api._message(kind, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(3.0)
    not_had(other)
    admin = net.process("admin", router="b")
    counters = net.router_of("b").mesh.neighbours.by_id[3].link.counters
    if not is_silent:
        assert other.take(kind).key == call.key and not counters["questions not answered"]
        return
    (row,) = admin.query("stuck")["stuck"]
    assert row["why"].endswith(": no word from router c")
    net.advance(8.0)
    assert [m for m in other.inbox if m.kind is kind] == [] and counters["questions not answered"] == 1
    if kind is Kind.REQUEST:
        assert call.end.outcome is Outcome.LINK_LOST
        text = "router c did not say within 10 s (mesh.recovery_seconds) who may have had it; it may have run"
        assert call.end.body["text"] == text


def test_what_may_run_twice_goes_on_although_a_router_answers_no_question(net: MeshNetwork) -> None:
    other, api = consumer(net, "other", "b"), net.process("api", router="a")
    call = api.request("jobs", server="nobody", ttl=60, flags=Flag.IDEMPOTENT)
    ask_nothing_of(net, "c")
    api.move("b")
    api.request("jobs", key=call.key, hops=1, flags=Flag.RESENT | Flag.IDEMPOTENT, ttl=60)
    net.advance(0.1)
    other.reply(other.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
