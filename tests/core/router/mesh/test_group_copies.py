"""Copies for the groups of a topic whose consumers are linked to other routers."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import SETTLEMENT, Flag, Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records
from tests.core.router.logged import Memory


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


@pytest.mark.parametrize("flags", [0, Flag.IDEMPOTENT])
def test_a_group_gets_its_copy_of_a_call_that_runs_at_the_same_router(net: MeshNetwork, flags: int) -> None:
    api = net.process("api", router="a")
    worker, audit = net.process("worker", router="b"), net.process("audit", router="b")
    worker.register("jobs")
    audit.register("jobs", group="audit")
    net.advance(1.0)
    call = api.request("jobs", flags=flags)
    request = worker.take(Kind.REQUEST)
    copy = audit.take(Kind.CAST)
    assert copy.key == request.key
    audit.settle(copy)
    worker.reply(request, b"done")
    assert call.end.payload == b"done"
    assert api.query("stats")["dropped"] == {}


@pytest.mark.parametrize("word", [Word.NOT_HAD, Word.RUNNING])
@pytest.mark.parametrize("verb", ["call", "cast"])
def test_a_message_and_its_copy_are_both_asked_for_when_their_router_is_killed(
    net: MeshNetwork, verb: str, word: Word
) -> None:
    api = net.process("api", router="a")
    worker, audit = net.process("worker", router="b"), net.process("audit", router="b")
    worker.register("jobs", tag=0)
    audit.register("jobs", group="audit", tag=0)
    net.advance(1.0)
    call = api.request("jobs", ttl=60) if verb == "call" else None
    if call is None:
        api.cast("jobs")
    kind = Kind.REQUEST if call is not None else Kind.CAST
    original, copy = worker.take(kind), audit.take(Kind.CAST)
    net.hosts["b"].kill()
    for process, group in ((worker, ""), (audit, "audit")):
        process.move("c")
        process.register("jobs", group=group, tag=0)
    net.advance(8.0)
    for process, had, its_kind in ((worker, original, kind), (audit, copy, Kind.CAST)):
        for message in [each for each in process.inbox if each.kind is Kind.WHERE]:
            for key, stamp in where_records(message.message):
                process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, word), consumer=0)
                if word is Word.RUNNING and key == had.key:
                    if its_kind is Kind.REQUEST:
                        process.send(Kind.REPLY, b"done", key=key, attempt=stamp[-1], consumer=0, format=1)
                    else:
                        process.send(Kind.SETTLE, SETTLEMENT.pack(key, stamp[-1], 0, 0), consumer=0)
    net.advance(1.0)
    if word is Word.NOT_HAD:
        assert audit.take(Kind.CAST).key == copy.key
        again = worker.take(kind)
        if call is not None:
            worker.reply(again, b"done")
    if call is not None:
        assert call.end.payload == b"done"
    net.advance(20.0)
    assert api.query("stats")["dropped"] == {}


def test_a_call_that_a_group_has_goes_on_when_their_router_is_killed(net: MeshNetwork) -> None:
    api, audit = net.process("api", router="a"), net.process("audit", router="b")
    audit.register("jobs", group="audit", tag=0)
    net.advance(1.0)
    call = api.request("jobs", ttl=60)
    request = audit.take(Kind.REQUEST)
    net.hosts["b"].kill()
    audit.move("c")
    audit.register("jobs", group="audit", tag=0)
    net.advance(8.0)
    ((key, stamp),) = where_records(audit.take(Kind.WHERE).message)
    assert key == request.key
    audit.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.RUNNING), consumer=0)
    audit.send(Kind.REPLY, b"done", key=key, attempt=stamp[-1], consumer=0, format=1)
    assert call.end.payload == b"done"


def test_a_consumer_that_is_lost_with_a_copy_says_nothing_of_the_message(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    worker, audit = net.process("worker", router="b"), net.process("audit", router="b")
    worker.register("jobs", tag=0)
    audit.register("jobs", group="audit", tag=0)
    net.advance(1.0)
    call = api.request("jobs", ttl=60)
    request = worker.take(Kind.REQUEST)
    assert audit.take(Kind.CAST).key == request.key
    audit.die()
    net.advance(1.0)
    net.hosts["a"].kill()
    api.move("c")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(1.0)
    ((key, stamp),) = where_records(worker.take(Kind.WHERE).message)
    worker.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.RUNNING), consumer=0)
    worker.send(Kind.REPLY, b"done", key=key, attempt=stamp[-1], consumer=0, format=1)
    assert call.end.payload == b"done"


@pytest.mark.parametrize("verb", ["call", "cast"])
def test_a_copy_that_a_neighbour_has_is_in_the_dispatch_log_when_its_router_ends(verb: str) -> None:
    sink = Memory()
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0), sinks={"a": sink})
    net.advance(2.0)
    api = net.process("api", router="a")
    worker, audit = net.process("worker", router="b"), net.process("audit", router="c")
    worker.register("jobs")
    audit.register("jobs", group="audit")
    net.advance(1.0)
    if verb == "call":
        api.request("jobs", ttl=60)
    else:
        api.cast("jobs")
    net.advance(0.1)
    audit.take(Kind.CAST)
    net.router_of("a").close(net.now)
    ended = [record.outcome for record in sink.entries() if record.outcome is not None]
    assert ended == [Outcome.LINK_LOST] * 2, "the message, and its copy"


def test_a_group_is_asked_for_the_copy_of_a_cast_that_a_consumer_says_to_have_had(net: MeshNetwork) -> None:
    """The cast is not given to anybody then; its copy may have been run as well, by one that has not come back yet."""
    api, worker = net.process("api", router="a"), net.process("worker", router="a")
    audit, other = net.process("audit", router="a"), net.process("other", router="c")
    worker.register("jobs", tag=0)
    audit.register("jobs", group="audit", tag=0)
    net.advance(1.0)
    cast = api.cast("jobs", ttl=60)
    worker.settle(worker.take(Kind.CAST))
    copy = audit.take(Kind.CAST)
    other.register("jobs", group="audit", tag=0)
    net.advance(1.0)
    net.hosts["a"].kill()
    worker.move("b")
    worker.register("jobs", tag=0, recent=cast.key.hex())
    api.move("b")
    api._message(Kind.CAST, "jobs", "", b"", key=cast.key, hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(0.1)
    (asked,) = other.got(Kind.WHERE)
    ((key, stamp),) = where_records(asked.message)
    other.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NOT_HAD), consumer=0)
    net.advance(1.0)
    assert key == copy.key and worker.got(Kind.CAST) + other.got(Kind.CAST) == []
    audit.move("b")
    audit.register("jobs", group="audit", tag=0)
    net.advance(0.1)
    audit.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.ANSWERED), consumer=0)
    audit.send(Kind.SETTLE, SETTLEMENT.pack(key, stamp[-1], Outcome.OK, 0), consumer=0)
    net.advance(20.0)
    assert other.got(Kind.CAST) == []
    assert api.query("stats")["dropped"] == {}
