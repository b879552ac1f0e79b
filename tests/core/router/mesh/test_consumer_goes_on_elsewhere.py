"""A consumer that leaves a router which lives on, because its connection alone is gone, keeps what it runs."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Message, Process
from rpcmq.wire import SETTLEMENT, Flag, Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0, mesh_recovery_seconds=10.0, mesh_return_seconds=2.0))
    made.advance(2.0)
    return made


def consumer(net: MeshNetwork, name: str, router: str) -> Process:
    process = net.process(name, router=router)
    process.register("jobs", credit=1, tag=0)
    net.advance(1.0)
    return process


def asked(process: Process) -> list[tuple[bytes, bytes]]:
    """Key and stamp of each message that ``process`` was asked for and has not answered."""
    found = [message for message in process.inbox if message.kind == Kind.WHERE]
    for message in found:
        process.inbox.remove(message)
    return [record for message in found for record in where_records(message.message)]


def say(process: Process, word: Word) -> bytes:
    ((key, stamp),) = set(asked(process))
    process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, word), consumer=0)
    return stamp


def go_on(net: MeshNetwork, process: Process, router: str, after: float = 0.8) -> None:
    """Lose the connection, and be consuming at ``router`` some time later."""
    process.lose()
    net.advance(after)
    process.move(router)
    process.register("jobs", credit=3, tag=0)
    net.advance(0.1)


def answer(process: Process, request: Message, stamp: bytes, payload: bytes) -> None:
    process.send(Kind.REPLY, payload, key=request.key, attempt=stamp[-1], consumer=0, format=1)


@pytest.mark.parametrize("caller", ["a", "b", "c"])
@pytest.mark.parametrize("after", [0.2, 0.8, 2.2])
def test_its_call_ends_with_its_result(net: MeshNetwork, caller: str, after: float) -> None:
    node = consumer(net, "node", "a")
    api = net.process("api", router=caller)
    call = api.request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    go_on(net, node, "b", after)
    net.advance(max(0.0, 0.5 - after))
    assert not call.ends
    answer(node, request, say(node, Word.RUNNING), b"once")
    assert call.end.payload == b"once"


@pytest.mark.parametrize("caller", ["a", "c"])
def test_back_at_its_router_after_the_grace_it_keeps_its_call(net: MeshNetwork, caller: str) -> None:
    node = consumer(net, "node", "a")
    call = net.process("api", router=caller).request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    node.lose()
    net.advance(1.5)
    node.connect()
    net.advance(0.1)
    assert not call.ends
    answer(node, request, say(node, Word.RUNNING), b"once")
    assert call.end.payload == b"once"


@pytest.mark.parametrize("caller", ["a", "c"])
def test_one_that_never_comes_back_is_named_soon(net: MeshNetwork, caller: str) -> None:
    node, other = consumer(net, "node", "a"), consumer(net, "other", "b")
    api = net.process("api", router=caller)
    calls = [api.request("jobs", "run", ttl=60) for _ in range(2)]
    node.take(Kind.REQUEST)
    other.take(Kind.REQUEST)
    began = net.now
    node.lose()
    while not any(call.ends for call in calls):
        net.advance(0.1)
        for key, stamp in asked(other):
            other.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NOT_HAD), consumer=0)
    assert net.now - began < 0.5 + 2.0 + 0.3, "the grace of its connection, and mesh.return_seconds"
    (ended,) = [call for call in calls if call.ends]
    assert ended.end.outcome == Outcome.LINK_LOST
    assert "node" in ended.end.body["text"] and "mesh.return_seconds" in ended.end.body["text"]
    assert ended.end.body["details"]["server"] == "node"
    assert not [m for m in other.inbox if m.kind == Kind.REQUEST], "it may have run"


@pytest.mark.parametrize("caller", ["a", "c"])
def test_one_that_has_said_goodbye_is_not_waited_for(net: MeshNetwork, caller: str) -> None:
    node = consumer(net, "node", "a")
    call = net.process("api", router=caller).request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    node.stop()
    net.advance(0.1)
    assert call.end.outcome == Outcome.LINK_LOST


@pytest.mark.parametrize("caller", ["a", "c"])
def test_one_that_knows_no_mesh_is_not_waited_for(net: MeshNetwork, caller: str) -> None:
    node = net.process("node", router="a", follows_mesh=False)
    node.register("jobs", credit=3, tag=0)
    net.advance(1.0)
    call = net.process("api", router=caller).request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    node.lose()
    net.advance(0.8)
    assert call.end.outcome == Outcome.LINK_LOST


def test_streams_end_at_once(net: MeshNetwork) -> None:
    node = consumer(net, "node", "a")
    call = net.process("api", router="c").request("jobs", "run", ttl=60, flags=Flag.STREAM)
    node.take(Kind.REQUEST)
    node.lose()
    net.advance(0.8)
    assert call.end.outcome == Outcome.LINK_LOST


@pytest.mark.parametrize("caller", ["a", "c"])
def test_its_cast_is_not_run_by_another_one(net: MeshNetwork, caller: str) -> None:
    node, other = consumer(net, "node", "a"), None
    api = net.process("api", router=caller)
    cast = api.cast("jobs", "run")
    node.take(Kind.CAST)
    other = consumer(net, "other", "c")
    go_on(net, node, "b")
    stamp = say(node, Word.ANSWERED)
    say(other, Word.NOT_HAD)
    node.send(Kind.SETTLE, SETTLEMENT.pack(cast.key, stamp[-1], int(Outcome.OK), 0), consumer=0)
    net.advance(5.0)
    assert not [m for m in other.inbox if m.kind == Kind.CAST]
    assert not list(net.router_of(caller).dispatch.unsettled())


def test_what_the_lost_connection_had_not_delivered_goes_to_another_one(net: MeshNetwork) -> None:
    """It has promised, and so has everybody else."""
    node = consumer(net, "node", "a")
    call = net.process("api", router="a").request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    other = consumer(net, "other", "c")
    go_on(net, node, "b")
    say(other, Word.NOT_HAD)
    say(node, Word.NOT_HAD)
    (holder,) = [p for p in (node, other) if [m for m in p.inbox if m.kind == Kind.REQUEST]]
    again = holder.take(Kind.REQUEST)
    assert again.key == request.key
    holder.send(Kind.REPLY, b"once", key=again.key, attempt=again.header.attempt, consumer=0, format=1)
    assert call.end.payload == b"once"


def test_a_caller_that_moves_meanwhile_does_not_have_it_started_twice(net: MeshNetwork) -> None:
    """The next owner knows that the consumer may have it, although no router has it among its consumers."""
    node, other = consumer(net, "node", "a"), consumer(net, "other", "b")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    node.lose()
    net.advance(1.0)
    asked(other)
    api.move("c")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(0.2)
    for key, stamp in asked(other):
        other.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NOT_HAD), consumer=0)
    net.advance(11.0)
    assert not [m for m in other.inbox if m.kind == Kind.REQUEST]
    assert call.end.outcome == Outcome.LINK_LOST
    assert "node" in call.end.body["text"]
