"""Resolution of addresses, and removal of topics and servers."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Address, Flag, Kind
from tests.core.router.tables import left_behind


def servers(net: Network, *names: str, credit: int = 10) -> list[Process]:
    made = [net.process(name) for name in names]
    for process in made:
        process.register("compute", server=process.identity, credit=credit)
    return made


def payloads(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.CAST)]


# --- addresses -------------------------------------------------------------------------------


def test_a_shared_topic_reaches_one_consumer_a_servers_own_topic_that_server(net: Network, api: Process):
    a, b = servers(net, "node-a", "node-b")
    for _ in range(4):
        api.cast("compute", server="node-b", payload=b"own")
    api.cast("compute", payload=b"any")
    assert payloads(b) == [b"own"] * 4
    assert payloads(a) == [b"any"]


def test_a_servers_own_topic_may_be_named_as_one_topic(net: Network, api: Process):
    a, b = servers(net, "node-a", "node-b")
    api.cast("compute.node-b", payload=b"alias")
    assert payloads(b) == [b"alias"] and payloads(a) == []
    assert len(net.router.directory) == 1, "no topic was made for it"


def test_messages_sent_to_the_one_name_before_the_server_came_are_delivered(net: Network, api: Process):
    api.cast("compute.node-b", payload=b"cast")
    call = api.request("compute.node-b", ttl=30)
    a, b = servers(net, "node-a", "node-b")
    assert a.got() != [] and payloads(a) == []
    assert payloads(b) == [b"cast"]
    b.reply(b.take(Kind.REQUEST), b"reply")
    assert call.end.payload == b"reply"
    api.cast("compute.node-b", payload=b"later")
    assert payloads(b) == [b"later"]
    assert len(net.router.directory) == 1


def test_messages_for_a_server_before_it_came_are_delivered_by_either_name_in_order(net: Network, api: Process):
    api.cast("compute", server="node-b", payload=b"0")
    api.cast("compute", server="node-b", payload=b"1")
    api.cast("compute.node-b", payload=b"2")
    (b,) = servers(net, "node-b")
    assert payloads(b) == [b"0", b"1", b"2"]


def test_names_contain_dots(net: Network, api: Process):
    node = net.process("node-1.example.org")
    node.register("compute.v2", server="node-1.example.org", credit=5)
    api.cast("compute.v2", server="node-1.example.org", payload=b"0")
    api.cast("compute.v2.node-1.example.org", payload=b"1")
    api.cast("compute.v2", payload=b"2")
    api.cast("compute", server="v2", payload=b"elsewhere")
    assert payloads(node) == [b"0", b"1", b"2"]


def test_exchanges_are_namespaces(net: Network, api: Process):
    nova, neutron = net.process("nova"), net.process("neutron")
    nova.register("agent", server="h1", exchange="nova", credit=5)
    neutron.register("agent", server="h1", exchange="neutron", credit=5)
    api.cast("agent", exchange="nova", payload=b"nova")
    api.cast("agent.h1", exchange="neutron", payload=b"neutron")
    api.cast("agent", payload=b"none")
    assert payloads(nova) == [b"nova"] and payloads(neutron) == [b"neutron"]
    call = api.request("agent", exchange="cinder", flags=Flag.MANDATORY)
    assert call.end.body["text"] == "no consumer on 'cinder/agent' (never seen)"


def test_a_topic_that_is_registered_under_its_full_name_stays_itself(net: Network, api: Process):
    literal, server = net.process("literal"), net.process("server")
    literal.register("compute.node-b", credit=5)
    server.register("compute", server="node-b", credit=5)
    api.cast("compute.node-b", payload=b"literal")
    api.cast("compute", server="node-b", payload=b"server")
    assert payloads(literal) == [b"literal"] and payloads(server) == [b"server"]


def test_nobody_may_register_a_servers_own_topic_as_a_topic(net: Network, api: Process):
    (server,) = servers(net, "node-b")
    mallory = net.process("mallory")
    mallory.register("compute.node-b")
    error = mallory.take(Kind.ERROR)
    assert error.outcome is Outcome.PROTOCOL
    assert error.body["text"] == "topic 'compute.node-b' is the own topic of server 'node-b' of 'compute'"
    api.cast("compute.node-b", payload=b"safe")
    assert payloads(server) == [b"safe"]


def test_two_servers_whose_full_names_are_equal(net: Network, api: Process):
    """('a', 'b.c') and ('a.b', 'c') are both "a.b.c": the first has the alias, and keeps it."""
    first, second = net.process("first"), net.process("second")
    first.register("a", server="b.c", credit=9)
    second_tag = second.register("a.b", server="c", credit=9)
    api.cast("a.b.c", payload=b"alias")
    api.cast("a.b", server="c", payload=b"second")
    assert payloads(first) == [b"alias"] and payloads(second) == [b"second"]
    second.unregister(second_tag)
    net.advance(2 * net.settings.mailbox_max_seconds)
    api.cast("a.b.c", payload=b"still")
    assert payloads(first) == [b"still"]


def test_several_consumers_may_share_a_server(net: Network, api: Process):
    workers = [net.process(f"worker-{i}") for i in range(3)]
    for worker in workers:
        worker.register("compute", server="node-1", credit=1)
    for i in range(3):
        api.cast("compute", server="node-1", payload=b"%d" % i)
    assert sorted(len(payloads(worker)) for worker in workers) == [1, 1, 1]


def test_a_server_whose_consumer_left_says_when_it_was_seen(net: Network, api: Process):
    _, b = servers(net, "node-a", "node-b")
    b.stop()
    net.advance(200)
    call = api.request("compute", server="node-b", flags=Flag.MANDATORY)
    assert call.end.body["text"] == "no consumer on 'compute.node-b' (last seen 3 min ago)"


@pytest.mark.parametrize("tag", [0, 1, 255])
def test_a_tag_names_a_consumer_of_its_process(net: Network, api: Process, tag: int):
    node = net.process("node")
    node.register("compute", tag=tag)
    node.register("network", tag=(tag + 1) % 256)
    api.cast("compute")
    assert node.take(Kind.CAST).header.consumer == tag


def test_a_tag_in_use_is_refused(net: Network):
    node = net.process("node")
    node.register("compute", tag=3)
    node.register("network", tag=3)
    assert node.take(Kind.ERROR).body["text"] == "consumer tag 3 is in use on this link"
    assert len(net.link(node).consumers) == 1


# --- bounds ----------------------------------------------------------------------------------


def test_topics_that_nobody_consumes_are_bounded(make_net):
    net = make_net(max_unclaimed_topics=3, unclaimed_seconds=10.0)
    api = net.process("api")
    for i in range(3):
        assert api.cast(f"junk-{i}").answers == []
    (error,) = api.cast("junk-3").answers
    assert error.outcome is Outcome.PROTOCOL
    assert "'junk-3': unclaimed topic limit reached" in error.body["text"]
    assert net.router.refused == {"too many topics": 1}
    assert api.cast("junk-0").answers == []
    net.advance(30)
    assert api.cast("junk-3").answers == [], "the others have been forgotten"


def test_servers_that_nobody_consumes_are_bounded_too(make_net):
    net = make_net(max_unclaimed_topics=5, unclaimed_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7")
    for i in range(20):
        api.cast("compute", server=f"junk-{i}")
    assert len(api.got(Kind.ERROR)) == 15
    (topic,) = net.router.directory
    assert len(topic.servers) == 6
    net.advance(30)
    assert list(topic.servers) == ["node-7"]


def test_too_many_unclaimed_topics_do_not_keep_services_out(make_net):
    net = make_net(max_unclaimed_topics=2)
    api, node = net.process("api"), net.process("node")
    api.cast("junk-0")
    api.cast("junk-1")
    node.register("compute", server="node-7")
    assert [m.kind for m in node.got()] == [Kind.REGISTERED]


def test_topics_and_servers_are_bounded_in_total(make_net):
    net = make_net(max_topics=4)
    node = net.process("node")
    for i in range(4):
        node.register("compute", server=f"node-{i}")
    kinds = [m.kind for m in node.got()]
    assert kinds == [Kind.REGISTERED] * 3 + [Kind.ERROR]
    assert net.router.refused == {"too many topics": 1}


def test_claiming_a_topic_makes_room_among_the_unclaimed(make_net):
    net = make_net(max_unclaimed_topics=2)
    api, node = net.process("api"), net.process("node")
    api.cast("compute", server="node-7")
    assert api.cast("junk").answers != []
    node.register("compute", server="node-7")
    assert api.cast("junk-0").answers == api.cast("junk-1").answers == []


def test_methods_with_statistics_of_their_own_are_bounded(make_net):
    net = make_net(max_methods=3)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1000)
    for i in range(20):
        api.request("compute", f"method-{i}")
        api.request(f"topic-{i}", "method")
    rows = api.query("methods")["methods"]
    assert len(rows) <= 2 * 3 + 1
    assert sum(row["calls"] for row in rows) == 40
    assert ("(other)", "(other)") in [(row["topic"], row["method"]) for row in rows]


def test_remembered_addresses_are_bounded(make_net):
    net = make_net(max_topics=5)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1000)
    for i in range(50):
        api.request("compute", f"method-{i}")
    assert len(net.router.directory.destinations) == 10
    assert len(node.got(Kind.REQUEST)) == 50


# --- forgetting ------------------------------------------------------------------------------


def topics(net: Network) -> list[str]:
    return [str(topic.address) for topic in net.router.directory]


def test_a_topic_is_kept_while_somebody_consumes_it(net: Network):
    servers(net, "node-a")
    net.advance(3 * net.settings.mailbox_max_seconds)
    assert topics(net) == ["compute"]


def test_a_topic_is_forgotten_after_its_last_consumer_and_message_are_gone(make_net):
    net = make_net(mailbox_max_seconds=100.0, unclaimed_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7")
    node.stop()
    net.advance(80)
    assert topics(net) == ["compute"]
    api.cast("compute", payload=b"kept")
    net.advance(30)
    assert topics(net) == ["compute"], "something waits in it"
    net.advance(200)
    assert topics(net) == []
    call = api.request("compute", server="node-7", flags=Flag.MANDATORY)
    assert call.end.body["text"].endswith("(never seen)")


def test_an_unclaimed_topic_is_forgotten_sooner(make_net):
    net = make_net(mailbox_max_seconds=1000.0, unclaimed_seconds=10.0)
    api = net.process("api")
    api.cast("junk", ttl=1)
    net.advance(9)
    assert topics(net) == ["junk"]
    net.advance(10)
    assert topics(net) == []


def test_a_server_of_a_living_topic_is_forgotten_on_its_own(make_net):
    net = make_net(mailbox_max_seconds=100.0, unclaimed_seconds=10.0)
    api = net.process("api")
    for i in range(3):
        # Several consumers without a server name: they count for nothing here.
        net.process(f"plain-{i}").register("compute")
    a, b = servers(net, "node-a", "node-b")
    api.cast("compute.node-b")
    b.stop()
    net.advance(200)
    (topic,) = net.router.directory
    assert set(topic.servers) == {"", "node-a"}
    call = api.request("compute.node-b", flags=Flag.MANDATORY)
    assert call.end.body["text"] == "no consumer on 'compute.node-b' (never seen)"
    a.got()
    api.cast("compute.node-a", payload=b"alias")
    assert payloads(a) == [b"alias"]


def test_a_forgotten_topic_starts_afresh(make_net):
    net = make_net(mailbox_max_seconds=10.0, unclaimed_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    tag = node.register("compute", server="node-7")
    api.cast("compute.node-7")
    node.settle(node.take(Kind.CAST))
    node.unregister(tag)
    net.advance(60)
    node.register("compute", server="node-7")
    api.cast("compute.node-7", payload=b"again")
    assert payloads(node) == [b"again"]


def test_many_topics_are_looked_at_in_portions(make_net):
    net = make_net(mailbox_max_seconds=10.0, unclaimed_seconds=10.0)
    api = net.process("api")
    for i in range(1200):
        api.cast(f"junk-{i}", ttl=1)
    net.advance(30)
    assert topics(net) == []
    api.stop()
    assert left_behind(net.router) == {}


def test_a_topic_replaced_by_an_alias_while_topics_are_looked_at(make_net):
    net = make_net(mailbox_max_seconds=1.0, unclaimed_seconds=1.0)
    api, node = net.process("api"), net.process("node")
    api.cast("a.b")
    for i in range(600):
        api.cast(f"junk-{i}", ttl=0.5)
    while not net.router.directory._unswept:
        net.advance(0.005)
    tag = node.register("a", server="b")
    node.settle(node.take(Kind.CAST))
    node.unregister(tag)
    net.advance(10)
    assert topics(net) == []


def test_statistics_go_with_the_topic(make_net):
    net = make_net(mailbox_max_seconds=10.0, unclaimed_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=10)
    api.cast("compute", "a")
    api.cast("compute.node-7", "b")
    api.cast("junk", "c", ttl=1)
    assert {row["method"] for row in api.query("methods")["methods"]} == {"a", "b", "c"}
    net.advance(30)
    assert {row["method"] for row in api.query("methods")["methods"]} == {"a", "b"}
    node.stop()
    net.advance(30)
    assert api.query("methods")["methods"] == []


def test_defaults_allow_many():
    settings = Settings()
    assert settings.max_topics >= 100_000 and settings.max_links >= 10_000


def test_an_address_reads_as_people_write_it():
    assert str(Address("compute", "node-7", "nova")) == "nova/compute.node-7"
