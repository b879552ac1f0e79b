"""A process with a fixed identity that is killed with its router: its next life can't speak for what that had."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Flag, Kind
from rpcmq.wire.adoption import HERE_RECORD, Word, where_records


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0, mesh_recovery_seconds=10.0))
    made.advance(2.0)
    return made


def promise_all(process: Process) -> int:
    """Answer all questions that ``process`` has with "not had"; return how many there were."""
    records = []
    for message in [message for message in process.inbox if message.kind == Kind.WHERE]:
        process.inbox.remove(message)
        records += where_records(message.message)
    for key, stamp in records:
        process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, Word.NOT_HAD), consumer=0)
    return len(records)


def started(process: Process) -> bool:
    return any(message.kind in (Kind.REQUEST, Kind.CAST) for message in process.inbox)


@pytest.mark.parametrize("server", ["", "node"])
def test_its_call_is_not_started_again(net: MeshNetwork, server: str) -> None:
    node = net.process("node", router="b")
    node.register("jobs", server, tag=0)
    net.advance(1.0)
    call = net.process("api", router="a").request("jobs", "run", server=server, ttl=60)
    node.take(Kind.REQUEST)
    net.hosts["b"].kill()
    node.die()
    again = net.process("node", router="c")
    again.register("jobs", server, tag=0)
    net.advance(1.0)
    assert promise_all(again) == 1
    net.advance(1.0)
    assert not started(again) and not call.ends
    net.advance(10.0)
    assert call.end.outcome == Outcome.LINK_LOST
    assert "node (b) did not say" in call.end.body["text"]


def test_its_call_is_not_started_again_at_the_next_life_of_its_router(net: MeshNetwork) -> None:
    node, api = net.process("node", router="b"), net.process("api", router="b")
    node.register("jobs", tag=0)
    net.advance(1.0)
    call = api.request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    net.hosts["b"].kill()
    node.die()
    net.advance(1.0)
    net.hosts["b"].start(clock_step=60.0)
    net.advance(3.0)
    again = net.process("node", router="b")
    again.register("jobs", tag=0)
    api.move("c")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(1.0)
    assert promise_all(again) == 1
    net.advance(11.0)
    assert not started(again)
    assert call.end.outcome == Outcome.LINK_LOST


def test_one_that_lives_is_known_by_the_same_name_at_each_router(net: MeshNetwork) -> None:
    node = net.process("node", router="b")
    node.register("jobs", tag=0)
    net.advance(1.0)
    call = net.process("api", router="a").request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    net.hosts["b"].kill()
    node.move("c")
    node.register("jobs", tag=0)
    net.advance(1.0)
    assert promise_all(node) == 1
    net.advance(0.1)
    assert started(node), "it has not had it, it says"
    assert not call.ends


def test_the_next_life_of_one_that_is_away_is_no_witness(net: MeshNetwork) -> None:
    """Its router lives, and has the link of its former life still."""
    node = net.process("node", router="b")
    node.register("jobs", tag=0)
    net.advance(1.0)
    call = net.process("api", router="a").request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    node.die()
    again = net.process("node", router="b")
    again.register("jobs", tag=0)
    net.advance(1.0)
    promise_all(again)
    net.advance(3.0)
    assert not started(again)
    assert call.end.outcome == Outcome.LINK_LOST


@pytest.fixture
def pair() -> MeshNetwork:
    made = MeshNetwork(("a", "b"), settings=Settings(recovery_seconds=0.0, mesh_recovery_seconds=10.0))
    made.advance(2.0)
    return made


@pytest.mark.parametrize("is_linked", [True, False])
def test_the_next_life_of_a_router_knows_nothing_of_those_that_the_former_one_had(
    pair: MeshNetwork, is_linked: bool
) -> None:
    """It is no witness of them: the other router has to speak, even if it is not linked yet."""
    node, api = pair.process("node", router="a"), pair.process("api", router="a")
    node.register("jobs", tag=0)
    pair.advance(1.0)
    call = api.request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    pair.hosts["a"].kill()
    node.die()
    pair.hosts["a"].start(clock_step=60.0)
    if is_linked:
        pair.advance(3.0)
    else:
        pair.cut("a", "b")
    again = pair.process("again", router="a")
    again.register("jobs", tag=0)
    api.move("a")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    pair.advance(1.0)
    assert promise_all(again) == 1
    pair.advance(1.0)
    assert not started(again) and not call.ends
    if not is_linked:
        pair.heal()
    pair.advance(11.0)
    promise_all(again)
    assert not started(again)
    assert call.end.outcome == Outcome.LINK_LOST


def test_routers_that_are_restarted_one_after_the_other_pass_calls_on(pair: MeshNetwork) -> None:
    """The next life of the first one has met the second, and knows whom that knew."""
    pair.hosts["a"].kill()
    pair.hosts["a"].start(clock_step=60.0)
    pair.advance(3.0)
    node, api = pair.process("node", router="b"), pair.process("api", router="b")
    node.register("jobs", tag=0)
    pair.advance(1.0)
    call = api.request("jobs", "run", ttl=60)
    node.inbox.clear()
    pair.hosts["b"].kill()
    node.move("a")
    node.register("jobs", tag=0)
    api.move("a")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=60)
    pair.advance(1.0)
    assert promise_all(node) == 1
    pair.advance(3.0)
    assert started(node)
