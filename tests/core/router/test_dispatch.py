"""Selection of consumers: least in flight, round robin among equals, credit, the invariants."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rpcmq.core.router.least_busy import LeastBusy
from rpcmq.core.router.model import Consumer
from rpcmq.testing.network import Message, Network, Process
from rpcmq.wire import Flag, Kind


def nodes(net: Network, number: int, topic: str = "compute", server: str = "", credit: int = 100) -> list[Process]:
    made = [net.process(f"node-{i}") for i in range(number)]
    for node in made:
        node.register(topic, server=server, credit=credit)
    return made


def loads(processes: list[Process]) -> list[int]:
    return [len([m for m in p.inbox if m.kind is Kind.REQUEST]) for p in processes]


@pytest.mark.parametrize("server", ["", "shared"])
def test_work_in_flight_is_spread_evenly(net: Network, api: Process, server: str):
    consumers = nodes(net, 4, server=server)
    for _ in range(40):
        api.request("compute", server=server)
    assert loads(consumers) == [10, 10, 10, 10]


@pytest.mark.parametrize("server", ["", "shared"])
def test_the_one_with_the_least_in_flight_is_next(net: Network, api: Process, server: str):
    a, b, c = nodes(net, 3, server=server)
    for _ in range(6):
        api.request("compute", server=server)
    for request in b.got(Kind.REQUEST):
        b.reply(request)
    for process in (a, c):
        process.got()
    api.request("compute", server=server)
    api.request("compute", server=server)
    assert loads([a, b, c]) == [0, 2, 0]


@pytest.mark.parametrize("server", ["", "shared"])
def test_equals_take_turns(net: Network, api: Process, server: str):
    """One call at a time: all are idle each time, and yet each gets its share."""
    consumers = nodes(net, 3, server=server)
    served: list[str] = []
    for _ in range(9):
        api.request("compute", server=server)
        (node,) = (n for n in consumers if loads([n]) == [1])
        node.reply(node.take(Kind.REQUEST))
        served.append(node.identity)
    assert Counter(served) == {"node-0": 3, "node-1": 3, "node-2": 3}


def test_casts_and_calls_share_the_same_credit(net: Network, api: Process):
    (node,) = nodes(net, 1, credit=2)
    api.cast("compute")
    api.request("compute")
    api.cast("compute")
    assert len(node.got(Kind.CAST, Kind.REQUEST)) == 2


def test_credit_is_never_exceeded(net: Network, api: Process):
    consumers = nodes(net, 3, credit=2)
    calls = [api.request("compute") for _ in range(20)]
    assert loads(consumers) == [2, 2, 2]
    for i in range(20):
        consumers[i % 3].reply(consumers[i % 3].take(Kind.REQUEST))
        assert max(loads(consumers)) <= 2
    assert [len(c.ends) for c in calls] == [1] * 20


def test_a_consumer_on_shared_and_own_topic_takes_the_oldest_of_both_first(net: Network, api: Process):
    (node,) = nodes(net, 1, server="s", credit=1)
    for i in range(6):
        api.cast("compute", server="s" if i % 2 else "", payload=b"%d" % i)
    seen = []
    while casts := node.got(Kind.CAST):
        seen += [m.payload for m in casts]
        node.settle(*casts)
    assert seen == [b"%d" % i for i in range(6)]


def test_the_registrations_of_a_process_have_credit_of_their_own(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", credit=1)
    node.register("network", credit=1)
    for topic in ("compute", "network"):
        api.request(topic)
        api.request(topic)
    requests = node.got(Kind.REQUEST)
    assert [str(m.address) for m in requests] == ["compute", "network"]
    assert [m.header.consumer for m in requests] == [0, 1]


def test_a_new_consumer_gets_at_once_what_waits(net: Network, api: Process):
    for i in range(5):
        api.request("compute", payload=b"%d" % i)
    (node,) = nodes(net, 1, credit=3)
    assert [m.payload for m in node.got(Kind.REQUEST)] == [b"0", b"1", b"2"]


def test_what_waits_goes_first(net: Network, api: Process):
    """A new message does not overtake those that wait, whoever sent it."""
    (node,) = nodes(net, 1, credit=1)
    api.request("compute", payload=b"0")
    api.request("compute", payload=b"1")
    other = net.process("other")
    with net.together():
        node.reply(node.take(Kind.REQUEST))
        other.request("compute", payload=b"2")
    assert [m.payload for m in node.got(Kind.REQUEST)] == [b"1"]


def test_a_request_passes_unchanged_where_nothing_has_to_be_said(net: Network, api: Process):
    (node,) = nodes(net, 1)
    sent = api.request("compute", "reboot", b"payload", ttl=5, trace=b"trace", flags=Flag.STREAM, hops=1)
    assert node.take(Kind.REQUEST).message == next(m for m in api.uplink.sent if m[16:36] == sent.key)


def test_everything_in_random_order_keeps_the_invariants(net: Network, api: Process):
    rng = random.Random(7)
    other = net.process("other")
    consumers = [*nodes(net, 3, credit=2), net.process("late")]
    held: list[tuple[Process, Message]] = []
    for step in range(1500):
        what = rng.random()
        if step == 500:
            consumers[-1].register("compute", credit=1)
        elif what < 0.5:
            caller = rng.choice((api, other))
            flags = rng.choice((0, Flag.IDEMPOTENT, Flag.MANDATORY))
            rng.choice((caller.request, caller.cast))("compute", ttl=rng.choice((None, 1, 5)), flags=flags)
        elif what < 0.85 and held:
            node, message = held.pop(rng.randrange(len(held)))
            if message.kind is Kind.CAST:
                node.settle(message)
            else:
                rng.choice((node.reply, node.fault, node.end))(message)
        elif what < 0.9:
            net.advance(rng.random())
        elif what < 0.93:
            api.cast("compute", flags=Flag.FANOUT)
        elif what < 0.94:
            node = rng.choice(consumers)
            node.lose()
            net.advance(rng.choice((0.1, 1.0)))
            node.connect()
        for node in consumers:
            held += [(node, m) for m in node.got(Kind.REQUEST, Kind.CAST)]
        net.router.dispatch.check()


# --- LeastBusy ---------------------------------------------------------------------------


class FakeConsumer:
    """A consumer as LeastBusy reads it, and its own link."""

    def __init__(self) -> None:
        self.in_flight: list[int] = []
        self.credit = 5
        self.occupied = 0
        self.is_responsive = True
        self.stopping = False
        self.level = -1

    @property
    def link(self) -> FakeConsumer:
        return self

    @property
    def ready(self) -> bool:
        return self.is_responsive and len(self.in_flight) < self.credit


def test_least_in_flight_against_the_obvious():
    """The level structure picks what a search through all would pick."""
    rng = random.Random(1)
    table: LeastBusy[FakeConsumer] = LeastBusy()
    consumers: list[FakeConsumer] = [FakeConsumer() for _ in range(8)]

    def place(consumer: FakeConsumer) -> None:
        table.place(consumer)

    for _ in range(3000):
        consumer = rng.choice(consumers)
        what = rng.random()
        if what < 0.45:
            picked: Consumer | FakeConsumer | None = table.pick()
            ready = [c for c in consumers if c.ready and c.level != -1]
            if not ready:
                assert picked is None
                continue
            assert isinstance(picked, FakeConsumer)
            assert len(picked.in_flight) == min(len(c.in_flight) for c in ready)
            picked.in_flight.append(1)
            consumer = picked
        elif what < 0.9:
            consumer.in_flight[:1] = []
        else:
            consumer.is_responsive = not consumer.is_responsive
        place(consumer)
        table.check()
    assert (table.pick() is not None) == any(c.ready and c.level != -1 for c in consumers)
