"""A lone router with a queue server is killed: its next life asks all who come back before it gives a call again."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.testing.process import Call
from rpcmq.wire import Flag, Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork((), settings=Settings(queue_dir="/var/lib/rpcmq/queue", recovery_seconds=2.5))
    made.add_router("a", peers=())
    made.advance(3.0)
    return made


def say(process: Process, word: Word) -> int:
    """Answer all questions that ``process`` has; return how many messages they were about."""
    asked = [message for message in process.inbox if message.kind == Kind.WHERE]
    records = [record for message in asked for record in where_records(message.message)]
    for message in asked:
        process.inbox.remove(message)
    for key, stamp in records:
        process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, word), consumer=0)
    return len(records)


def is_given(process: Process) -> bool:
    return any(message.kind == Kind.REQUEST for message in process.inbox)


def restarted(net: MeshNetwork) -> tuple[Process, Call, Process]:
    """Kill the router while a consumer has a call, and start it again; return that, the call and another consumer."""
    api, node = net.process("api", router="a"), net.process("node", router="a")
    node.register("jobs", tag=0)
    call = api.request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    net.hosts["a"].kill()
    net.hosts["a"].start(clock_step=1.0)
    api.move("a")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    other = net.process("other", router="a")
    other.register("jobs", tag=0)
    net.advance(1.0)
    return node, call, other


@pytest.mark.parametrize("is_running", [True, False])
def test_nobody_is_given_a_call_that_another_consumer_may_have(net: MeshNetwork, is_running: bool) -> None:
    node, call, other = restarted(net)
    assert not is_given(other), "who has it may not be back yet"
    node.move("a")
    node.register("jobs", tag=0)
    net.advance(2.0)
    assert say(other, Word.NOT_HAD) >= 1
    net.advance(0.1)
    assert not is_given(other)
    assert say(node, Word.RUNNING if is_running else Word.NOT_HAD) >= 1
    net.advance(0.1)
    assert not is_given(other) and not is_given(node)
    assert bool(call.ends) is not is_running, "one that has not come back may have it: its caller decides"
    if call.ends:
        assert call.end.outcome is Outcome.LINK_LOST and call.end.body["details"]["started"] == "unknown"


def test_who_comes_back_too_late_is_told_that_nobody_waits(net: MeshNetwork) -> None:
    node, call, other = restarted(net)
    net.advance(2.0)
    assert say(other, Word.NOT_HAD) >= 1
    net.advance(0.1)
    assert call.end.outcome is Outcome.LINK_LOST and not is_given(other)
    node.move("a")
    node.register("jobs", tag=0)
    net.advance(0.1)
    assert say(node, Word.RUNNING) == 1
    net.advance(0.1)
    assert [message.key for message in node.inbox if message.kind == Kind.CANCEL] == [call.key]


def test_who_runs_a_call_that_is_waited_for_is_not_told_otherwise(net: MeshNetwork) -> None:
    node, call, _ = restarted(net)
    node.move("a")
    node.register("jobs", tag=0)
    net.advance(2.0)
    for _ in range(2):
        net.advance(0.1)
        say(node, Word.RUNNING)
    assert not [message for message in node.inbox if message.kind == Kind.CANCEL]
    assert not call.ends
