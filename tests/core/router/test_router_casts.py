"""Casts: no reply state, mailboxes with bounds, back-pressure in order, settlement."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Message, Network, Process
from rpcmq.wire import NO_TTL, Flag, Kind, pack
from tests.core.router.tables import left_behind


def dropped(process: Process, topic: str) -> dict[str, int]:
    rows = {row["topic"]: row for row in process.query("topics")["topics"]}
    counts: dict[str, int] = rows[topic]["dropped"]
    return counts


def queued(process: Process, topic: str) -> int:
    rows = {row["topic"]: row for row in process.query("topics")["topics"]}
    return int(rows[topic]["queued"])


def payloads(messages: list[Message]) -> list[bytes]:
    return [m.payload for m in messages]


def resend(process: Process, cast: Call, topic: str, payload: bytes = b"") -> Call:
    """As a client does with a cast that it has to send again."""
    return process.cast(topic, payload=payload, key=cast.key, flags=Flag.RESENT)


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


# --- fanout ----------------------------------------------------------------------------------


def test_fanout_reaches_every_consumer_once(net: Network, api: Process):
    nodes = [net.process(f"node-{i}") for i in range(3)]
    for i, node in enumerate(nodes):
        node.register("compute", server=f"node-{i}", credit=2)
    api.cast("compute", payload=b"all", flags=Flag.FANOUT)
    assert [payloads(node.got(Kind.CAST)) for node in nodes] == [[b"all"]] * 3


def test_a_confirmed_fanout_tells_how_many_it_reached(net: Network, api: Process, node: Process):
    assert api.cast("compute", flags=Flag.FANOUT | Flag.CONFIRM).answers[0].payload == (0).to_bytes(4)
    node.register("compute")
    net.process("other").register("compute")
    assert api.cast("compute", flags=Flag.FANOUT | Flag.CONFIRM).answers[0].payload == (2).to_bytes(4)


def test_a_fanout_waits_for_each_consumer_that_is_busy(net: Network, api: Process, node: Process):
    free = net.process("free")
    node.register("compute", server="a")
    api.cast("compute", server="a", payload=b"busy")
    free.register("compute", server="b")
    api.cast("compute", payload=b"all", flags=Flag.FANOUT)
    assert payloads(free.got(Kind.CAST)) == [b"all"]
    busy = node.take(Kind.CAST)
    assert node.got(Kind.CAST) == []
    node.settle(busy)
    assert payloads(node.got(Kind.CAST)) == [b"all"]


def test_a_fanout_copy_keeps_its_place_among_the_senders_casts(api: Process, node: Process):
    node.register("compute")
    api.cast("compute", payload=b"0")
    api.cast("compute", payload=b"1")
    api.cast("compute", payload=b"2", flags=Flag.FANOUT)
    api.cast("compute", payload=b"3")
    seen = []
    while casts := node.got(Kind.CAST):
        seen += payloads(casts)
        node.settle(*casts)
    assert seen == [b"0", b"1", b"2", b"3"]


def test_a_fanout_without_consumers_is_counted(api: Process):
    api.cast("compute", flags=Flag.FANOUT)
    assert dropped(api, "compute") == {"no consumer": 1}


def test_a_mandatory_fanout_without_consumers_is_refused(api: Process):
    cast = api.cast("compute", flags=Flag.FANOUT | Flag.MANDATORY)
    assert cast.answers[0].outcome is Outcome.NO_CONSUMER


def test_a_slow_consumers_fanout_backlog_is_bounded_and_its_own(make_net):
    net = make_net(queue_max_messages=2)
    api, slow, fast = net.process("api"), net.process("slow"), net.process("fast")
    slow.register("compute")
    fast.register("compute", credit=100)
    for i in range(5):
        api.cast("compute", payload=b"%d" % i, flags=Flag.FANOUT)
    assert len(fast.got(Kind.CAST)) == 5
    assert dropped(api, "compute") == {"queue full": 2}
    seen = []
    while casts := slow.got(Kind.CAST):
        seen += payloads(casts)
        slow.settle(*casts)
    assert seen == [b"0", b"1", b"2"]


def test_a_fanout_is_not_given_to_a_consumer_that_does_not_accept_its_format(net: Network, api: Process):
    simple, node = net.process("simple", accepts=["json"]), net.process("node")
    simple.register("compute")
    node.register("compute")
    api.cast("compute", format=2, flags=Flag.FANOUT)
    assert simple.got(Kind.CAST) == [] and len(node.got(Kind.CAST)) == 1
    assert dropped(api, "compute") == {"format not accepted": 1}


def test_the_fanout_backlog_of_a_dead_consumer_is_counted_as_dropped(net: Network, api: Process, node: Process):
    node.register("compute")
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT)
    node.die()
    net.advance(1)
    assert dropped(api, "compute") == {"consumer lost": 1, "consumer left": 2}


def test_the_fanout_backlog_of_a_stopping_consumer_is_counted_as_dropped(net: Network, api: Process, node: Process):
    tag = node.register("compute")
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT)
    running = node.take(Kind.CAST)
    node.unregister(tag)
    node.settle(running)
    assert node.got(Kind.CAST) == []
    assert dropped(api, "compute") == {"consumer left": 2}


def test_what_a_stopping_consumer_leaves_behind_does_not_stay(make_net):
    net = make_net(mailbox_max_seconds=10.0, unclaimed_seconds=10.0)
    api, node, other = net.process("api"), net.process("node"), net.process("other")
    other.register("compute", credit=10)
    tag = node.register("compute")
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT)
    running = node.take(Kind.CAST)
    node.unregister(tag)
    node.settle(running)
    other.settle(*other.got(Kind.CAST))
    net.advance(60)
    assert len(net.router.dispatch.requests.deadlines.wheel) == 0


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
        "router.links._handles",
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
