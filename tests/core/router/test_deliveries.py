"""One request given to several consumers: the first answer counts, and no consumer that goes ends it for the others."""

from __future__ import annotations

import pytest

from rpcmq.core.router.model import Delivery, Request
from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Kind


@pytest.fixture
def nodes(net: Network) -> list[Process]:
    nodes = [net.process(f"node-{number}") for number in range(3)]
    for node in nodes:
        node.register("compute")
    return nodes


def request_to_all(net: Network, nodes: list[Process]) -> Call:
    """A call that each of ``nodes`` has."""
    api = net.process("api")
    call = api.request("compute", ttl=30)
    (request,) = net.link(api).calls.values()
    for node in nodes:
        (consumer,) = net.link(node).consumers.values()
        if call.key not in consumer.in_flight:
            assert net.router.dispatch.deliveries.deliver(net.now, request, consumer)
    net.run()
    check_router(net.router)
    return call


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_answer_counts_and_the_others_are_withdrawn(net: Network, nodes: list[Process], first: int):
    call = request_to_all(net, nodes)
    had = [node.take(Kind.REQUEST) for node in nodes]
    nodes[first].reply(had[first], b"mine")
    assert (call.end.kind, call.end.payload, net.router.in_flight) == (Kind.REPLY, b"mine", 0)
    check_router(net.router)
    for number, node in enumerate(nodes):
        assert bool(node.got(Kind.CANCEL)) == (number != first)
    for number, node in enumerate(nodes):
        if number != first:
            node.reply(had[number], b"late")
    assert len(call.ends) == 1
    assert net.router.dispatch.requests.counters["late replies"] == 2
    assert not any(c.in_flight for node in nodes for c in net.link(node).consumers.values())


@pytest.mark.parametrize("gone", [(0, 1), (1, 2), (2, 0)])
def test_a_consumer_that_goes_leaves_the_request_with_the_others(
    net: Network, nodes: list[Process], gone: tuple[int, int]
):
    call = request_to_all(net, nodes)
    for number in gone:
        nodes[number].uplink.close()
        net.run()
        check_router(net.router)
    (left,) = {0, 1, 2} - set(gone)
    assert not call.answers
    nodes[left].reply(nodes[left].take(Kind.REQUEST), b"still here")
    assert call.end.payload == b"still here"


def test_the_last_consumer_that_goes_ends_it(net: Network, nodes: list[Process]):
    call = request_to_all(net, nodes)
    for node in nodes:
        node.uplink.close()
        net.run()
    assert (call.end.kind, call.end.outcome, len(call.ends)) == (Kind.ERROR, Outcome.LINK_LOST, 1)
    check_router(net.router)


def test_a_deadline_withdraws_all(net: Network, nodes: list[Process]):
    call = request_to_all(net, nodes)
    net.advance(31)
    assert call.end.outcome is Outcome.TIMEOUT
    assert all(node.got(Kind.CANCEL) for node in nodes)


def test_what_is_taken_back_leaves_the_others_in_their_order():
    request = Request()
    request.delivery = None
    made = []
    for _ in range(4):
        delivery = Delivery()
        delivery.earlier = request.delivery
        request.delivery = delivery
        made.append(delivery)
    request.take_back(made[1])
    assert list(request.deliveries()) == [made[3], made[2], made[0]]
    request.take_back(made[3])
    request.take_back(made[0])
    assert list(request.deliveries()) == [made[2]]
    request.take_back(made[2])
    assert not list(request.deliveries())
