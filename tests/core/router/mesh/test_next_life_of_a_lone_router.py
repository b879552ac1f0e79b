"""A lone router with a queue server is killed: its next life asks all who come back before it gives a call again."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
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


@pytest.mark.parametrize("is_running", [True, False])
def test_nobody_is_given_a_call_that_another_consumer_may_have(net: MeshNetwork, is_running: bool) -> None:
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
    assert not is_given(other), "who has it may not be back yet"
    node.move("a")
    node.register("jobs", tag=0)
    net.advance(2.0)
    assert say(other, Word.NOT_HAD) >= 1
    net.advance(0.1)
    assert not is_given(other)
    assert say(node, Word.RUNNING if is_running else Word.NOT_HAD) >= 1
    net.advance(0.1)
    assert (is_given(other) or is_given(node)) is not is_running
