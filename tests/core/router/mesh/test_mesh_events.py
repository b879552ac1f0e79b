"""Events in a mesh: each subscriber anywhere gets one copy, and each link carries one at most."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh.events import Events
from rpcmq.core.router.pubsub import node
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Flag, Kind, pack
from tests.core.router.mesh.links import end_link, link_all, link_routers, neighbour_of


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Three routers, each linked to each."""
    net = link_all(MeshNetwork())
    yield net
    for host in net.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []


def subscriber(net: MeshNetwork, router: str, *patterns: str, name: str = "", window: int = 1000) -> Process:
    process = net.process(name or f"sub-{router}", queue_type="pubsub", router=router)
    for pattern in patterns:
        process.subscribe(pattern, window=window)
    return process


def events(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.PUBLISH)]


def part(net: MeshNetwork, router: str) -> Events:
    return next(each for each in net.router_of(router).mesh.parts if isinstance(each, Events))


def narrow(net: MeshNetwork, router: str, other: str, window: int) -> None:
    """Let ``router`` send ``other`` no more than ``window`` events before it gets credit back."""
    subscribed = neighbour_of(net, router, other).window
    assert subscribed is not None
    subscribed.window = window


def came(net: MeshNetwork, router: str) -> int:
    """Number of events that other routers have sent to this one."""
    return net.router_of(router).pubsub.published["from routers"]


# --- one copy --------------------------------------------------------------------------------


def test_an_event_reaches_the_subscribers_of_every_router_once(net: MeshNetwork):
    subs = [subscriber(net, router, "a.#", "#", "*.b") for router in "abc"]
    net.process("pub", router="a").publish("a.b", b"event")
    assert [events(sub) for sub in subs] == [[b"event"]] * 3
    assert (came(net, "a"), came(net, "b"), came(net, "c")) == (0, 1, 1)


def test_a_link_carries_one_copy_however_many_subscribe(net: MeshNetwork):
    subs = [subscriber(net, "b", "a", "#", name=f"sub-{i}") for i in range(5)]
    net.process("pub", router="a").publish("a", b"event")
    assert [events(sub) for sub in subs] == [[b"event"]] * 5
    assert (came(net, "b"), came(net, "c")) == (1, 0), "and none goes where nobody is interested"


def test_events_keep_the_order_of_their_publisher(net: MeshNetwork):
    sub = subscriber(net, "b", "#")
    pub = net.process("pub", router="a")
    with net.together():
        for i in range(1000):
            pub.publish(f"t.{i % 7}", b"%d" % i)
    assert events(sub) == [b"%d" % i for i in range(1000)]


def test_the_first_subscriber_subscribes_elsewhere_and_the_last_unsubscribes(net: MeshNetwork):
    at_b = neighbour_of(net, "b", "a").patterns
    one, other = subscriber(net, "a", "x", name="one"), subscriber(net, "a", "x", name="other")
    assert list(at_b) == [(b"", b"x")]
    one.unsubscribe("x")
    assert list(at_b) == [(b"", b"x")]
    other.stop()
    assert list(at_b) == []
    for router in "abc":
        pubsub = net.router_of(router).pubsub
        assert pubsub._tries == {} and pubsub.patterns == {}
        assert [len(known) for known in part(net, router)._neighbours.values()] == [0, 0]


def test_a_new_neighbour_is_told_all_patterns(net: MeshNetwork):
    sub = subscriber(net, "a", *(f"topic.{i}.#" for i in range(900)))
    other = subscriber(net, "a", *(f"{i}" for i in range(500)), name="other")
    net.add_router("d", peers=["a"])
    link_routers(net, "a", "d")
    assert len(neighbour_of(net, "d", "a").patterns) == 1400
    pub = net.process("pub", router="d")
    pub.publish("topic.899.x", b"1")
    pub.publish("499", b"2")
    assert events(sub) == [b"1"] and events(other) == [b"2"]


def test_exchanges_are_apart(net: MeshNetwork):
    sub = net.process("sub", queue_type="pubsub", router="a")
    sub.subscribe("#", exchange="nova")
    pub = net.process("pub", router="b")
    pub.publish("a", b"nova", exchange="nova")
    pub.publish("a", b"none")
    assert events(sub) == [b"nova"] and came(net, "a") == 1


def test_an_event_in_a_format_that_its_router_does_not_know_gets_there(net: MeshNetwork):
    sub = net.process("sub", queue_type="pubsub", router="b", accepts=["json", "pickle", "dill"])
    sub.subscribe("#")
    net.process("pub", router="a").publish("a", b"dill", format=3)
    assert events(sub) == [b"dill"]


