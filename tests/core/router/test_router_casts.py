"""Casts: no reply state, settlement, loss, and consumers that leave."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind, pack
from tests.core.router.mailboxes import dropped, payloads, queued
from tests.core.router.tables import left_behind

# --- delivery and settlement -----------------------------------------------------------------


def test_a_cast_is_delivered_and_leaves_no_reply_state(net: Network, api: Process, node: Process):
    node.register("compute")
    cast = api.cast("compute", "log", b"hello")
    delivered = node.take(Kind.CAST)
    assert (delivered.method, delivered.payload) == ("log", b"hello")
    assert net.link(api).calls == {} and net.router.in_flight == 0
    node.settle(delivered)
    assert cast.answers == []


def test_a_confirmed_cast_is_confirmed_when_the_router_has_it(api: Process, node: Process):
    cast = api.cast("compute", flags=Flag.CONFIRM)
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM], "although nobody has consumed it yet"
    node.register("compute")
    cast = api.cast("compute", flags=Flag.CONFIRM)
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM]
    assert cast.answers[0].payload == (1).to_bytes(4)


def test_a_cast_holds_credit_until_it_is_settled(api: Process, node: Process):
    node.register("compute", credit=2)
    for i in range(4):
        api.cast("compute", payload=b"%d" % i)
    first, second = node.got(Kind.CAST)
    node.settle(second)
    assert payloads(node.got(Kind.CAST)) == [b"2"]
    node.settle(first)
    assert payloads(node.got(Kind.CAST)) == [b"3"]


def test_many_casts_are_settled_by_one_message(api: Process, node: Process):
    node.register("compute", credit=3)
    for i in range(6):
        api.cast("compute", payload=b"%d" % i)
    node.settle(*node.got(Kind.CAST))
    assert payloads(node.got(Kind.CAST)) == [b"3", b"4", b"5"]


def test_settlements_are_counted_once(api: Process, node: Process):
    node.register("compute", credit=3)
    for _ in range(3):
        api.cast("compute", "log")
    node.settle(*node.got(Kind.CAST))
    (topic,) = api.query("topics")["topics"]
    assert topic["consumers"][0]["settled"] == 3
    (method,) = api.query("methods")["methods"]
    assert method["casts"] == 3 and method["outcomes"] == {"ok": 3}


def test_a_cast_settled_as_failed_is_counted_as_such(api: Process, node: Process):
    node.register("compute")
    api.cast("compute", "log")
    node.settle(node.take(Kind.CAST), outcome=Outcome.REMOTE_ERROR)
    (method,) = api.query("methods")["methods"]
    assert method["outcomes"] == {"remote_error": 1} and method["errors"] == 1


def test_settling_twice_or_the_unknown_is_counted_and_frees_nothing(net: Network, api: Process, node: Process):
    node.register("compute", credit=1)
    api.cast("compute", payload=b"0")
    api.cast("compute", payload=b"1")
    api.cast("compute", payload=b"2")
    first = node.take(Kind.CAST)
    node.settle(first, first)
    assert payloads(node.got(Kind.CAST)) == [b"1"]
    assert net.link(node).counters["settlement of an unknown cast"] == 1


def test_a_call_cannot_be_settled_as_a_cast(net: Network, api: Process, node: Process):
    """Else it would end nowhere: not with a reply, and not with the loss of its consumer."""
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.settle(request)
    assert net.link(node).counters["settlement of an unknown cast"] == 1
    node.die()
    net.advance(1)
    assert call.end.outcome is Outcome.LINK_LOST


def test_a_reply_to_a_cast_frees_the_credit_and_goes_nowhere(api: Process, node: Process):
    node.register("compute")
    cast = api.cast("compute")
    api.cast("compute", payload=b"next")
    node.reply(node.take(Kind.CAST), b"?")
    assert cast.answers == []
    assert payloads(node.got(Kind.CAST)) == [b"next"]


def test_casts_of_one_sender_arrive_in_order(net: Network, api: Process, node: Process):
    for i in range(5):
        api.cast("compute", payload=b"%d" % i)
    node.register("compute", credit=3)
    for i in range(5, 10):
        api.cast("compute", payload=b"%d" % i)
    seen: list[bytes] = []
    while casts := node.got(Kind.CAST):
        seen += payloads(casts)
        node.settle(*casts)
    assert seen == [b"%d" % i for i in range(10)]


def test_calls_and_casts_of_one_sender_keep_their_order(api: Process, node: Process):
    api.cast("compute", payload=b"0")
    api.request("compute", payload=b"1")
    api.cast("compute", payload=b"2")
    node.register("compute", credit=3)
    assert payloads(node.got(Kind.CAST, Kind.REQUEST)) == [b"0", b"1", b"2"]


# --- loss ------------------------------------------------------------------------------------


def test_a_cast_that_a_dead_consumer_had_is_counted_as_lost(net: Network, api: Process, node: Process):
    node.register("compute")
    api.cast("compute", "log")
    node.take(Kind.CAST)
    node.die()
    net.advance(1)
    assert dropped(api, "compute") == {"consumer lost": 1}
    (method,) = api.query("methods")["methods"]
    assert method["outcomes"] == {"link_lost": 1}


def test_an_idempotent_cast_that_a_dead_consumer_had_goes_to_another(net: Network, api: Process, node: Process):
    node.register("compute")
    api.cast("compute", flags=Flag.IDEMPOTENT)
    node.die()
    net.advance(1)
    other = net.process("other")
    other.register("compute")
    assert other.take(Kind.CAST).header.attempt == 1


@pytest.mark.parametrize("topic", ["compute", "compute.node"])
def test_a_topic_is_not_forgotten_while_one_that_leaves_has_something_of_it(make_net, topic: str):
    net = make_net(mailbox_max_seconds=10.0)
    api, node, other = net.process("api"), net.process("node"), net.process("other")
    tag = node.register("compute", server="node")
    api.cast(topic, flags=Flag.IDEMPOTENT)
    node.unregister(tag)
    net.advance(30)
    node.die()
    net.advance(1)
    other.register("compute", server="node")
    assert other.take(Kind.CAST).header.attempt == 1


def test_a_topic_is_forgotten_when_one_that_left_has_nothing_of_it_any_more(make_net):
    net = make_net(mailbox_max_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    tag = node.register("compute", server="node")
    api.cast("compute")
    node.unregister(tag)
    net.advance(30)
    assert [row["topic"] for row in api.query("topics")["topics"]] == ["compute"]
    node.settle(node.take(Kind.CAST))
    net.advance(30)
    assert api.query("topics")["topics"] == []


def test_the_settlement_of_an_earlier_attempt_is_ignored(net: Network, api: Process, node: Process):
    node.register("compute")
    api.cast("compute", flags=Flag.IDEMPOTENT)
    first = node.take(Kind.CAST)
    node.lose()
    net.advance(1)
    node.connect()
    second = node.take(Kind.CAST)
    node.settle(first)
    assert net.link(node).counters["settlement of an unknown cast"] == 1
    api.cast("compute", payload=b"next")
    assert node.got(Kind.CAST) == []
    node.settle(second)
    assert payloads(node.got(Kind.CAST)) == [b"next"]


def test_casts_of_a_sender_that_left_are_delivered_all_the_same(net: Network, api: Process, node: Process):
    api.cast("compute", payload=b"farewell")
    api.stop()
    node.register("compute")
    assert payloads(node.got(Kind.CAST)) == [b"farewell"]


# --- unregistering ---------------------------------------------------------------------------


def test_an_unregistered_consumer_gets_nothing_more_and_may_finish(net: Network, api: Process, node: Process):
    tag = node.register("compute", credit=5)
    call = api.request("compute")
    done = node.unregister(tag)
    assert [m.kind for m in done.answers] == [Kind.REGISTERED]
    waiting = api.request("compute")
    assert len(node.got(Kind.REQUEST)) == 1
    other = net.process("other")
    other.register("compute")
    other.reply(other.take(Kind.REQUEST), b"other")
    assert waiting.end.payload == b"other"
    node.reply(node.received[-2], b"finished")
    assert call.end.payload == b"finished"
    assert net.link(node).consumers == {}


def test_a_tag_can_be_used_again_after_its_consumer_is_gone(net: Network, api: Process, node: Process):
    tag = node.register("compute")
    node.unregister(tag)
    node.register("network", tag=tag)
    api.cast("network")
    assert len(node.got(Kind.CAST)) == 1


def test_unregistering_twice_is_answered_twice(make_net):
    net = make_net(mailbox_max_seconds=5.0, unclaimed_seconds=5.0)
    api, node = net.process("api"), net.process("node")
    tag = node.register("compute", server="node-7")
    api.request("compute", ttl=1000)
    assert [m.kind for m in node.unregister(tag).answers] == [Kind.REGISTERED]
    net.advance(60)  # by now the topic has been forgotten
    assert [m.kind for m in node.unregister(tag).answers] == [Kind.REGISTERED]


def test_a_consumer_that_stops_and_then_dies_takes_its_calls_with_it(net: Network, api: Process, node: Process):
    tag = node.register("compute")
    call = api.request("compute")
    node.unregister(tag)
    node.die()
    net.advance(1)
    assert call.end.outcome is Outcome.LINK_LOST


# --- nothing stays ---------------------------------------------------------------------------


def test_casts_leave_nothing_however_they_end(make_net):
    net = make_net(mailbox_max_seconds=20.0, unclaimed_seconds=10.0, resume_seconds=5.0, queue_max_messages=4)
    api, node = net.process("api"), net.process("node")
    tag = node.register("compute", server="node-7", credit=2)
    for i in range(8):
        api.cast("compute", payload=b"%d" % i, ttl=5 if i % 2 else None)
    api.cast("compute", flags=Flag.FANOUT)
    api.cast("nowhere")
    node.settle(node.take(Kind.CAST))
    node.unregister(tag)
    node.die()
    api.stop()
    net.advance(60)
    assert left_behind(net.router) == {}


def test_two_casts_with_one_sequence_break_nothing(make_net):
    """A sender that breaks the protocol so hurts nobody, and the queue's books stay right."""
    net = make_net(unclaimed_seconds=5.0, mailbox_max_seconds=5.0)
    api, node = net.process("api"), net.process("node")
    first = api.cast("compute", payload=b"one")
    api.cast("compute", payload=b"two", key=first.key)
    net.advance(30)
    assert left_behind(net.router).keys() <= {
        "router.links.routes",
        "router.links._identities",
        "router.links.origins",
    }
    node.register("compute", credit=5)
    again = api.cast("compute", payload=b"three")
    api.cast("compute", payload=b"four", key=again.key)
    node.settle(*node.got(Kind.CAST))
    assert queued(api, "compute") == 0


def test_a_call_and_a_cast_with_one_sequence_break_nothing(net: Network, api: Process, node: Process):
    call = api.request("compute", ttl=5)
    api.cast("compute", key=call.key)
    net.advance(100)
    assert call.ends != []
    assert net.router.in_flight == 0
    node.register("compute", credit=5)
    call = api.request("compute", ttl=5)
    api.cast("compute", key=call.key)
    net.advance(100)
    assert net.router.in_flight == 0


def test_a_cast_in_two_pieces_is_malformed(net: Network, api: Process):
    message = pack(Kind.CAST, b"x" * 40_000, key=api.uplink.next_key(), format=1, address=b"\0\1\0a")
    api.inject(message)
    assert net.router.refused == {"detached": 1}
