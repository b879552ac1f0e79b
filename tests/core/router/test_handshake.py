"""HELLO and WELCOME: introductions, and identities that are taken over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.network import Message, Network
from rpcmq.wire import VERSION, Kind, control, pack
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


def test_an_identity_may_have_one_more_link_of_each_queue_type_that_only_consumes(net: Network):
    calling, consuming = net.process("node"), net.process("node", role="consumer")
    assert calling.refusals == consuming.refusals == []
    links = net.router.links
    assert links.by_identity("node") is net.link(calling)
    assert links.by_identity("node", role="consumer") is net.link(consuming) is not net.link(calling)
    assert [*links.of_identity("node")] == [net.link(calling), net.link(consuming)]
    consuming.register("compute")
    consuming.lose()
    consuming.connect()
    assert consuming.welcomes[-1].resumed and [*links.of_identity("node")] == [net.link(calling), net.link(consuming)]
    net.router.links.end(net.now, net.link(calling), "test")
    assert [*links.of_identity("node")] == [net.link(consuming)]
    second = net.process("node", role="consumer")
    assert [reason for reason, _ in second.refusals] == ["identity-taken"]


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
