"""Links that are lost, resumed, silent or left, and what a link that ends leaves: nothing."""

from __future__ import annotations

import pytest

from rpcmq.core.router.link_states import LinkState
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network
from rpcmq.wire import Address, Flag, Kind, pack
from tests.core.router.tables import left_behind

# --- resume ----------------------------------------------------------------------------------


def test_resume_sends_exactly_what_was_not_received_both_ways(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=100)
    node.received.clear()
    node.inbox.clear()
    for i in range(3):
        api.cast("compute", payload=b"arrived %d" % i)
    node.cut_off()
    for i in range(3):
        api.cast("compute", payload=b"on its way %d" % i)
        node.cast("api", payload=b"from node %d" % i)
    node.lose()
    for i in range(3):
        api.cast("compute", payload=b"while away %d" % i)
        node.cast("api", payload=b"while away %d" % i)
    node.heal()
    node.connect()
    assert node.welcomes[-1].resumed
    expected = [f"{what} {i}".encode() for what in ("arrived", "on its way", "while away") for i in range(3)]
    assert [m.payload for m in node.received] == expected
    api.register("api", credit=100)
    assert [m.payload for m in api.got(Kind.CAST)] == [
        f"{what} {i}".encode() for what in ("from node", "while away") for i in range(3)
    ]


