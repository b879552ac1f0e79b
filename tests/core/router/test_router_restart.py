"""After a restart of the router: casts that are sent again are held, recognised, and kept in order."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rpcmq.core.router.link_states import LinkState
from rpcmq.server.leftovers import leftovers, under_way
from rpcmq.testing.network import Call, Message, Network, Process
from rpcmq.wire import Flag, Kind, with_flag
from tests.core.router.tables import left_behind


@pytest.fixture
def net(make_net) -> Network:
    made: Network = make_net(recovery_seconds=1.0)
    made.advance(2)
    return made


def resend_all(process: Process) -> None:
    """As a client does after a WELCOME that knows nothing of it."""
    assert not process.welcomes[-1].resumed and process.welcomes[-1].same_handle
    for message in process.welcomes[-1].sent:
        process.uplink.send(with_flag(message, Flag.RESENT))
    for message in process.welcomes[-1].unsent:
        process.uplink.send(message)


def recent(messages: Iterable[Message | Call]) -> str:
    return b"".join(m.key for m in messages).hex()


def payloads(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.CAST)]


def test_the_handle_survives_so_that_keys_stay_what_they_were(net: Network):
    api = net.process("api")
    before = net.link(api).handle
    net.restart_router()
    api.connect()
    assert net.link(api).handle == before
    assert api.welcome.boot == net.router.boot


def test_casts_sent_again_are_held_until_the_recovery_window_is_over(net: Network):
    api, node = net.process("api"), net.process("node")
    for i in range(3):
        api.cast("compute", payload=b"%d" % i)
    net.restart_router()
    api.connect()
    node.connect()
    node.register("compute", credit=10)
    resend_all(api)
    net.run()
    net.advance(0.9)
    assert payloads(node) == []
    net.advance(0.2)
    assert payloads(node) == [b"0", b"1", b"2"]


def test_what_was_held_is_not_given_to_one_that_is_found_silent_at_the_same_time(net: Network):
    api, node = net.process("api"), net.process("node")
    api.cast("compute")
    net.restart_router()
    api.connect()
    node.connect()
    node.register("compute")
    resend_all(api)
    net.run()
    net.router.tick(net.now + net.settings.unresponsive_seconds + 1)
    link = net.link(node)
    assert link.state is LinkState.UNRESPONSIVE
    assert Kind.CAST not in [message[5] for message in link.outbox]
    assert sum(1 for _ in net.router.dispatch.unsettled()) == 1


def test_what_one_had_that_is_given_up_is_not_given_to_one_that_is_found_silent_at_the_same_time(make_net):
    net = make_net(consumer_grace_seconds=100.0)
    api, first, second = net.process("api"), net.process("first"), net.process("second")
    first.register("compute")
    api.request("compute", flags=Flag.IDEMPOTENT, ttl=90)
    first.lose()
    second.register("compute")
    net.router.tick(net.now + net.settings.resume_seconds + 1)
    link = net.link(second)
    assert link.state is LinkState.UNRESPONSIVE
    assert Kind.REQUEST not in [message[5] for message in link.outbox]


def test_casts_that_a_consumer_had_are_dropped_and_the_others_delivered(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=2)
    casts = [api.cast("compute", payload=b"%d" % i) for i in range(4)]
    had = node.got(Kind.CAST)
    assert [m.payload for m in had] == [b"0", b"1"]
    net.restart_router()
    api.connect()
    resend_all(api)
    net.run()
    node.connect()
    node.register("compute", credit=10, recent=recent(had))
    net.advance(1.1)
    assert payloads(node) == [b"2", b"3"]
    assert net.router.dispatch.requests.counters["duplicate casts dropped"] == 2
    assert [c.answers for c in casts] == [[]] * 4


def test_a_dropped_duplicate_that_was_to_be_confirmed_is_confirmed(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    cast = api.cast("compute", flags=Flag.CONFIRM)
    had = node.take(Kind.CAST)
    net.restart_router()
    api.connect()
    resend_all(api)
    node.connect()
    node.register("compute", recent=recent([had]))
    net.advance(1.1)
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM, Kind.CONFIRM]
    assert payloads(node) == []


def test_new_casts_stay_behind_those_that_are_held(net: Network):
    api, other, node = net.process("api"), net.process("other"), net.process("node")
    api.cast("compute", payload=b"old")
    net.restart_router()
    for process in (api, other, node):
        process.connect()
    node.register("compute", credit=10)
    resend_all(api)
    api.cast("compute", payload=b"new")
    other.cast("compute", payload=b"not held: its sender has nothing to send again")
    assert payloads(node) == [b"not held: its sender has nothing to send again"]
    net.advance(1.1)
    assert payloads(node) == [b"old", b"new"]


def test_a_cast_that_comes_as_the_window_closes_does_not_overtake(net: Network):
    """The window is over, but the router has not been called since: what it holds still comes first."""
    api, node = net.process("api"), net.process("node")
    api.cast("compute", payload=b"old")
    net.restart_router()
    api.connect()
    node.connect()
    node.register("compute", credit=10)
    resend_all(api)
    net.run()
    net.now += 1.001
    api.cast("compute", payload=b"new")
    net.advance(0.1)
    assert payloads(node) == [b"old", b"new"]


def test_casts_sent_again_after_the_window_are_recognised_too(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=2)
    api.cast("compute", payload=b"had")
    had = node.got(Kind.CAST)
    api.cut_off()
    api.cast("compute", payload=b"lost with the router")
    net.restart_router()
    api.heal()
    node.connect()
    node.register("compute", credit=10, recent=recent(had))
    net.advance(5)
    api.connect()
    resend_all(api)
    net.run()
    assert payloads(node) == [b"lost with the router"]


def test_what_consumers_report_does_not_stay_for_ever(net: Network):
    node = net.process("node")
    node.register("compute", recent=b"k".hex() * 20 * 100)
    net.advance(net.settings.mailbox_max_seconds + 100)
    node.register("network", recent=bytes(20 * 100).hex())
    node.stop()
    net.advance(net.settings.mailbox_max_seconds + 100)
    assert left_behind(net.router) == {}


def test_what_consumers_report_is_bounded_however_often_they_register(net: Network):
    """Only casts of the router's previous life matter, so what is reported later need not be kept."""
    node = net.process("node")
    for number in range(200):
        keys = b"".join((100 * number + i).to_bytes(20) for i in range(100))
        node.unregister(node.register("compute", recent=keys.hex(), tag=number))
        net.advance(net.settings.mailbox_max_seconds / 10)
    assert sum(map(len, net.router.dispatch.recovery._delivered_before.values())) <= 100 * 30


