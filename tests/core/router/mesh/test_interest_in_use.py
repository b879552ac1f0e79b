"""Requests, groups and mandatory messages go by the addresses that other routers have told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh import announcer
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Flag, Kind
from tests.core.router.mesh.interest import (
    QUIET,
    begin_to_link,
    consumer,
    declare,
    three_routers,
)
from tests.core.router.mesh.known_addresses import interest_of, places
from tests.core.router.mesh.links import end_link


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    yield from three_routers()


# --- what it is used for ---------------------------------------------------------------------------


def asked(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.REQUEST, Kind.CAST)]


def test_a_servers_own_topic_may_be_named_as_one_topic_at_any_router(net: MeshNetwork):
    node = consumer(net, "b", "compute", server="node.7", credit=5)
    net.advance(QUIET)
    api = net.process("api", router="a")
    call = api.request("compute.node.7", payload=b"1")
    net.advance(QUIET)
    node.reply(node.take(Kind.REQUEST), b"answer")
    net.advance(QUIET)
    assert call.end.payload == b"answer"
    assert len(net.router_of("a").directory) == 1, "no topic was made for the one name"


def test_messages_sent_to_the_one_name_before_the_server_was_known_are_delivered(net: MeshNetwork):
    api = net.process("api", router="a")
    api.cast("compute.node-7", payload=b"1")
    net.advance(QUIET)
    node = consumer(net, "b", "compute", server="node-7", credit=5)
    net.advance(QUIET)
    api.cast("compute.node-7", payload=b"2")
    api.cast("compute", server="node-7", payload=b"3")
    net.advance(QUIET)
    casts = node.got(Kind.CAST)
    assert [m.payload for m in casts] == [b"1", b"2", b"3"]
    node.settle(*casts)


def test_a_topic_that_is_consumed_by_that_name_is_no_servers_own_topic(net: MeshNetwork):
    literal = consumer(net, "b", "compute.node-7", "literal")
    server = consumer(net, "c", "compute", "server", server="node-7")
    net.advance(QUIET)
    net.process("api", router="a").cast("compute.node-7", payload=b"1")
    net.advance(QUIET)
    assert asked(literal) == [b"1"] and asked(server) == []
    literal.stop()


def test_groups_of_other_routers_get_their_copies(net: MeshNetwork):
    api = net.process("api", router="a")
    api.cast("audit", payload=b"0")  # the topic is known at a, and has no groups
    for router, group in (("b", "one"), ("c", "two")):
        declare(net.process(f"early-{group}", router=router), "audit", group=group)
    net.advance(QUIET)
    api.cast("audit", payload=b"1")
    new = net.process("new", router="c")
    new.cast("audit", payload=b"2")  # here the topic is made by this cast
    net.advance(QUIET)
    one, two = consumer(net, "b", "audit", "n1", group="one"), consumer(net, "c", "audit", "n2", group="two", credit=5)
    net.advance(QUIET)
    first = one.take(Kind.CAST)
    one.settle(first)
    net.advance(QUIET)
    second = one.take(Kind.CAST)
    one.settle(second)
    casts = two.got(Kind.CAST)
    two.settle(*casts)
    assert sorted([first.payload, second.payload]) == [b"1", b"2"]
    assert sorted(m.payload for m in casts) == [b"1", b"2"]


def test_a_group_is_remembered_as_long_as_any_router_knows_it(net: MeshNetwork):
    declare(net.process("early", router="b"), "audit", group="one")
    net.advance(QUIET)
    net.process("api", router="a").cast("audit")
    net.advance(QUIET)
    group = places(net.router_of("a"))[Address("audit"), "one"]
    node = consumer(net, "a", "audit", group="one")
    net.advance(QUIET)
    node.settle(node.take(Kind.CAST))
    node.stop()
    for router in "ab":
        net.hosts[router].settings.unclaimed_seconds = 1.0
    net.hosts["a"].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert places(net.router_of("a"))[Address("audit"), "one"] is group
    assert not group.registered_here, "it stays because b knows it"
    net.hosts["b"].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert places(net.router_of("a")) == {} and places(net.router_of("b")) == {}


def test_routers_that_remember_an_address_because_of_each_other_forget_it_in_the_end(net: MeshNetwork):
    for router in "abc":
        declare(net.process(f"early-{router}", router=router), "audit", server="node")
    net.advance(QUIET)
    for router in "abc":
        net.hosts[router].settings.mailbox_max_seconds = 1.0
    net.advance(10.0)
    assert [len(net.router_of(router).directory) for router in "abc"] == [0, 0, 0]


# --- mandatory -------------------------------------------------------------------------------------


def test_a_mandatory_call_to_an_address_that_nobody_has_fails_at_once(net: MeshNetwork):
    net.advance(QUIET)
    call = net.process("api", router="a").request("compute", flags=Flag.MANDATORY)
    net.run()
    assert call.end.outcome is Outcome.NO_CONSUMER


def test_a_mandatory_call_reaches_a_consumer_elsewhere(net: MeshNetwork):
    node = consumer(net, "b", "compute")
    net.advance(QUIET)
    call = net.process("api", router="a").request("compute", flags=Flag.MANDATORY)
    net.run()
    node.reply(node.take(Kind.REQUEST))
    net.run()
    assert call.end.outcome is Outcome.OK


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
def test_mandatory_messages_wait_until_the_addresses_of_all_are_known(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch, kind: Kind
):
    monkeypatch.setattr(announcer, "_MESSAGE_BYTES", 50)
    other = net.process("other", router="b")
    for i in range(100):
        other.register(f"topic-{i}", tag=i)
    node = consumer(net, "b", "compute")
    net.advance(QUIET)
    begin_to_link(net)
    api = net.process("api", router="d")
    ask = api.request if kind == Kind.REQUEST else api.cast
    good = ask("compute", flags=Flag.MANDATORY | Flag.CONFIRM * (kind == Kind.CAST))
    bad = ask("nobody", flags=Flag.MANDATORY | Flag.CONFIRM * (kind == Kind.CAST))
    net.run()
    assert bad.ends == [] and not interest_of(net, "d").has_converged(net.now)
    net.advance(QUIET)
    assert bad.end.outcome is Outcome.NO_CONSUMER
    taken = node.take(kind)
    node.reply(taken) if kind == Kind.REQUEST else node.settle(taken)
    net.advance(QUIET)
    assert [m.kind for m in good.answers] == [Kind.REPLY if kind == Kind.REQUEST else Kind.CONFIRM]


def test_a_router_that_never_tells_everything_is_waited_for_no_longer_than_recovery_seconds(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(announcer, "_CHUNKS_IN_ONE_TICK", 0)
        begin_to_link(net)
        api = net.process("api", router="d")
        call = api.request("nobody", flags=Flag.MANDATORY, ttl=60)
        net.advance(net.hosts["d"].settings.mesh_recovery_seconds - 1.0)
        assert call.ends == []
        net.advance(2.0)
        assert call.end.outcome is Outcome.NO_CONSUMER
    net.advance(QUIET)


def test_a_mandatory_call_that_waits_where_the_last_consumer_elsewhere_leaves_fails(net: MeshNetwork):
    node = consumer(net, "b", "compute", credit=1, tag=1)
    net.advance(QUIET)
    api = net.process("api", router="a")
    api.request("compute")
    call = api.request("compute", flags=Flag.MANDATORY, ttl=60)
    net.advance(QUIET)
    assert call.ends == []
    node.unregister(1)
    net.advance(QUIET)
    assert call.end.outcome is Outcome.NO_CONSUMER
    node.reply(node.take(Kind.REQUEST))


# --- announced before use --------------------------------------------------------------------------


def test_a_consumer_is_known_once_another_router_has_acknowledged_it(net: MeshNetwork):
    interest = interest_of(net, "b")
    net.delay("a", "b", 0.2)
    net.delay("c", "b", 0.3)
    node = consumer(net, "b", "compute", server="node")
    (registered,) = net.link(node).consumers.values()
    net.advance(0.3)
    assert not interest.is_known(registered)
    net.advance(0.3)
    assert interest.is_known(registered)
    neighbours = {n.name: n for n in net.router_of("b").mesh.neighbours}
    assert interest.acknowledged(neighbours["a"]) == interest.announcer.version > interest.acknowledged(neighbours["c"])


def test_a_consumer_of_a_router_alone_needs_nobody(net: MeshNetwork):
    interest = interest_of(net, "b")
    for other in "ac":
        net.cut("b", other)
    node = consumer(net, "b", "compute", server="node")
    (registered,) = net.link(node).consumers.values()
    net.advance(0.1)
    assert not interest.is_known(registered)
    for other in "ac":
        end_link(net, "b", other)
    assert interest.is_known(registered)
    net.heal()
    net.advance(30.0)
