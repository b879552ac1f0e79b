"""Casts wait for their consumers within bounds, and senders are held back in order."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import NO_TTL, Flag, Kind
from tests.core.router.mailboxes import dropped, payloads, queued, resend

# --- mailboxes -------------------------------------------------------------------------------


def test_a_mailbox_keeps_casts_while_the_consumer_is_away(net: Network, api: Process, node: Process):
    node.register("compute")
    node.stop()
    net.advance(100)
    for i in range(3):
        api.cast("compute", payload=b"%d" % i)
    net.advance(500)
    node = net.process("node")
    node.register("compute", credit=10)
    assert payloads(node.got(Kind.CAST)) == [b"0", b"1", b"2"]


def test_the_mailbox_of_a_server_keeps_what_is_for_that_server(net: Network, api: Process, node: Process):
    other = net.process("other")
    node.register("compute", server="node-7")
    other.register("compute", server="node-8")
    node.stop()
    api.cast("compute", server="node-7", payload=b"own")
    assert other.got(Kind.CAST) == []
    node = net.process("node")
    node.register("compute", server="node-7")
    assert payloads(node.got(Kind.CAST)) == [b"own"]


def test_a_mailbox_is_bounded_in_number(make_net):
    net = make_net(queue_max_messages=2)
    api = net.process("api")
    casts = [api.cast("compute", payload=b"%d" % i) for i in range(3)]
    assert [c.answers for c in casts[:2]] == [[], []]
    error = casts[2].answers[0]
    assert error.outcome is Outcome.OVERLOADED
    details = {"queued": 2, "queued_bytes": 102, "limit": "queue.max_messages", "limit_value": 2}
    assert error.body["details"] == {"topic": "compute"} | details
    assert dropped(api, "compute") == {"refused: full": 1}


def test_a_mailbox_is_bounded_in_bytes(make_net):
    net = make_net(queue_max_bytes=500)
    api = net.process("api")
    assert api.cast("compute", payload=b"x" * 300).answers == []
    cast = api.cast("compute", payload=b"x" * 300)
    assert cast.answers[0].body["details"]["limit"] == "queue.max_bytes"


def test_a_mailbox_is_bounded_in_age_and_says_what_it_dropped(make_net):
    net = make_net(mailbox_max_seconds=100.0, unclaimed_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    node.stop()
    api.cast("compute", payload=b"old")
    net.advance(60)
    api.cast("compute", payload=b"young")
    net.advance(41)
    assert queued(api, "compute") == 1
    assert dropped(api, "compute") == {"aged out": 1}
    node = net.process("node")
    node.register("compute", credit=2)
    assert payloads(node.got(Kind.CAST)) == [b"young"]


def test_the_age_limit_does_not_hit_what_waits_for_a_busy_consumer(make_net):
    net = make_net(mailbox_max_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    api.cast("compute", payload=b"long")
    api.cast("compute", payload=b"next")
    net.advance(60)
    node.settle(node.take(Kind.CAST))
    assert payloads(node.got(Kind.CAST)) == [b"next"]


@pytest.mark.parametrize("server", ["", "node-1"])
def test_what_waited_for_a_busy_consumer_ages_from_the_time_at_which_that_stops(make_net, server):
    net = make_net(mailbox_max_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute", server or "node-1")
    api.cast("compute", payload=b"long", server=server)
    api.cast("compute", payload=b"next", server=server)
    net.advance(9.5)
    (long,) = node.got(Kind.CAST)
    node.unregister(long.header.consumer)
    node.settle(long)
    net.advance(9.0)
    again = net.process("again")
    again.register("compute", server or "node-1")
    assert payloads(again.got(Kind.CAST)) == [b"next"]


def test_what_nobody_comes_for_after_the_last_consumer_has_stopped_ages_out(make_net):
    net = make_net(mailbox_max_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1)
    for payload in (b"long", b"next"):
        api.cast("compute", payload=payload)
    net.advance(9.5)
    (long,) = node.got(Kind.CAST)
    node.unregister(long.header.consumer)
    node.settle(long)
    net.advance(9.9)
    assert queued(api, "compute") == 1
    net.advance(0.2)
    assert queued(api, "compute") == 0 and dropped(api, "compute") == {"aged out": 1}


def test_an_unclaimed_topic_keeps_casts_for_a_shorter_time(make_net):
    net = make_net(mailbox_max_seconds=100.0, unclaimed_seconds=10.0)
    api, node = net.process("api"), net.process("node")
    api.cast("compute", payload=b"old")
    net.advance(9)
    assert queued(api, "compute") == 1
    net.advance(2)
    assert queued(api, "compute") == 0 and dropped(api, "compute") == {"aged out": 1}
    node.register("compute")
    assert node.got(Kind.CAST) == []


def test_casts_sent_before_the_first_registration_are_delivered(net: Network, api: Process, node: Process):
    api.cast("compute", payload=b"early")
    net.advance(30)
    node.register("compute")
    assert payloads(node.got(Kind.CAST)) == [b"early"]


def test_a_cast_with_a_ttl_expires_in_the_queue_whatever_the_mailbox_allows(net: Network, api: Process, node: Process):
    node.register("compute")
    api.cast("compute", payload=b"runs")
    api.cast("compute", payload=b"expires", ttl=5)
    net.advance(6)
    assert dropped(api, "compute") == {"expired": 1}
    node.settle(node.take(Kind.CAST))
    assert node.got(Kind.CAST) == []


def test_the_ttl_of_a_cast_that_waited_is_what_remains(net: Network, api: Process, node: Process):
    api.cast("compute", ttl=10)
    api.cast("compute")
    net.advance(4)
    node.register("compute", credit=2)
    assert [m.header.ttl for m in node.got(Kind.CAST)] == [6_000, NO_TTL]


def test_expired_casts_are_recorded(net: Network, api: Process):
    api.cast("compute", "log", ttl=1)
    net.advance(2)
    (method,) = api.query("methods")["methods"]
    assert method["outcomes"] == {"timeout": 1}


def test_a_mandatory_cast_without_a_consumer_is_refused(api: Process):
    cast = api.cast("compute", flags=Flag.MANDATORY)
    assert cast.answers[0].outcome is Outcome.NO_CONSUMER
    assert cast.answers[0].body["text"] == "no consumer on 'compute' (never seen)"


# --- back-pressure ---------------------------------------------------------------------------


def test_after_a_refused_cast_later_ones_are_refused_until_it_comes_again(make_net):
    """Otherwise a later cast could take the place that has become free, and overtake."""
    net = make_net(queue_max_messages=1)
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    api.cast("compute", payload=b"0")
    api.cast("compute", payload=b"1")
    refused = api.cast("compute", payload=b"2")
    assert refused.answers[0].outcome is Outcome.OVERLOADED
    node.settle(node.take(Kind.CAST))  # 1 is delivered: there is room again
    later = api.cast("compute", payload=b"3")
    assert later.answers[0].body["details"]["limit"] == "behind a refused cast"
    assert resend(api, later, "compute", b"3").answers[1:] != [], "not the first one refused"
    assert len(resend(api, refused, "compute", b"2").ends) == 1
    seen = []
    for _ in range(2):
        casts = node.got(Kind.CAST)
        seen += payloads(casts)
        node.settle(*casts)
    assert seen == [b"1", b"2"]
    assert len(resend(api, later, "compute", b"3").ends) == 2, "refused twice, taken now"
    assert payloads(node.got(Kind.CAST)) == [b"3"]


def test_a_cast_may_be_refused_again_and_keeps_its_place(make_net):
    net = make_net(queue_max_messages=1)
    api, node = net.process("api"), net.process("node")
    api.cast("compute", payload=b"0")
    refused = api.cast("compute", payload=b"1")
    assert len(resend(api, refused, "compute", b"1").ends) == 2
    assert api.cast("compute", payload=b"2").ends != []
    node.register("compute", credit=3)
    resend(api, refused, "compute", b"1")
    assert payloads(node.got(Kind.CAST)) == [b"0", b"1"]


def test_back_pressure_on_one_topic_leaves_others_alone(make_net):
    net = make_net(queue_max_messages=1)
    api, other = net.process("api"), net.process("other")
    api.cast("compute")
    assert api.cast("compute").ends != []
    assert api.cast("network").ends == []
    assert api.cast("compute", server="node-7").ends == []
    node = net.process("node")
    node.register("compute")
    assert other.cast("compute").ends == [], "another sender's order is its own"


def test_casts_to_be_confirmed_are_refused_one_by_one(make_net):
    """Their sender waits for each, so it keeps the order itself."""
    net = make_net(queue_max_messages=1)
    api, node = net.process("api"), net.process("node")
    api.cast("compute")
    assert api.cast("compute", flags=Flag.CONFIRM).answers[0].outcome is Outcome.OVERLOADED
    node.register("compute", credit=3)
    cast = api.cast("compute", flags=Flag.CONFIRM)
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM]
