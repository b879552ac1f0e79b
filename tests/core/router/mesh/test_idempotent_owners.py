"""Idempotent messages are not asked for: sender or owner send them again, and the former delivery is forgotten."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.testing.process import Message, Process
from rpcmq.wire import Flag, Kind
from tests.faults.mesh_rest import unrest

FLAGS = Flag.IDEMPOTENT


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
@pytest.mark.parametrize("group", ["", "audit"])
@pytest.mark.parametrize("is_late", [False, True], ids=["the former first", "the former last"])
def test_the_former_owner_forgets_what_a_later_one_has_there(
    net: MeshNetwork, kind: Kind, group: str, is_late: bool
) -> None:
    node = net.process("node", router="b")
    node.register("jobs", tag=0, credit=5, group=group)
    net.advance(1.0)
    api = net.process("api", router="a")
    if is_late:
        net.cut("a", "b")
    call = api._message(kind, "jobs", "run", b"", flags=FLAGS, ttl=60)
    net.advance(0.1)
    api.move("c")
    api._message(kind, "jobs", "run", b"", key=call.key, hops=1, flags=FLAGS | Flag.RESENT, ttl=60)
    net.advance(0.1)
    net.heal()
    net.advance(0.5)
    again = [message for message in node.inbox if message.kind is kind][-1]
    if kind is Kind.CAST:
        node.settle(again)
    else:
        node.reply(again, b"done")
        assert [end.payload for end in call.ends] == [b"done"]
    net.advance(60.0)
    for name in "abc":
        assert unrest(net.router_of(name)) == []
        assert not net.router_of(name).dispatch.requests.drops.totals


@pytest.mark.parametrize("follows_mesh", [True, False])
def test_the_consumer_that_runs_it_has_it_for_the_later_owner_whatever_it_knows_of_the_mesh(
    net: MeshNetwork, follows_mesh: bool
) -> None:
    node = net.process("node", router="b", follows_mesh=follows_mesh)
    node.register("jobs", credit=5)
    net.advance(1.0)
    api = net.process("api", router="a")
    call = api.request("jobs", flags=FLAGS, ttl=60)
    api.move("c")
    api.request("jobs", key=call.key, hops=1, flags=FLAGS | Flag.RESENT, ttl=60)
    net.advance(0.1)
    assert call.ends == [], "five attempts that come back at once are no reason to give up what runs"
    node.reply(node.got(Kind.REQUEST)[-1], b"done")
    net.advance(0.5)
    assert call.end.payload == b"done"


@pytest.fixture
def two() -> MeshNetwork:
    """Routers a and b, with no third one over which they could reach each other."""
    made = MeshNetwork(names="ab", settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def fall_apart(net: MeshNetwork) -> None:
    """Break the link of a and b for so long that each takes for lost what the other one has."""
    net.cut("a", "b")
    net.reset("a", "b")
    net.advance(1.0)
    net.heal("a", "b")
    net.advance(1.0)


@pytest.mark.parametrize("is_under_way", [False, True], ids=["it runs", "it comes late"])
def test_a_call_that_a_router_has_which_was_away_goes_on(two: MeshNetwork, is_under_way: bool) -> None:
    node = two.process("node", router="b")
    node.register("jobs", credit=5)
    two.advance(1.0)
    api = two.process("api", router="a")
    if is_under_way:
        two.cut("a", "b")
    call = api.request("jobs", flags=FLAGS, ttl=60)
    two.advance(0.1)
    fall_apart(two)
    assert call.ends == [], "the router of the consumer that runs it is back"
    given = node.got(Kind.REQUEST)
    assert [message.header.attempt for message in given] == [0, 1]
    node.reply(given[0], b"late")
    node.reply(given[1], b"done")
    assert call.end.payload == b"done"
    for name in "ab":
        assert unrest(two.router_of(name)) == []
        assert not two.router_of(name).dispatch.requests.drops.totals


def test_the_later_attempt_of_a_call_goes_to_another_consumer_and_the_former_one_is_told(two: MeshNetwork) -> None:
    nodes = [two.process(f"node-{number}", router="b") for number in range(2)]
    for node in nodes:
        node.register("jobs")
    two.advance(1.0)
    api = two.process("api", router="a")
    call = api.request("jobs", flags=FLAGS, ttl=60)
    two.advance(0.1)
    fall_apart(two)
    given = {node.take(Kind.REQUEST): node for node in nodes}
    first, second = sorted(given, key=lambda request: request.header.attempt)
    assert [message.key for message in given[first].got(Kind.CANCEL)] == [call.key]
    assert call.ends == [] and given[second].got(Kind.CANCEL) == []
    given[second].reply(second, b"done")
    given[first].reply(first, b"late")
    assert call.end.payload == b"done"
    two.advance(1.0)
    for name in "ab":
        assert unrest(two.router_of(name)) == []


@pytest.mark.parametrize("to", ["b", "c"], ids=["its router", "another one"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_cast_that_is_given_back_after_its_owner_has_died_is_the_later_owners(
    net: MeshNetwork, to: str, is_alone: bool
) -> None:
    node = net.process("node", router="b")
    node.register("jobs", credit=5)
    net.advance(1.0)
    api = net.process("api", router="a", keeps=True)
    cast = api.cast("jobs", flags=FLAGS)
    net.advance(0.1)
    first = node.take(Kind.CAST)
    processes = [node]
    if not is_alone:
        processes.append(net.process("other", router="b"))
        processes[1].register("jobs", credit=5)
        net.advance(0.5)
    net.hosts["a"].kill()
    api.move(to)
    api._message(Kind.CAST, "jobs", "", b"", key=cast.key, hops=1, flags=FLAGS | Flag.RESENT)
    net.advance(0.1)
    assert delivered(api) == 0
    given = taken(*processes)
    if node not in [each for each, _ in given]:
        give_back(node, first)
    net.advance(0.1)
    given += taken(*processes)
    ((taker, message),) = given
    taker.settle(message)
    net.advance(60.0)
    assert delivered(api) == 1
    assert taken(*processes) == []
    for name in "bc":
        assert unrest(net.router_of(name)) == []
        assert not net.router_of(name).dispatch.requests.drops.totals


def taken(*processes: Process) -> list[tuple[Process, Message]]:
    return [(each, message) for each in processes for message in each.got(Kind.CAST)]


def give_back(node: Process, message: Message) -> None:
    header = message.header
    node.send(Kind.GIVE_BACK, key=message.key, hops=header.hops, attempt=header.attempt, consumer=header.consumer)


def delivered(process: Process) -> int:
    """The number of casts that it has been told it need not keep any more."""
    return sum(len(message.payload) // 8 for message in process.inbox if message.kind is Kind.DELIVERED)