def test_who_claims_casts_of_a_topic_that_he_does_not_consume_has_no_effect(net: Network):
    api, node, other = net.process("api"), net.process("node"), net.process("other")
    api.cast("compute", payload=b"0")
    sent = api.uplink.next_key()[:12] + (1).to_bytes(8)
    net.restart_router()
    for process in (api, node, other):
        process.connect()
    other.register("mine", recent=sent.hex())
    node.register("compute", credit=10)
    resend_all(api)
    net.advance(5)
    assert [m.key for m in node.got(Kind.CAST)] == [sent]


def test_one_registration_claims_so_many_casts_at_most(net: Network):
    node = net.process("node")
    node.register("compute", recent=bytes(20 * 10_001).hex())
    assert not net.router.dispatch.recovery._delivered_before and net.router.refused["length"] == 1


def test_claims_of_all_are_bounded(net: Network, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rpcmq.core.router.roundrobin.restart_recovery._MAX_RECENT_OF_ALL", 100)
    node = net.process("node")
    for number in range(5):
        keys = b"".join((100 * number + i).to_bytes(20) for i in range(100))
        node.register(f"topic-{number}", recent=keys.hex())
    assert sum(map(len, net.router.dispatch.recovery._delivered_before.values())) == 100
    assert net.router.dispatch.requests.counters["recent casts beyond the limit"] == 400


def test_nothing_is_held_for_a_caller_that_leaves(net: Network):
    api = net.process("api")
    api.cast("compute")
    net.restart_router()
    api.connect()
    resend_all(api)
    net.run()
    api.stop()
    net.advance(100)
    assert left_behind(net.router) == {}


def test_held_casts_outlive_their_sender(net: Network):
    api, node = net.process("api"), net.process("node")
    api.cast("compute", payload=b"farewell")
    net.restart_router()
    api.connect()
    resend_all(api)
    net.run()
    api.stop()
    node.connect()
    node.register("compute")
    net.advance(2)
    assert payloads(node) == [b"farewell"]


def test_what_a_full_queue_refused_is_not_held_when_it_is_offered_again(make_net):
    """RESENT alone does not mean that an earlier life of the router may have had it."""
    net = make_net(recovery_seconds=10.0, queue_max_messages=1)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1)
    casts = [api.cast("compute", payload=b"%d" % i) for i in range(3)]
    assert [m.kind for m in casts[2].answers] == [Kind.ERROR]
    for _ in range(2):
        node.settle(node.take(Kind.CAST))
    api.cast("compute", payload=b"2", key=casts[2].key, flags=Flag.RESENT)
    assert payloads(node) == [b"2"]


