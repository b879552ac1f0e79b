"""After the loss of a router a mandatory message waits for consumers on their way; its end tells whether it may run."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.testing.network import Call
from rpcmq.testing.process import Process
from rpcmq.wire import Flag, Kind
from tests.core.router.mesh.links import link_all
from tests.faults.mesh_rest import unrest

WINDOW = 2.5
SENT, AGAIN = Flag.MANDATORY | Flag.CONFIRM | Flag.IDEMPOTENT, Flag.RESENT


@pytest.fixture
def net() -> MeshNetwork:
    made = link_all(MeshNetwork(settings=Settings(recovery_seconds=WINDOW)))
    made.advance(WINDOW)
    return made


def consumer(net: MeshNetwork, router: str, topic: str = "jobs", name: str = "node") -> Process:
    node = net.process(name, router=router)
    node.register(topic, credit=5)
    net.advance(1.0)
    return node


def move(node: Process, router: str, topic: str = "jobs") -> None:
    node.move(router)
    node.register(topic, tag=1, credit=5)


def cast_again(api: Process, cast: Call, topic: str = "jobs") -> None:
    """As a client does that goes on at another router."""
    api._message(Kind.CAST, topic, "", b"", key=cast.key, hops=1, flags=SENT | AGAIN)


def killed_router_of_a_consumer(net: MeshNetwork) -> tuple[Process, Process]:
    """Kill router ``a``; return a consumer that it had, and a caller at ``b``."""
    node, api = consumer(net, "a"), net.process("api", router="b")
    net.hosts["a"].kill()
    net.advance(8.0)
    return node, api


def mandatory(api: Process, kind: Kind, topic: str = "jobs") -> Call:
    return api._message(kind, topic, "", b"", flags=Flag.MANDATORY | (Flag.CONFIRM if kind is Kind.CAST else 0))


def ends(call: Call) -> list[tuple[Kind, Outcome | None]]:
    return [(m.kind, m.outcome if m.kind is Kind.ERROR else None) for m in call.answers]


def stop_before_it_reads_a_cast(net: MeshNetwork, api: Process, topic: str = "jobs") -> Call:
    """Stop router a, send a cast there, and go on at b, which has just started and knows nobody."""
    net.hosts["b"].kill()
    net.hosts["a"].pause()
    cast = api.cast(topic, flags=SENT)
    net.hosts["b"].start()
    net.advance(WINDOW + 1.0)
    api.move("b", is_delivered=True)
    return cast


def test_one_that_comes_again_waits_for_a_consumer_that_comes_later_than_its_sender(net: MeshNetwork) -> None:
    node, api = consumer(net, "a"), net.process("api", router="a")
    cast = stop_before_it_reads_a_cast(net, api)
    cast_again(api, cast)
    net.advance(1.0)
    assert ends(cast) == []
    move(node, "c")
    net.advance(1.0)
    assert ends(cast) == [(Kind.CONFIRM, None)]
    node.settle(node.take(Kind.CAST))
    net.hosts["a"].resume()
    net.advance(1.0)
    node.settle(*node.got(Kind.CAST))  # a copy of a's, which a real process knows by its key
    net.advance(60.0)
    assert [unrest(net.router_of(name)) for name in "abc"] == [[], [], []]


def test_one_that_comes_again_and_finds_nobody_may_have_run_and_so_it_is_told(net: MeshNetwork) -> None:
    """The first router was stopped: it gives the cast to the consumer that stayed with it as soon as it goes on."""
    node, api = consumer(net, "a"), net.process("api", router="a")
    cast = stop_before_it_reads_a_cast(net, api)
    cast_again(api, cast)
    net.advance(WINDOW + 0.5)
    assert ends(cast) == [(Kind.ERROR, Outcome.LINK_LOST)]
    assert "it may have run" in cast.answers[0].body["text"]
    assert cast.answers[0].body["details"]["started"] == "unknown"
    net.hosts["a"].resume()
    net.advance(1.0)
    assert len(node.got(Kind.CAST)) == 1, "it does run"


@pytest.mark.parametrize("has_just_started", [False, True])
def test_a_fanout_that_comes_again_and_finds_nobody_may_have_run_for_the_lost_router_has_sent_copies(
    net: MeshNetwork, has_just_started: bool
) -> None:
    node, api = consumer(net, "a"), net.process("api", router="a")
    fanout = api.cast("jobs", flags=SENT | Flag.FANOUT)
    assert len(node.got(Kind.CAST)) == 1
    net.hosts["a"].kill()
    net.advance(8.0)
    if has_just_started:
        net.hosts["b"].kill()
        net.hosts["b"].start(clock_step=1.0)
        net.advance(1.0)
    api.move("b")
    before = len(api.received)
    api._message(Kind.CAST, "jobs", "", b"", key=fanout.key, hops=1, flags=SENT | AGAIN | Flag.FANOUT)
    net.advance(20.0)
    (end,) = [message for message in api.received[before:] if message.key == fanout.key]
    assert (end.kind, end.outcome) == (Kind.ERROR, Outcome.LINK_LOST)
    assert "it may have run" in end.body["text"]


def test_each_of_those_that_come_again_waits_for_its_own_consumer_and_they_stay_in_order(net: MeshNetwork) -> None:
    first, second = consumer(net, "a", "first", "node-1"), consumer(net, "a", "second", "node-2")
    api = net.process("api", router="a")
    to_first = stop_before_it_reads_a_cast(net, api, "first")
    to_second = api.cast("second", flags=SENT, hops=1)
    cast_again(api, to_first, "first")
    cast_again(api, to_second, "second")
    later = api.cast("second", payload=b"later", flags=Flag.CONFIRM)
    move(first, "c", "first")
    net.advance(1.0)
    assert ends(to_first) == [(Kind.CONFIRM, None)]
    assert ends(later) == []
    move(second, "c", "second")
    net.advance(0.5)
    assert ends(later) == [(Kind.CONFIRM, None)]
    assert [m.payload for m in second.got(Kind.CAST)][-1] == b"later"


@pytest.mark.parametrize("kind", [Kind.CAST, Kind.REQUEST])
def test_a_new_one_waits_for_the_consumers_of_a_router_that_was_killed(net: MeshNetwork, kind: Kind) -> None:
    node, api = killed_router_of_a_consumer(net)
    call = mandatory(api, kind)
    other = mandatory(api, Kind.REQUEST, "nobody")
    net.advance(0.2)
    assert ends(call) == []
    assert ends(other) == [(Kind.ERROR, Outcome.NO_CONSUMER)], "nobody ever had it: that is told at once"
    move(node, "c")
    net.advance(0.5)
    taken = node.take(kind)
    node.settle(taken) if kind is Kind.CAST else node.reply(taken)
    net.advance(0.1)
    assert ends(call) == [(Kind.CONFIRM if kind is Kind.CAST else Kind.REPLY, None)]


@pytest.mark.parametrize("kind", [Kind.CAST, Kind.REQUEST])
def test_they_are_waited_for_no_longer_than_the_window_and_nothing_has_run_then(net: MeshNetwork, kind: Kind) -> None:
    node, api = killed_router_of_a_consumer(net)
    call = mandatory(api, kind)
    net.advance(WINDOW - 0.2)
    assert ends(call) == []
    net.advance(0.5)
    assert ends(call) == [(Kind.ERROR, Outcome.NO_CONSUMER)]
    at_once = mandatory(api, kind)
    net.advance(0.1)
    assert ends(at_once) == [(Kind.ERROR, Outcome.NO_CONSUMER)]
    move(node, "c")
    net.advance(60.0)
    assert node.got(kind) == []
    assert [unrest(net.router_of(name)) for name in "bc"] == [[], []]


def test_a_call_that_waits_for_busy_consumers_of_a_router_that_is_killed_is_given_to_them_elsewhere(
    net: MeshNetwork,
) -> None:
    node = net.process("node", router="a")
    node.register("jobs", credit=1)
    net.advance(1.0)
    api = net.process("api", router="b")
    api.request("jobs", flags=Flag.IDEMPOTENT, ttl=60)
    call = api.request("jobs", flags=Flag.MANDATORY, ttl=60)
    net.advance(0.5)
    net.hosts["a"].kill()
    net.advance(6.5)
    assert call.ends == []
    move(node, "c")
    net.advance(0.5)
    assert len(node.got(Kind.REQUEST)) >= 2