def test_a_reply_that_was_under_way_arrives_after_the_reconnect(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.cut_off()
    node.reply(request, b"done")
    node.lose()
    node.heal()
    node.connect()
    assert call.end.payload == b"done"


def test_a_reply_waits_for_a_caller_that_is_away(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    call = api.request("compute", ttl=60)
    api.lose()
    node.reply(node.take(Kind.REQUEST), b"done")
    net.advance(10)
    assert call.ends == []
    api.connect()
    assert call.end.payload == b"done"


def test_resume_again_and_again_doubles_nothing(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1000)
    for i in range(50):
        api.cast("compute", payload=b"%d" % i)
        if i % 7 == 0:
            node.cut_off()
        if i % 7 == 3:
            node.lose()
            node.heal()
            node.connect()
    node.heal()
    assert [m.payload for m in node.got(Kind.CAST)] == [b"%d" % i for i in range(50)]


def test_messages_held_up_arrive_late_but_once(net: Network):
    api, node = net.process("api"), net.process("node")
    node.delay = 0.25
    node.register("compute")
    net.advance(1)
    call = api.request("compute", ttl=10)
    assert node.got(Kind.REQUEST) == []
    net.advance(0.25)
    node.reply(node.take(Kind.REQUEST), b"slow")
    assert call.ends == []
    net.advance(0.25)
    assert call.end.payload == b"slow"


def test_after_too_long_away_a_process_starts_over(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    handle = net.link(node).handle
    node.lose()
    net.advance(net.settings.resume_seconds + 1)
    assert len(net.router.links) == 1
    node.connect()
    assert not node.welcomes[-1].resumed and node.welcomes[-1].same_handle
    assert net.link(node).handle == handle, "what it sends again is recognised by those who had it"
    api.cast("compute")
    assert node.got(Kind.CAST) == [], "it has to register again"


# --- away ------------------------------------------------------------------------------------


def test_a_consumer_keeps_its_work_over_a_short_loss(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.lose()
    net.advance(0.2)
    node.connect()
    node.reply(request, b"done")
    assert call.end.payload == b"done"


def test_a_consumer_that_comes_back_after_the_grace_consumes_again(net: Network):
    """It resumes and therefore does not register again: the router must not have forgotten it."""
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=2, peer_url="tcp://here:1")
    lost = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.lose()
    net.advance(5)
    assert lost.end.outcome is Outcome.LINK_LOST
    waiting = api.request("compute", server="node-7", ttl=60)
    node.connect()
    assert node.welcomes[-1].resumed
    node.reply(node.take(Kind.REQUEST), b"back")
    assert waiting.end.payload == b"back"
    node.reply(request, b"too late")
    assert len(lost.ends) == 1
    (consumer,) = net.link(node).consumers.values()
    assert (consumer.credit, consumer.server, consumer.peer_url) == (2, "node-7", "tcp://here:1")


def test_what_was_given_to_others_is_not_run_by_the_one_who_comes_back(net: Network):
    """A request that was never sent goes elsewhere after the grace; it must not be sent late, too."""
    api, node, other = net.process("api"), net.process("node"), net.process("other")
    node.register("compute", credit=5)
    node.lose(is_noticed=False)
    with net.together():
        call = api.request("compute")
        cast = api.cast("compute")
    other.register("compute", credit=5)
    net.advance(1)
    assert [m.key for m in other.got(Kind.REQUEST, Kind.CAST)] == [call.key, cast.key]
    node.connect()
    assert node.welcomes[-1].resumed
    assert node.got(Kind.REQUEST, Kind.CAST) == []


def test_a_call_told_lost_is_not_delivered_after_all(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    node.cut_off()
    call = api.request("compute")  # under way when the connection breaks
    node.lose()
    net.advance(1)
    assert call.end.outcome is Outcome.LINK_LOST
    node.heal()
    node.connect()
    assert node.got(Kind.REQUEST) == []


def test_a_consumer_that_was_stopping_does_not_come_back(net: Network):
    api, node = net.process("api"), net.process("node")
    tag = node.register("compute")
    api.request("compute")
    node.unregister(tag)
    node.lose()
    net.advance(2)
    node.connect()
    assert net.link(node).consumers == {}


def test_a_consumer_that_cannot_come_back_is_told_to_start_over(net: Network):
    """While it was away its topic became another's own: it must not believe that it still consumes."""
    node, other = net.process("node"), net.process("other")
    node.register("compute.b")
    net.settings.mailbox_max_seconds = net.settings.unclaimed_seconds = 4.0
    node.lose()
    net.advance(15)
    other.register("compute", server="b")
    node.connect()
    assert len(node.refusals) == 1 and "start over" in node.refusals[0][1]
    assert net.router.links.by_identity("node") is None


def test_away_links_end_after_the_time_to_resume(make_net):
    net = make_net(resume_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    api.request("compute", ttl=1000)
    api.lose()
    net.advance(9)
    assert net.router.in_flight == 1
    net.advance(3)
    assert net.router.in_flight == 0 and len(net.router.links) == 1
    assert len(node.got(Kind.CANCEL)) == 1


def test_a_link_with_too_much_to_send_is_ended(make_net):
    net = make_net(outbox_max_messages=100, resume_seconds=1000.0)
    node = net.process("node")
    link = net.link(node)
    node.lose()
    for _ in range(101):
        link.send(pack(Kind.ALIVE))
    net.advance(2)
    assert net.router.links.by_identity("node") is None
    assert any("101 messages wait to be sent; link.outbox_max_messages = 100" in note.text for note in net.notes)


def test_a_link_with_too_many_bytes_to_send_is_ended(make_net):
    net = make_net(outbox_max_bytes=1000, resume_seconds=1000.0)
    sub, pub = net.process("sub", queue_type="pubsub"), net.process("pub")
    sub.subscribe("#", window=1000)
    for _ in range(70):
        pub.publish("a", b"x" * 100)
    assert len(sub.got(Kind.PUBLISH)) == 70, "sent, so it does not wait"
    link = net.link(sub)
    sub.lose()
    for _ in range(70):
        link.send(pack(Kind.PUBLISH, b"x" * 100, address=Address("a").encode()))
    net.advance(2)
    assert net.router.links.by_identity("sub", "pubsub") is None
    assert any("bytes wait to be sent or acknowledged; link.outbox_max_bytes = 1000" in note.text for note in net.notes)


def test_a_link_that_never_acknowledges_is_ended(make_net):
    net = make_net(outbox_max_messages=1500)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=10_000)
    node.delay = 1e9  # it answers no more, and its heartbeats do not come either
    for _ in range(1400):
        api.cast("compute")
    net.advance(2)
    assert net.link(node).unacknowledged == 1401
    for _ in range(200):
        api.cast("compute")
    net.advance(2)
    assert net.router.links.by_identity("node") is None
    assert any(
        "1601 messages were sent and not acknowledged; link.outbox_max_messages = 1500" in note.text
        for note in net.notes
    )


def test_a_dead_connection_of_a_silent_link_is_found_by_asking(net: Network):
    node = net.process("node")
    node.lose(is_noticed=False)
    net.advance(net.settings.unresponsive_seconds + 2 * net.settings.heartbeat_seconds)
    assert net.link(node).state is LinkState.AWAY


# --- silence ---------------------------------------------------------------------------------


def test_heartbeats_keep_an_idle_link_answering(net: Network):
    node = net.process("node")
    net.advance(300)
    assert net.link(node).is_responsive
    assert node.uplink.heard > net.now - 6


def test_heartbeats_acknowledge_both_ways(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=10)
    for _ in range(5):
        api.cast("compute")
    assert net.link(node).unacknowledged == 6 and api.uplink.unacknowledged == 5
    net.advance(11)
    assert net.link(node).unacknowledged == 0 and api.uplink.unacknowledged == 0


def test_an_unresponsive_consumer_gets_no_new_work_is_not_dead_and_comes_back(net: Network):
    api, node, other = net.process("api"), net.process("node"), net.process("other")
    node.register("compute", credit=5)
    running = api.request("compute", ttl=100)
    request = node.take(Kind.REQUEST)
    node.cut_off()
    net.advance(20)
    link = net.link(node)
    assert link.state is LinkState.UNRESPONSIVE and link.counters["unresponsive"] == 1
    assert running.ends == [], "a handler that hogs its CPU is not declared dead"
    other.register("compute", credit=1)
    for _ in range(3):
        api.request("compute", ttl=100)
    assert len(other.got(Kind.REQUEST)) == 1
    node.heal()
    assert link.is_responsive
    assert len(node.got(Kind.REQUEST)) == 2, "what waited is given to it now"
    node.reply(request, b"sorry, was busy")
    assert running.end.payload == b"sorry, was busy"


def test_one_that_only_calls_and_computes_is_quiet_and_not_unresponsive(net: Network):
    """Nothing is waited for from it, so nothing is wrong, and there is nothing to log."""
    api, node, subscriber = net.process("api"), net.process("node"), net.process("sub", "pubsub")
    node.register("compute")
    subscriber.subscribe("#")
    call = api.request("compute", ttl=100)
    for process in (api, subscriber):
        process.cut_off()
    net.advance(20)
    states = [net.link(process).state for process in (api, subscriber)]
    assert states == [LinkState.UNRESPONSIVE, LinkState.UNRESPONSIVE]
    node.reply(node.take(Kind.REQUEST), b"done")
    net.advance(2)
    assert net.link(api).state is LinkState.QUIET, "its call has ended"
    other = net.process("other")
    other.request("compute")
    node.reply(node.take(Kind.REQUEST), b"done")
    other.cut_off()
    net.notes.clear()
    net.advance(20)
    assert net.link(other).state is LinkState.QUIET and net.notes == []
    assert net.link(other).counters["unresponsive"] == 0
    for process in (api, other):
        process.heal()
        assert net.link(process).is_responsive
    assert call.end.payload == b"done"


def test_a_quiet_process_whose_connection_has_gone_unnoticed_is_found_out(net: Network):
    api = net.process("api")
    link = net.link(api)
    api.lose(is_noticed=False)
    net.advance(20)
    assert link.state is LinkState.AWAY


def test_what_becomes_of_a_link_is_worth_a_line(net: Network):
    node = net.process("node")
    node.register("compute")
    node.cut_off()
    net.advance(20)
    node.lose()
    net.advance(40)
    assert [(n.event, n.text) for n in net.notes if n.identity == "node"] == [
        ("link unresponsive", "node (roundrobin) is unresponsive"),
        ("link away", "node (roundrobin) is away"),
        ("link ended", "node (roundrobin): away for 30.0 s"),
    ]


def test_a_message_about_the_link_wakes_an_unresponsive_link(net: Network):
    node = net.process("node")
    node.cut_off()
    net.advance(20)
    node.heal()
    node.inject(pack(Kind.HEARTBEAT))
    assert net.link(node).is_responsive


# --- goodbye ---------------------------------------------------------------------------------


def test_goodbye_leaves_nothing(net: Network):
    node = net.process("node")
    node.stop()
    assert left_behind(net.router) == {}


def test_after_goodbye_the_identity_is_free(net: Network):
    net.process("node").stop()
    assert net.process("node").refusals == []


def test_the_loss_of_a_connection_that_nobody_knows_is_nothing(net: Network):
    net.router.lost(net.now, b"unknown")
    assert left_behind(net.router) == {}


@pytest.mark.parametrize("kind", [Kind.WELCOME, Kind.REFUSED, Kind.DRAIN, 0x00, 0x0F])
def test_a_kind_that_a_process_does_not_send_is_refused(net: Network, kind: int):
    node = net.process("node")
    node.inject(pack(kind))
    assert net.router.refused == {"kind": 1}
    assert net.link(node).counters["refused kind"] == 1
    assert "not one that a process sends" in node.refusals[0][1]


def test_a_message_about_the_link_stands_alone(net: Network):
    node = net.process("node")
    node.inject(pack(Kind.GOODBYE) + pack(Kind.CAST, address=b"\0\1\0a"))
    assert net.router.refused == {"batch": 1}
    assert net.link(node).is_responsive


def test_an_ack_beyond_what_was_sent_is_refused(net: Network):
    node = net.process("node")
    node.inject(pack(Kind.ACK, sequence=99))
    assert net.router.refused == {"ack": 1}
    assert net.link(node).unacknowledged == 0


def test_a_heartbeat_may_carry_flags(net: Network):
    node = net.process("node")
    node.inject(pack(Kind.HEARTBEAT, flags=Flag.ANSWER_WANTED))
    assert net.router.refused == {}