def test_topics_may_have_become_too_many_while_casts_were_held(make_net):
    """Held casts are looked at again at the end of the window; nothing may come of it but an error."""
    net = make_net(recovery_seconds=10.0, unclaimed_seconds=1.0, max_unclaimed_topics=1)
    api, other = net.process("api"), net.process("other")
    net.restart_router()
    for process in (api, other):
        process.connect()
    held = api.cast("compute", flags=Flag.RESENT)
    net.advance(9.9)  # by now the topic has been forgotten
    other.cast("else")
    net.advance(0.2)
    assert [m.kind for m in held.answers] == [Kind.ERROR]
    assert net.router.refused == {"too many topics": 1}


def test_recent_that_is_no_list_of_keys_is_refused(net: Network):
    node = net.process("node")
    for bad in ("xyz", "00" * 19, 7, ["00" * 20]):
        node.register("compute", recent=bad)
    assert len(node.got(Kind.ERROR)) == 4
    assert net.router.refused == {"body": 3, "length": 1}


def test_calls_are_not_held(net: Network):
    api, node = net.process("api"), net.process("node")
    net.restart_router()
    api.connect()
    node.connect()
    node.register("compute")
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST), b"at once")
    assert call.end.payload == b"at once"


def test_what_waits_behind_a_refused_cast_may_go_on_though_a_consumer_had_that_one(make_net):
    net: Network = make_net(queue_max_messages=1)
    api, other, node = net.process("api"), net.process("other"), net.process("node")
    node.register("compute", credit=10)
    had = api.cast("compute", payload=b"had")
    assert payloads(node) == [b"had"]
    net.restart_router()
    for process in (other, api):
        process.connect()
    other.cast("compute", payload=b"fills the queue")
    resend_all(api)
    net.run()
    assert had.end.body["details"]["limit"] == "queue.max_messages"
    node.connect()
    node.register("compute", credit=10, recent=recent([had]))
    # Offered again, it is recognised; what comes after it is not held up for ever.
    api.uplink.send(with_flag(api.welcomes[-1].sent[0], Flag.RESENT))
    later = api.cast("compute", payload=b"later")
    assert later.ends == []
    assert payloads(node) == [b"fills the queue", b"later"]
    assert net.router.dispatch.requests.counters["duplicate casts dropped"] == 1


# --- events -----------------------------------------------------------------------------------


def events_of(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.PUBLISH)]


@pytest.fixture
def subscribed(net: Network) -> tuple[Process, Process]:
    publisher, subscriber = (net.process(name, "pubsub") for name in ("publisher", "subscriber"))
    subscriber.subscribe("a.#")
    return publisher, subscriber