def test_a_confirmed_event_counts_its_routers_subscribers_and_one_for_each_other_router(net: MeshNetwork):
    for router in "ab":
        for i in range(2):
            subscriber(net, router, "#", name=f"{router}{i}")
    pub = net.process("pub", router="a")
    (confirm,) = pub.publish("a", flags=Flag.CONFIRM).answers
    assert confirm.payload == (3).to_bytes(4)
    assert net.process("pub-c", router="c").publish("a", flags=Flag.CONFIRM).answers[0].payload == (2).to_bytes(4)
    assert pub.publish("b", exchange="other", flags=Flag.CONFIRM).answers[0].payload == (0).to_bytes(4)


# --- neighbours that misbehave ---------------------------------------------------------------


def test_a_neighbour_passes_on_no_event_of_ours(net: MeshNetwork):
    sub, pub = subscriber(net, "a", "#"), net.process("pub", router="a")
    echo = pack(Kind.PUBLISH, b"echo", key=pub.uplink.next_key(), format=1, address=Address("x").encode())
    neighbour_of(net, "b", "a").send(echo)
    net.run()
    assert events(sub) == [] and net.router_of("a").refused == {"origin": 1}


def test_an_event_of_a_process_that_has_moved_is_passed_on_to_the_router_where_it_was(net: MeshNetwork):
    sub = subscriber(net, "a", "#")
    gone = net.process("pub", router="a")
    key = gone.uplink.next_key()
    gone.lose()
    moved = pack(Kind.PUBLISH, b"moved", key=key, format=1, address=Address("x").encode())
    neighbour_of(net, "b", "a").send(moved)
    net.run()
    assert events(sub) == [b"moved"]


@pytest.mark.parametrize("payload", [b"", b"123"])
def test_a_malformed_loss_is_refused(net: MeshNetwork, payload: bytes):
    neighbour_of(net, "b", "a").send(pack(Kind.LOST, payload))
    net.run()
    assert net.router_of("a").refused == {"length": 1}


# --- slow neighbours -------------------------------------------------------------------------


def test_a_neighbour_gets_its_credit_back(net: MeshNetwork):
    sub, pub = subscriber(net, "b", "#", window=65_535), net.process("pub", router="a")
    with net.together():
        for i in range(9000):
            pub.publish("a", b"%d" % i)
    assert len(events(sub)) == 9000
    subscribed = neighbour_of(net, "a", "b").window
    assert subscribed is not None and subscribed.window == 65_535 and 0 < subscribed.delivered < 1000


def test_subscribers_are_told_of_what_was_lost_between_routers():
    net = link_all(MeshNetwork(settings=Settings(recovery_seconds=0.0, pubsub_max_messages=5)))
    pub = net.process("pub", router="a")
    concerned, other, here = subscriber(net, "b", "x.#"), subscriber(net, "b", "y", name="y"), subscriber(net, "a", "#")
    narrow(net, "a", "b", 2)
    with net.together():
        for i in range(10):
            pub.publish("x.1", b"%d" % i)
    assert events(here) == [b"%d" % i for i in range(10)], "its own subscribers do not notice"
    assert events(concerned) == [b"0", b"1"]
    neighbour_of(net, "b", "a").send(pack(Kind.EVENT_CREDIT, (2).to_bytes(4)))
    net.run()
    lost = concerned.take(Kind.LOST)
    assert lost.payload == (3).to_bytes(4) and lost.method == "a", "and where"
    assert events(concerned) == [b"5", b"6"]
    assert other.got(Kind.LOST) == []
    assert net.router_of("b").pubsub.published["lost by routers"] == 3
    (row,) = (r for r in pub.query("processes")["processes"] if r["identity"] == "b")
    assert row["dropped"] == {"slow subscriber": 3}


def test_losses_of_too_many_topics_are_told_to_all():
    settings = Settings(recovery_seconds=0.0, pubsub_max_messages=1)
    net = link_all(MeshNetwork(names=("a", "b"), settings=settings))
    one, other = subscriber(net, "b", "#"), subscriber(net, "b", "z", name="z")
    pub = net.process("pub", router="a")
    narrow(net, "a", "b", 1)
    with net.together():
        for i in range(1502):
            pub.publish(f"t.{i}", b"%d" % i)
    neighbour_of(net, "b", "a").send(pack(Kind.EVENT_CREDIT, (1).to_bytes(4)))
    net.run()
    assert sum(int.from_bytes(m.payload) for m in one.got(Kind.LOST)) == 1500
    assert sum(int.from_bytes(m.payload) for m in other.got(Kind.LOST)) == 500


