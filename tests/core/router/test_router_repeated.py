"""A sequence that a peer uses twice is refused: it takes nobody's place, and no credit or bound is got around by it."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router
from rpcmq.testing.network import Call, Message, Network, Process
from rpcmq.wire import Address, Flag, Kind, pack

COMPUTE = Address("compute").encode()


@pytest.fixture
def mallory(net: Network) -> Process:
    return net.process("mallory")


@pytest.fixture
def node(net: Network) -> Process:
    """A consumer with a credit of 2 that settles nothing."""
    node = net.process("node")
    node.register("compute", credit=2)
    return node


def send(net: Network, mallory: Process, kind: Kind, key: bytes, flags: int = 0, topic: str = "compute") -> Call:
    address = b"" if kind == Kind.CANCEL else Address(topic).encode()
    mallory.uplink.send(pack(kind, b"x", key=key, format=1, flags=flags, address=address, ttl=60_000))
    net.run()
    return Call(mallory, key)


def deliveries(node: Process) -> list[Message]:
    return [m for m in node.received if m.kind in (Kind.CAST, Kind.REQUEST)]


def delivered(node: Process) -> int:
    return len(deliveries(node))


def test_casts_with_one_sequence_do_not_get_around_credit(net: Network, mallory: Process, node: Process):
    key = mallory.uplink.next_key()
    for _ in range(500):
        send(net, mallory, Kind.CAST, key)
    assert delivered(node) == 1
    assert net.router.refused["duplicate"] == 499 and net.link(mallory).counters["refused duplicate"] == 499
    assert {m.outcome for m in mallory.got(Kind.ERROR)} == {Outcome.PROTOCOL}
    check_router(net.router)
    node.settle(*deliveries(node))
    send(net, mallory, Kind.CAST, mallory.uplink.next_key())
    assert delivered(node) == 2


def test_casts_with_one_sequence_wait_only_once(net: Network, mallory: Process):
    key = mallory.uplink.next_key()
    for _ in range(50):
        send(net, mallory, Kind.CAST, key)
    (topic,) = net.router.directory
    assert len(topic.queue) == 1
    assert net.router.refused["duplicate"] == 49
    node = net.process("node")
    node.register("compute", credit=100)
    assert delivered(node) == 1
    check_router(net.router)


def test_request_and_cancel_with_one_sequence_do_not_get_around_credit(net: Network, mallory: Process, node: Process):
    key = mallory.uplink.next_key()
    for _ in range(500):
        send(net, mallory, Kind.REQUEST, key)
        send(net, mallory, Kind.CANCEL, key)
    assert delivered(node) == 1 and len(node.got(Kind.CANCEL)) == 1
    assert net.router.refused["duplicate"] == 499
    assert net.link(mallory).calls == {} and net.router.in_flight == 0
    check_router(net.router)
    (request,) = deliveries(node)
    node.reply(request)
    assert not any(c.in_flight for c in net.link(node).consumers.values())


def test_a_call_with_the_sequence_of_a_cast_in_flight(net: Network, mallory: Process, node: Process):
    key = mallory.uplink.next_key()
    send(net, mallory, Kind.CAST, key)
    call = send(net, mallory, Kind.REQUEST, key)
    assert call.end.outcome is Outcome.PROTOCOL
    assert delivered(node) == 1
    node.settle(*deliveries(node))
    assert net.router.dispatch.requests.counters["settlement of an unknown cast"] == 0


def test_a_cast_with_the_sequence_of_a_call_that_waits(net: Network, mallory: Process):
    key = mallory.uplink.next_key()
    call = send(net, mallory, Kind.REQUEST, key)
    send(net, mallory, Kind.CAST, key)
    assert net.router.refused["duplicate"] == 1
    node = net.process("node")
    node.register("compute", credit=5)
    assert delivered(node) == 1
    node.reply(deliveries(node)[0], b"done")
    assert [m.payload for m in call.answers if m.kind is Kind.REPLY] == [b"done"]


def test_a_fanout_with_one_sequence(net: Network, mallory: Process, node: Process):
    other = net.process("other")
    other.register("compute", credit=1)
    key = mallory.uplink.next_key()
    for _ in range(100):
        send(net, mallory, Kind.CAST, key, Flag.FANOUT)
    assert delivered(node) == delivered(other) == 1
    assert net.router.refused["duplicate"] == 99
    check_router(net.router)


def test_a_group_gets_a_repeated_cast_once(net: Network, mallory: Process, node: Process):
    audit = net.process("audit")
    audit.register("compute", credit=1, group="audit")
    key = mallory.uplink.next_key()
    for _ in range(100):
        send(net, mallory, Kind.CAST, key)
    assert delivered(node) == delivered(audit) == 1
    check_router(net.router)


def test_one_sequence_in_two_queues_of_a_consumer(net: Network, mallory: Process):
    key = mallory.uplink.next_key()
    send(net, mallory, Kind.CAST, key)
    mallory.uplink.send(pack(Kind.CAST, b"x", key=key, format=1, address=Address("compute", "s").encode()))
    net.run()
    node = net.process("node")
    node.register("compute", server="s", credit=5)
    assert delivered(node) == 1
    check_router(net.router)
    node.settle(*deliveries(node))
    assert not any(c.in_flight for c in net.link(node).consumers.values())


def test_a_cast_that_is_offered_again_while_the_first_is_in_flight_is_confirmed_and_runs_once(
    net: Network, mallory: Process, node: Process
):
    """After a link has started over its process can't know whether the router had it."""
    key = mallory.uplink.next_key()
    send(net, mallory, Kind.CAST, key, Flag.CONFIRM)
    call = send(net, mallory, Kind.CAST, key, Flag.CONFIRM | Flag.RESENT)
    assert [m.kind for m in call.answers] == [Kind.CONFIRM, Kind.CONFIRM]
    assert delivered(node) == 1
    assert net.router.refused == {} and net.router.dispatch.requests.counters["duplicate casts dropped"] == 1


def test_a_caller_that_comes_back_may_ask_again_while_the_consumer_still_has_the_first(net: Network, node: Process):
    """Its link had ended, so the first was cancelled; what is still said of that is not about the second."""
    api = net.process("api")
    key = api.uplink.next_key()
    send(net, api, Kind.REQUEST, key)
    api.lose()
    net.advance(60)
    api.connect()
    assert not api.welcomes[-1].resumed
    call = send(net, api, Kind.REQUEST, key)
    first, second = deliveries(node)
    assert second.key == first.key == call.key and second.header.attempt != first.header.attempt
    node.reply(first, b"cancelled")
    assert not call.ends
    node.reply(second, b"done")
    assert call.end.payload == b"done"
    assert net.router.refused == {}
    check_router(net.router)