def test_events_wait_for_subscribers_to_come_back(net: Network, subscribed: tuple[Process, Process]):
    publisher, subscriber = subscribed
    publisher.publish("a.b", b"before")
    net.restart_router()
    publisher.publish("a.b", b"down")
    publisher.connect()
    resend_all(publisher)
    confirmed = publisher.publish("a.b", b"up", flags=Flag.CONFIRM)
    new = net.process("new", "pubsub")
    new.publish("a.c", b"new")
    net.advance(0.9)
    assert confirmed.answers == []
    subscriber.connect()
    subscriber.subscribe("a.#")
    subscriber.got()
    publisher.publish("a.b", b"later")
    net.advance(0.2)
    assert events_of(subscriber) == [b"before", b"down", b"up", b"new", b"later"]
    assert [m.payload for m in confirmed.answers] == [(1).to_bytes(4)]
    assert net.router.pubsub.held == 0
    publisher.publish("a.b", b"at once")
    assert events_of(subscriber) == [b"at once"]


def test_an_event_that_cannot_be_passed_on_is_refused_and_not_held(net: Network, subscribed: tuple[Process, Process]):
    publisher, subscriber = subscribed
    net.restart_router()
    publisher.connect()
    (error,) = publisher.publish("a..b", b"malformed").answers
    assert error.kind is Kind.ERROR and net.router.refused == {"bad_topic": 1} and net.router.pubsub.held == 0
    publisher.publish("a.b", b"well-formed")
    subscriber.connect()
    subscriber.subscribe("a.#")
    net.advance(2.0)
    assert events_of(subscriber) == [b"well-formed"]


def test_events_do_not_wait_where_nobody_was_there_before(make_net):
    net = make_net(recovery_seconds=100.0)
    publisher, subscriber = (net.process(name, "pubsub") for name in ("publisher", "subscriber"))
    subscriber.subscribe("a")
    publisher.publish("a", b"1")
    assert events_of(subscriber) == [b"1"]


def test_events_that_wait_are_bounded_in_bytes_and_what_is_not_held_is_counted(make_net):
    net = make_net(recovery_seconds=1.0, pubsub_max_bytes=5_000)
    net.advance(2.0)
    publisher, early, late = (net.process(name, "pubsub") for name in ("publisher", "early", "late"))
    net.restart_router()
    for process in (publisher, early):
        process.connect()
    early.subscribe("a")
    for n in range(10):
        publisher.publish("a", bytes([n]) * 860)
    assert net.router.pubsub.held == 4
    assert net.router.pubsub.published["released early"] == 6
    late.connect()
    late.subscribe("a")
    net.advance(2.0)
    assert [payload[0] for payload in events_of(early)] == list(range(10))
    assert [payload[0] for payload in events_of(late)] == [6, 7, 8, 9]


def test_what_was_held_is_passed_on_in_turns_and_in_order(make_net):
    net = make_net(recovery_seconds=1.0)
    publisher, subscribers = net.process("publisher", "pubsub"), [net.process(f"s{n}", "pubsub") for n in range(40)]
    net.restart_router()
    publisher.connect()
    for subscriber in subscribers:
        subscriber.connect()
        subscriber.subscribe("#")
    for n in range(400):
        publisher.publish("a", n.to_bytes(2))
    assert net.router.pubsub.held == 400
    net.now += 1.0
    net.router.tick(net.now)
    assert 0 < net.router.pubsub.held < 400, "others have their turn in between"
    publisher.publish("a", (400).to_bytes(2))
    net.advance(1.0)
    for subscriber in subscribers:
        assert events_of(subscriber) == [n.to_bytes(2) for n in range(401)]


def test_a_drain_waits_until_held_events_are_passed_on(net: Network, subscribed: tuple[Process, Process]):
    publisher, _ = subscribed
    net.restart_router()
    publisher.connect()
    publisher.publish("a.b", b"1")
    assert under_way(net.router) and leftovers(net.router).totals()["events"] == 1
    net.advance(1.5)
    assert not under_way(net.router)