def test_subscribers_are_told_of_what_waited_for_a_link_that_has_ended(net: MeshNetwork):
    concerned, other = subscriber(net, "b", "x.#"), subscriber(net, "b", "y", name="y")
    pub = net.process("pub", router="a")
    narrow(net, "a", "b", 1)
    for i in range(5):
        pub.publish("x.1", b"%d" % i)
    assert events(concerned) == [b"0"]
    end_link(net, "a", "b")
    link_routers(net, "a", "b")
    (lost,) = concerned.got(Kind.LOST)
    assert (lost.payload, lost.method) == ((4).to_bytes(4), "a") and other.got(Kind.LOST) == []
    end_link(net, "a", "b")
    link_routers(net, "a", "b")
    assert concerned.got(Kind.LOST) == [], "once"


def test_who_subscribes_later_is_not_told_of_what_others_lost_before(net: MeshNetwork):
    gone = subscriber(net, "b", "#")
    pub = net.process("pub", router="a")
    narrow(net, "a", "b", 1)
    for i in range(5):
        pub.publish("x.1", b"%d" % i)
    net.cut("a", "b")
    gone.stop()
    end_link(net, "a", "b")
    net.heal("a", "b")
    link_routers(net, "a", "b")
    assert part(net, "a")._untold == {}, "nobody there is subscribed, and may never be"
    sub = subscriber(net, "b", "#", name="later")
    net.advance(1.0)
    pub.publish("x.1", b"event")
    assert events(sub) == [b"event"] and sub.got(Kind.LOST) == []


def test_a_router_that_was_started_again_is_not_told_what_its_earlier_life_has_lost(net: MeshNetwork):
    subscriber(net, "b", "#")
    pub = net.process("pub", router="a")
    narrow(net, "a", "b", 1)
    for i in range(5):
        pub.publish("x.1", b"%d" % i)
    net.hosts["b"].restart()
    link_routers(net, "a", "b")
    sub = subscriber(net, "b", "#", name="later")
    net.advance(1.0)
    assert sub.got(Kind.LOST) == [] and part(net, "a")._untold == {}


def test_events_wait_while_a_connection_between_routers_is_broken(net: MeshNetwork):
    sub, pub = subscriber(net, "b", "#"), net.process("pub", router="a")
    net.cut("a", "b")
    for i in range(3):
        pub.publish("a", b"%d" % i)
    assert events(sub) == []
    net.heal("a", "b")
    assert events(sub) == [b"0", b"1", b"2"]


# --- routers that go and come ----------------------------------------------------------------


def test_after_a_link_has_ended_the_next_one_carries_events_again(net: MeshNetwork):
    sub, pub = subscriber(net, "b", "#"), net.process("pub", router="a")
    end_link(net, "a", "b")
    pub.publish("a", b"lost")
    assert net.router_of("a").pubsub.patterns == {} and events(sub) == []
    assert part(net, "a").waiting.next_deadline() == float("inf")
    link_routers(net, "a", "b")
    pub.publish("a", b"event")
    assert events(sub) == [b"event"]
    assert came(net, "b") == 1


def test_the_patterns_of_a_neighbour_that_has_gone_are_removed_some_at_a_time(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node, "_REMOVED_AT_ONCE", 20)
    subscriber(net, "b", *(f"0.{i}" for i in range(50)), name="many")
    sub, pub = subscriber(net, "a", "#"), net.process("pub", router="a")
    pubsub = net.router_of("a").pubsub
    assert len(pubsub._tries[b""]) == 51
    net.hosts["b"].kill()
    net.router_of("a").links.end(net.now, neighbour_of(net, "a", "b"), "connection lost")
    assert len(pubsub._tries[b""]) == 31
    pub.publish("0.0", b"meanwhile")
    assert events(sub) == [b"meanwhile"]
    net.advance(0.1)
    assert len(pubsub._tries[b""]) == 1 and pubsub._ended == type(pubsub._ended)()


# --- the confirmation of a subscription ------------------------------------------------------


def test_a_subscription_is_confirmed_when_the_other_routers_have_it(net: MeshNetwork):
    net.delay("a", "b", 0.2)
    sub = net.process("sub", queue_type="pubsub", router="a")
    asked = sub.subscribe("#")
    again = sub.subscribe("#")
    net.advance(0.39)
    assert [asked.answers, again.answers] != [[], []] and asked.answers != again.answers
    assert [m.kind for m in asked.answers] == [Kind.SUBSCRIBED], "the former question, as it was asked again"
    assert again.answers == []
    net.advance(0.02)
    assert [m.kind for m in again.answers] == [Kind.SUBSCRIBED]
    net.process("pub", router="b").publish("a", b"event")
    net.advance(0.3)
    assert events(sub) == [b"event"]
    assert len(part(net, "a").waiting) == 0


