"""Events: one copy to each subscriber, a window, and a slow one loses its own only."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import DETACH_BYTES, Flag, Kind
from tests.core.router.tables import left_behind


@pytest.fixture
def pub(net: Network) -> Process:
    return net.process("pub")


@pytest.fixture
def sub(net: Network) -> Process:
    return net.process("sub", queue_type="pubsub")


def events(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.PUBLISH)]


def row(process: Process, identity: str) -> dict[str, object]:
    (found,) = (r for r in process.query("processes")["processes"] if r["identity"] == identity)
    return dict(found)


# --- matching --------------------------------------------------------------------------------


def test_an_event_reaches_those_whose_pattern_matches(net: Network, pub: Process):
    patterns = ["instance.create.end", "instance.*.end", "instance.#", "#", "volume.#", "instance.create"]
    subs = [net.process(f"sub-{i}", queue_type="pubsub") for i in range(len(patterns))]
    for process, pattern in zip(subs, patterns, strict=True):
        process.subscribe(pattern)
    pub.publish("instance.create.end", b"event")
    assert [events(process) for process in subs] == [[b"event"]] * 4 + [[], []]


def test_one_copy_however_many_patterns_match(sub: Process, pub: Process):
    for pattern in ("#", "a.*", "a.b", "*.b", "#.b"):
        sub.subscribe(pattern)
    pub.publish("a.b", b"once")
    assert events(sub) == [b"once"]


def test_exchanges_are_namespaces(sub: Process, pub: Process):
    sub.subscribe("#", exchange="nova")
    pub.publish("a", b"nova", exchange="nova")
    pub.publish("a", b"none")
    assert events(sub) == [b"nova"]


def test_an_exchange_and_a_pattern_are_two_things(net: Network, sub: Process, pub: Process):
    """("a/b", "c") and ("a", "b/c") read alike, and neither may be left behind for the other."""
    sub.subscribe("c", exchange="a/b")
    sub.subscribe("b/c", exchange="a")
    sub.unsubscribe("b/c", exchange="a")
    pub.publish("c", b"1", exchange="a/b")
    pub.publish("b/c", b"2", exchange="a")
    assert events(sub) == [b"1"]
    sub.subscribe("b/c", exchange="a")
    sub.stop()
    pub.publish("c", b"3", exchange="a/b")
    pub.publish("b/c", b"4", exchange="a")
    pub.stop()
    assert left_behind(net.router) == {}


def test_a_subscription_is_confirmed(sub: Process):
    (answer,) = sub.subscribe("a.#").answers
    assert answer.kind is Kind.SUBSCRIBED and answer.body == {"pattern": "a.#"}


def test_the_event_arrives_as_it_was_sent(sub: Process, pub: Process):
    sub.subscribe("#")
    pub.publish("a.b", b"x" * DETACH_BYTES, trace=b"trace")
    event = sub.take(Kind.PUBLISH)
    assert str(event.address) == "a.b" and event.payload == b"x" * DETACH_BYTES
    assert event.header.trace_length == 5


def test_a_confirmed_event_tells_how_many_it_reached(net: Network, sub: Process, pub: Process):
    assert pub.publish("a", flags=Flag.CONFIRM).answers[0].payload == (0).to_bytes(4)
    sub.subscribe("#")
    net.process("other", queue_type="pubsub").subscribe("a")
    (confirm,) = pub.publish("a", flags=Flag.CONFIRM).answers
    assert confirm.kind is Kind.CONFIRM and confirm.payload == (2).to_bytes(4)
    assert net.router.pubsub.published == {"events": 2, "copies": 2}


def test_a_publisher_may_hear_itself(sub: Process):
    sub.subscribe("a")
    sub.publish("a", b"me")
    assert events(sub) == [b"me"]


def test_an_event_in_a_format_that_is_not_accepted_is_counted(net: Network, pub: Process):
    simple = net.process("simple", queue_type="pubsub", accepts=["json"])
    simple.subscribe("#")
    pub.publish("a", format=2)
    pub.publish("a", b"json")
    assert events(simple) == [b"json"]
    assert row(pub, "simple")["dropped"] == {"format not accepted": 1}


# --- the window ------------------------------------------------------------------------------


def test_no_more_is_sent_than_the_window_allows(sub: Process, pub: Process):
    sub.subscribe("#", window=3)
    for i in range(8):
        pub.publish("a", b"%d" % i)
    assert events(sub) == [b"0", b"1", b"2"]
    sub.taken(2)
    assert events(sub) == [b"3", b"4"]
    sub.taken(3)
    assert events(sub) == [b"5", b"6", b"7"]
    sub.taken(3)
    pub.publish("a", b"8")
    assert events(sub) == [b"8"]


def test_an_event_does_not_overtake_those_that_wait(net: Network, sub: Process, pub: Process):
    sub.subscribe("#", window=1)
    pub.publish("a", b"0")
    pub.publish("a", b"1")
    with net.together():
        sub.taken(1)
        pub.publish("a", b"2")
    assert events(sub) == [b"0", b"1"]
    sub.taken(1)
    assert events(sub) == [b"2"]


@pytest.mark.parametrize("count", [4, 2**32 - 1])
def test_more_cannot_be_taken_than_was_delivered(net: Network, sub: Process, pub: Process, count: int):
    sub.subscribe("#", window=3)
    for i in range(5):
        pub.publish("a", b"%d" % i)
    sub.taken(count)
    assert len(events(sub)) == 5
    for i in range(5):
        pub.publish("a", b"%d" % i)
    assert len(events(sub)) == 1  # two of the window of three are on their way from before


def test_taken_without_a_count_or_a_subscription_is_refused(net: Network, sub: Process):
    sub.taken(1)
    sub.subscribe("#")
    sub.send(Kind.EVENT_CREDIT, b"123")
    assert net.router.refused == {"length": 2}
    assert net.link(sub).counters["refused length"] == 2


@pytest.mark.parametrize("window", [0, -1, 65536, "1", None, 1.5, True])
def test_an_absurd_window_is_refused(net: Network, sub: Process, window: object):
    (error,) = sub.subscribe("a", window=window).answers  # type: ignore[arg-type]
    assert error.outcome is Outcome.PROTOCOL and "window" in error.body["text"]
    assert net.link(sub).patterns == {}


# --- slow subscribers ------------------------------------------------------------------------


def test_a_slow_subscriber_loses_its_oldest_events_and_is_told_how_many(make_net):
    net = make_net(pubsub_max_messages=3)
    pub, slow, fast = net.process("pub"), *(net.process(n, queue_type="pubsub") for n in ("slow", "fast"))
    slow.subscribe("#", window=2)
    fast.subscribe("#")
    for i in range(10):
        pub.publish("a", b"%d" % i)
    assert events(fast) == [b"%d" % i for i in range(10)], "others do not notice"
    assert events(slow) == [b"0", b"1"]
    assert row(pub, "slow")["dropped"] == {"slow subscriber": 5}
    assert row(pub, "slow")["slow"] is True and row(pub, "slow")["queued"] == 3
    slow.taken(2)
    assert [m.kind for m in slow.inbox[-3:]] == [Kind.LOST, Kind.PUBLISH, Kind.PUBLISH]
    assert slow.take(Kind.LOST).payload == (5).to_bytes(4)
    assert events(slow) == [b"7", b"8"], "the youngest were kept"
    slow.taken(2)
    assert events(slow) == [b"9"] and slow.got(Kind.LOST) == [], "told once"
    assert row(pub, "slow")["slow"] is False
    assert row(pub, "fast")["dropped"] == {}


def test_what_waits_for_a_subscriber_is_bounded_in_bytes(make_net):
    net = make_net(pubsub_max_bytes=3000)
    pub, sub = net.process("pub"), net.process("sub", queue_type="pubsub")
    sub.subscribe("#", window=1)
    for i in range(10):
        pub.publish("a", b"%d" % i * 900)
    sub.taken(1)
    assert sub.take(Kind.LOST).payload == (6).to_bytes(4)
    assert [m[:1] for m in events(sub)] == [b"0", b"7"]


def test_an_event_larger_than_the_bound_is_lost_alone(make_net):
    net = make_net(pubsub_max_bytes=3000)
    pub, sub = net.process("pub"), net.process("sub", queue_type="pubsub")
    sub.subscribe("#", window=1)
    pub.publish("a", b"first")
    pub.publish("a", b"x" * DETACH_BYTES)
    pub.publish("a", b"last")
    sub.taken(1)
    assert sub.take(Kind.LOST).payload == (1).to_bytes(4)
    assert events(sub) == [b"first", b"last"]


def test_a_subscriber_that_is_away_misses_nothing_within_its_bounds(net: Network, sub: Process, pub: Process):
    sub.subscribe("#", window=2)
    pub.publish("a", b"0")
    sub.cut_off()
    pub.publish("a", b"1")
    sub.lose()
    pub.publish("a", b"2")
    net.advance(5)
    sub.heal()
    sub.connect()
    assert events(sub) == [b"0", b"1"]
    sub.taken(2)
    assert events(sub) == [b"2"]


def test_an_unresponsive_subscriber_is_sent_nothing_more_until_it_answers(net: Network, sub: Process, pub: Process):
    sub.subscribe("#")
    sub.cut_off()
    net.advance(20)
    pub.publish("a", b"waits")
    assert len(net.link(sub).outbox) == 0 and row(pub, "sub")["queued"] == 1
    sub.heal()
    assert events(sub) == [b"waits"]


# --- leaving ---------------------------------------------------------------------------------


def test_after_unsubscribing_nothing_comes(net: Network, sub: Process, pub: Process):
    sub.subscribe("a", window=1)
    sub.subscribe("b")
    pub.publish("a", b"0")
    pub.publish("a", b"waits")
    assert [m.kind for m in sub.unsubscribe("a").answers] == [Kind.SUBSCRIBED]
    pub.publish("a", b"not any more")
    sub.unsubscribe("b")
    sub.taken(1)
    assert events(sub) == [b"0"]
    assert net.router.refused == {}


def test_subscribing_twice_is_subscribing_once(net: Network, sub: Process, pub: Process):
    sub.subscribe("a")
    sub.subscribe("a")
    pub.publish("a", b"once")
    assert events(sub) == [b"once"]
    sub.unsubscribe("a")
    pub.publish("a", b"never")
    assert events(sub) == []


def test_unsubscribing_what_was_not_subscribed_is_answered(net: Network, sub: Process):
    assert [m.kind for m in sub.unsubscribe("a").answers] == [Kind.SUBSCRIBED]
    assert net.router.refused == {}


@pytest.mark.parametrize("how", ["unsubscribe", "stop", "die"])
def test_who_leaves_leaves_nothing(net: Network, sub: Process, pub: Process, how: str):
    for i in range(50):
        sub.subscribe(f"a.{i}.#", exchange=f"x{i % 3}", window=1)
        pub.publish(f"a.{i}.b", exchange=f"x{i % 3}")
    if how == "unsubscribe":
        for i in range(50):
            sub.unsubscribe(f"a.{i}.#", exchange=f"x{i % 3}")
        assert net.router.pubsub._tries == {} and net.link(sub).patterns == {}
        how = "stop"
    getattr(sub, how)()
    pub.stop()
    net.advance(60)
    assert left_behind(net.router) == {}


def test_a_restarted_subscriber_starts_with_nothing(net: Network, sub: Process, pub: Process):
    sub.subscribe("#")
    sub.die()
    sub = net.process("sub", queue_type="pubsub")
    pub.publish("a", b"0")
    assert events(sub) == []


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["a..b", ".a", "a.", "#." * 40 + "a"])
def test_an_absurd_pattern_is_refused_and_leaves_nothing(net: Network, sub: Process, pattern: str):
    (error,) = sub.subscribe(pattern).answers
    assert error.outcome is Outcome.PROTOCOL
    assert net.router.pubsub._tries == {} and net.link(sub).patterns == {}


def test_an_absurd_topic_is_refused(net: Network, sub: Process, pub: Process):
    sub.subscribe("#")
    (error,) = pub.publish("a..b").answers
    assert error.outcome is Outcome.PROTOCOL
    assert events(sub) == []


def test_patterns_are_bounded(make_net):
    net = make_net(pubsub_max_patterns=3)
    sub = net.process("sub", queue_type="pubsub")
    answers = [sub.subscribe(f"p{i}").answers[0] for i in range(5)]
    assert [a.kind for a in answers] == [Kind.SUBSCRIBED] * 3 + [Kind.ERROR] * 2
    assert answers[3].body["text"] == "3 patterns are subscribed to; pubsub.max_patterns = 3"
    assert net.router.refused == {"patterns": 2}
    # One that it has already is no further one.
    assert sub.subscribe("p1").answers[0].kind is Kind.SUBSCRIBED


def test_what_the_patterns_of_one_subscriber_can_cost_is_bounded(make_net):
    net = make_net(pubsub_max_pattern_states=139)
    sub = net.process("sub", queue_type="pubsub")
    for pattern in ("#.error", "#.a.#", "a.*", "#.error"):
        assert sub.subscribe(pattern).answers[0].kind is Kind.SUBSCRIBED, pattern
    (answer,) = sub.subscribe("a.*.c").answers
    assert answer.outcome is Outcome.PROTOCOL
    text = answer.body["text"]
    assert "'a.*.c' can add 2 states" in text and "3 patterns subscribed to 138 already" in text
    assert "pubsub.max_pattern_states = 139" in text
    # Patterns without wildcards, or of others, are not concerned; and what is given up makes room.
    assert sub.subscribe("a.b.c.d.e").answers[0].kind is Kind.SUBSCRIBED
    assert net.process("other", queue_type="pubsub").subscribe("#.b").answers[0].kind is Kind.SUBSCRIBED
    sub.unsubscribe("a.*")
    assert sub.subscribe("a.*.c").answers[0].kind is Kind.SUBSCRIBED
    assert net.link(sub).window.states == 139


def test_nobody_publishes_in_anothers_name(net: Network, sub: Process, pub: Process):
    sub.subscribe("#")
    mallory = net.process("mallory")
    mallory.publish("a", b"forged", key=pub.uplink.next_key())
    assert events(sub) == [] and net.router.refused == {"origin": 1}
