"""Identities, take-over, loss, silence, and what a link that ends leaves: nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.network import Message, Network
from rpcmq.wire import VERSION, Address, Flag, Kind, control, pack
from tests.core.router.tables import left_behind


def hello(**body: Any) -> bytes:
    return control(Kind.HELLO, {"identity": "mallory", "queue_type": "roundrobin", "versions": [VERSION]} | body)


def deepest_json() -> int:
    """The deepest nesting of lists that can be parsed; depends on the Python."""
    works, fails = 1, 100_000
    while fails - works > 1:
        depth = (works + fails) // 2
        try:
            json.loads("[" * depth + "]" * depth)
            works = depth
        except RecursionError:
            fails = depth
    return works


def only(messages: list[Message]) -> Message:
    assert len(messages) == 1, messages
    return messages[0]


# --- introduction ----------------------------------------------------------------------------


def test_a_welcome_tells_what_a_process_must_know(make_net):
    net = make_net(router_name="r1", router_id=7, heartbeat_seconds=3.0, unresponsive_seconds=9.0)
    api = net.process("api")
    welcome = api.welcome.encode()
    assert {k: welcome[k] for k in ("version", "router", "router_id", "resumed", "received")} == {
        "version": VERSION,
        "router": "r1",
        "router_id": 7,
        "resumed": False,
        "received": 0,
    }
    assert welcome["heartbeat_seconds"] == 3.0 and welcome["unresponsive_seconds"] == 9.0
    assert welcome["max_message_bytes"] == net.settings.message_max_bytes
    assert welcome["boot"] == net.router.boot and welcome["token"]
    assert net.link(api).handle == welcome["handle"]


def test_what_a_process_says_of_itself_is_kept(net: Network):
    api = net.process("api", role="caller", host="h1", pid=17, program="nova-api", library="rpcmq 1")
    link = net.link(api)
    assert link.role == "caller"
    assert link.description == {"host": "h1", "pid": "17", "program": "nova-api", "library": "rpcmq 1"}
    assert link.accepts == 0b110


def test_formats_that_are_not_known_are_ignored_and_json_is_always_accepted(net: Network):
    assert net.link(net.process("a", accepts=["dill", "xml", 7, None])).accepts == 0b1010
    assert net.link(net.process("b", accepts="pickle")).accepts == 0b10


def test_an_identity_may_have_one_link_of_each_queue_type(net: Network):
    first, second = net.process("api"), net.process("api", queue_type="pubsub")
    assert first.refusals == second.refusals == []
    assert net.link(first) is not net.link(second)
    assert net.router.links.by_identity("api", "pubsub") is net.link(second)
    assert net.router.links.by_identity("api") is net.link(first)


def test_handles_differ(net: Network):
    processes = [net.process(f"p{i}") for i in range(20)]
    assert len({net.link(p).handle for p in processes}) == 20


def test_a_handle_that_a_process_claims_is_not_given_to_another(net: Network):
    """After a restart processes keep their handles; new ones must not collide with them."""
    first = net.process("first")
    next_one = net.link(first).handle + 1
    claimed = net.inject(b"claimer", hello(identity="claimer", handle=next_one))
    assert claimed == []
    newcomer = net.process("newcomer")
    handles = [link.handle for link in net.router.links]
    assert next_one in handles and len(set(handles)) == 3
    assert net.link(newcomer).identity == "newcomer"


@pytest.mark.parametrize("clock_step", [0.001, 0.5, 60.0, -3600.5])
def test_a_new_process_does_not_get_the_handle_of_one_that_is_still_to_come_back(net: Network, clock_step: float):
    """Not even where the router is back within a second, or its clock was set back."""
    early = [net.process(f"early-{n}") for n in range(3)]
    handles = [process.welcome.handle for process in early]
    net.restart_router(clock_step)
    net.process("new")
    for process in early:
        process.connect()
    assert [process.welcome.handle for process in early] == handles


def test_a_claimed_handle_that_is_in_use_is_replaced(net: Network):
    first = net.process("first")
    net.inject(b"claimer", hello(identity="claimer", handle=net.link(first).handle))
    handles = [link.handle for link in net.router.links]
    assert len(set(handles)) == 2


@pytest.mark.parametrize("handle", [0, -1, 1 << 64, None])
def test_a_handle_that_cannot_be_is_replaced(net: Network, handle: object):
    net.inject(b"m", hello(handle=handle))
    link = net.router.links.by_identity("mallory")
    assert link is not None and 0 < link.handle < 1 << 64


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"versions": [2, 3]}, "version"),
        ({"versions": 1}, "version"),
        ({"versions": None}, "version"),
        ({"identity": ""}, "identity"),
        ({"identity": None}, "identity"),
        ({"identity": 7}, "identity"),
        ({"identity": ["api"]}, "identity"),
        ({"identity": "a\nb"}, "identity"),
        ({"identity": "\ud800"}, "identity"),
        ({"identity": "x" * 256}, "identity"),
        ({"identity": "é" * 128}, "identity"),
        ({"queue_type": "peer2peer"}, "queue-type"),
        ({"queue_type": None}, "queue-type"),
        ({"queue_type": {}}, "queue-type"),
        ({"versions": [True]}, "version"),
        ({"versions": [1.0]}, "version"),
        ({"handle": True}, "protocol"),
        ({"handle": "1"}, "protocol"),
        ({"handle": 1.0}, "protocol"),
        ({"handle": [1]}, "protocol"),
        ({"received": False}, "protocol"),
        ({"received": "0"}, "protocol"),
    ],
)
def test_an_absurd_hello_is_refused_counted_and_leaves_nothing(net: Network, body: dict[str, Any], reason: str):
    answer = only(net.inject(b"m", hello(**body)))
    assert answer.kind is Kind.REFUSED and answer.body["reason"] == reason
    assert net.router.links.counters[f"refused {reason}"] == 1
    assert left_behind(net.router) == {}


def test_a_refusal_does_not_send_back_megabytes(net: Network):
    for body in ({"versions": ["x" * 100_000]}, {"queue_type": "x" * 100_000}, {"identity": ["x" * 100_000]}):
        assert len(only(net.inject(b"m", hello(**body))).message) < 2000


def test_a_body_that_is_no_json_object_is_refused(net: Network):
    for payload in (b"", b"[]", b"{", b"\xff", b"7", b"[" * 20_000, b'{"identity":' + b"9" * 5000 + b"}"):
        answer = only(net.inject(b"m", pack(Kind.HELLO, payload)))
        assert answer.kind is Kind.REFUSED and answer.body["reason"] == "protocol"
    assert net.router.refused == {"body": 7}


def test_nesting_that_json_just_allows_is_no_trap(net: Network):
    """A value that can be parsed must be quotable in an error, however deep it is."""
    deepest = deepest_json()
    for depth in (1, 10, *range(deepest - 150, deepest + 10)):
        nested = b"[" * depth + b"]" * depth
        for field in (b"versions", b"identity", b"queue_type", b"role", b"token", b"received", b"handle"):
            body = hello()[40:].replace(b"}", b',"' + field + b'":' + nested + b"}")
            net.inject(b"m%d" % depth, pack(Kind.HELLO, body))


def test_too_many_links_are_refused(make_net):
    net = make_net(max_links=2)
    net.process("a")
    second = net.process("b")
    third = net.process("c")
    assert third.refusals == [("too-many-links", "link limit reached (link.max_links = 2)")]
    second.stop()
    third.connect()
    assert net.link(third).is_responsive


def test_a_stranger_is_told_to_say_hello(net: Network):
    answer = only(net.inject(b"s", pack(Kind.CAST, b"x", address=b"\0\1\0a")))
    assert answer.kind is Kind.REFUSED and answer.body["reason"] == "hello-first"
    assert net.router.links.counters["stranger"] == 1
    assert left_behind(net.router) == {}


# --- take-over -------------------------------------------------------------------------------


def test_a_second_live_claimant_is_refused_and_the_first_keeps_its_link(net: Network):
    first = net.process("node")
    second = net.process("node")
    assert second.refusals == [
        ("identity-taken", "identity 'node' is taken by a live process; stop it or choose another identity")
    ]
    first.register("compute")
    net.process("api").cast("compute")
    assert len(first.got(Kind.CAST)) == 1


@pytest.mark.parametrize("token", ["token-2", "", None, 7, ["token-1"]])
def test_a_wrong_token_is_refused(net: Network, token: object):
    net.process("node")
    answer = only(net.inject(b"m", hello(identity="node", token=token, received=0)))
    assert answer.body["reason"] == "identity-taken"


def test_an_unresponsive_process_keeps_its_identity(net: Network):
    first = net.process("node")
    first.cut_off()
    net.advance(20)
    assert not net.link(first).is_responsive
    assert net.process("node").refusals[0][0] == "identity-taken"


def test_the_token_takes_the_link_over_from_a_connection_that_seems_alive(net: Network):
    node = net.process("node")
    node.register("compute", credit=2)
    link = net.link(node)
    old = link.route
    node.connect()
    assert net.link(node) is link and link.route != old
    assert node.welcome.resumed
    assert old not in net.router.links.routes
    net.process("api").cast("compute")
    assert len(node.got(Kind.CAST)) == 1


def test_a_new_process_may_take_the_identity_when_the_old_one_is_lost(net: Network):
    node, api = net.process("node"), net.process("api")
    node.register("compute")
    call = api.request("compute")
    node.lose()
    successor = net.process("node")
    assert successor.refusals == []
    assert call.end.outcome is Outcome.LINK_LOST
    assert "replaced by a new process of the same identity" in call.end.body["text"]
    node.connect()
    assert node.refusals[0][0] == "identity-taken", "its token is void now"


def test_a_claim_makes_the_router_look_whether_the_first_is_still_there(net: Network):
    """The old connection is dead without anyone having noticed: the second attempt succeeds."""
    first = net.process("node")
    first.lose(is_noticed=False)
    second = net.process("node")
    assert second.refusals[0][0] == "identity-taken"
    second.connect()
    assert net.link(second).is_responsive


def test_a_process_with_token_but_no_count_starts_over(net: Network):
    node = net.process("node")
    node.register("compute")
    token = node.welcome.token
    net.inject(b"new", hello(identity="node", token=token))
    link = net.router.links.by_identity("node")
    assert link is not None and link.route == b"new" and link.consumers == {}
    assert len(net.router.links) == 1


def test_a_connection_carries_one_link(net: Network):
    """A second HELLO with another identity on one connection: the first link has ended."""
    net.inject(b"one", hello(identity="a"))
    a = net.router.links.by_identity("a")
    net.inject(b"one", hello(identity="b"))
    b = net.router.links.by_identity("b")
    assert a is not None and b is not None
    assert a.state is LinkState.ENDED and a.route is None
    assert net.router.links.routes == {b"one": b}
    net.router.lost(net.now, b"one")
    net.advance(net.settings.resume_seconds + 2)
    assert left_behind(net.router) == {}


def test_one_connection_does_not_fill_the_table_with_links_that_are_away():
    """Each HELLO under another name left one behind, for 30 s: link.max_links was reached in 6 s."""
    net = Network(Settings(max_links=10))
    api = net.process("api")
    for number in range(1000):
        net.inject(b"one", hello(identity=f"mallory-{number}"))
    assert len(net.router.links) == 2
    assert net.process("node").welcomes and api.welcomes and not api.refusals


def test_links_that_are_away_make_room_for_new_ones_when_the_table_is_full():
    """Links that never sent anything go first: a process with work here is more likely to come back."""
    net = Network(Settings(max_links=10))
    api = net.process("api")
    api.cast("compute")
    api.lose()
    for number in range(30):
        net.inject(b"r%d" % number, hello(identity=f"mallory-{number}"))
        net.router.lost(net.now, b"r%d" % number)
    assert len(net.router.links) == 10
    node = net.process("node")
    assert node.welcomes
    api.connect()
    assert api.welcomes[-1].resumed
    for number in range(8):
        assert net.process(f"live-{number}").welcomes
    assert net.process("too-many").refusals[0][0] == "too-many-links"


def test_a_link_may_say_hello_again_on_its_own_connection(net: Network):
    net.inject(b"one", hello(identity="a"))
    link = net.router.links.by_identity("a")
    assert link is not None
    net.inject(b"one", hello(identity="a", token=link.token, received=0))
    assert net.router.links.routes == {b"one": link} and link.is_responsive


@pytest.mark.parametrize("received", [-1, 5, 10**400])
def test_an_impossible_count_starts_the_link_over(net: Network, received: int):
    node = net.process("node")
    link = net.link(node)
    net.inject(b"m", hello(identity="node", token=link.token, received=received))
    fresh = net.router.links.by_identity("node")
    assert fresh is not None and fresh is not link and fresh.route == b"m"
    assert link.state is LinkState.ENDED


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