def test_a_subscription_waits_for_a_router_that_does_not_answer_for_a_second_at_most(net: MeshNetwork):
    net.cut("a", "b")
    sub = net.process("sub", queue_type="pubsub", router="a")
    asked = sub.subscribe("#")
    net.advance(0.99)
    assert asked.answers == []
    net.advance(0.02)
    assert [m.kind for m in asked.answers] == [Kind.SUBSCRIBED]
    assert part(net, "a").waiting.unconfirmed == 1


def test_a_router_that_has_gone_is_not_waited_for(net: MeshNetwork):
    net.cut("a", "b")
    sub = net.process("sub", queue_type="pubsub", router="a")
    asked = sub.subscribe("#")
    assert asked.answers == []
    net.hosts["b"].kill()
    net.router_of("a").links.end(net.now, neighbour_of(net, "a", "b"), "connection lost")
    net.run()
    assert [m.kind for m in asked.answers] == [Kind.SUBSCRIBED]
    (at_once,) = sub.subscribe("b").answers
    assert at_once.kind is Kind.SUBSCRIBED


def test_a_second_subscriber_to_a_pattern_waits_for_nobody(net: MeshNetwork):
    subscriber(net, "a", "#")
    net.cut("a", "b")
    other = net.process("other", queue_type="pubsub", router="a")
    assert [m.kind for m in other.subscribe("#").answers] == [Kind.SUBSCRIBED]


def test_a_subscriber_that_gives_up_while_it_waits_leaves_nothing(net: MeshNetwork):
    net.cut("a", "b")
    one, other = (net.process(name, queue_type="pubsub", router="a") for name in ("one", "other"))
    asked = one.subscribe("x")
    other.subscribe("y")
    one.unsubscribe("x")
    assert [m.kind for m in asked.answers] == [Kind.SUBSCRIBED]
    other.stop()
    assert len(part(net, "a").waiting) == 0 and net.router_of("a").pubsub.patterns == {}
    net.heal()
    assert neighbour_of(net, "b", "a").patterns == {}


def test_a_pattern_that_comes_and_goes_ends_as_it_is_last(net: MeshNetwork):
    net.delay("a", "b", 0.1)
    sub = net.process("sub", queue_type="pubsub", router="a")
    for _ in range(10):
        sub.subscribe("x")
        sub.unsubscribe("x")
    net.advance(1.0)
    assert neighbour_of(net, "b", "a").patterns == {}
    sub.subscribe("x")
    net.advance(1.0)
    assert list(neighbour_of(net, "b", "a").patterns) == [(b"", b"x")]


# --- bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "names"),
    [
        ({"mesh_max_patterns": 3}, "3 patterns are subscribed to; mesh.max_patterns = 3"),
        ({"mesh_max_pattern_bytes": 2500}, "its 3 patterns take 2406 bytes already; mesh.max_pattern_bytes = 2500"),
    ],
)
def test_a_pattern_that_another_router_has_no_room_for_is_refused(bound: dict[str, int], names: str):
    net = MeshNetwork(names=("a",))
    net.add_router("b", peers=["a"], **bound)
    link_all(net)
    sub = subscriber(net, "a", "p0", "p1", "p2")
    (refused,) = sub.subscribe("p3").answers
    assert refused.outcome is Outcome.PROTOCOL
    assert refused.body["text"] == f"router b refuses the pattern 'p3': {names}"
    pub = net.process("pub", router="a")
    pub.publish("p3", b"not subscribed to")
    assert events(sub) == []
    # One that is given up makes room.
    sub.unsubscribe("p0")
    assert [m.kind for m in sub.subscribe("p3").answers] == [Kind.SUBSCRIBED]
    pub.publish("p3", b"event")
    assert events(sub) == [b"event"]


def test_patterns_that_a_new_neighbour_has_no_room_for_are_told_again():
    net = MeshNetwork(names=("a",))
    sub, other = subscriber(net, "a", "p0", "p1"), subscriber(net, "a", "p2", "p3", name="other")
    net.add_router("b", peers=["a"], mesh_max_patterns=2)
    link_routers(net, "a", "b")
    (note,) = [note for note in net.hosts["a"].notes if note.event == "pattern refused"]
    assert note.text == "router b refuses the pattern 'p2': 2 patterns are subscribed to; mesh.max_patterns = 2"
    sub.stop()
    net.advance(10.1)
    assert list(neighbour_of(net, "b", "a").patterns) == [(b"", b"p2"), (b"", b"p3")]
    net.process("pub", router="b").publish("p3", b"event")
    assert events(other) == [b"event"]
