"""Calls that several consumers may have, some of them at other routers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rpcmq.core.router.model import Delivery, Request
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.views import overview
from rpcmq.errors import Outcome
from rpcmq.log_format import MessageKind
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import Call, MeshNetwork, Process
from rpcmq.wire import KIND_AT, Flag, Kind, flags_of
from rpcmq.wire.hedge import HedgeTerms


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0, hedge_unbounded=("compute",), hedge_sample=0.0))
    made.advance(2.0)
    return made


def serve(net: MeshNetwork, *routers: str, credit: int = 2) -> list[Process]:
    nodes = [net.process(f"node-{router}{number}", router=router) for number, router in enumerate(routers)]
    for node in nodes:
        node.register("compute", credit=credit)
    net.advance(1.0)
    return nodes


def ask(net: MeshNetwork, api: Process, consumers: int = 2, delay: float = 0.0, **terms: Any) -> Call:
    call = api.request("compute", "boot", ttl=30, flags=Flag.IDEMPOTENT)
    api.uplink.send(HedgeTerms(consumers, delay, **terms).message(call.key))
    net.run()
    return call


def having(nodes: list[Process], call: Call) -> list[Process]:
    return [node for node in nodes if any(m.kind is Kind.REQUEST and m.key == call.key for m in node.received)]


def answer(node: Process, call: Call, payload: bytes = b"mine") -> None:
    (request,) = [m for m in node.received if m.kind is Kind.REQUEST and m.key == call.key]
    node.reply(request, payload)


def cancelled(node: Process, call: Call) -> bool:
    return any(m.kind is Kind.CANCEL and m.key == call.key for m in node.received)


def hedges(net: MeshNetwork) -> dict[str, Any]:
    """The counts of the router of a caller at a."""
    rows = overview(net.hosts["a"].router, net.now, "methods")["methods"]
    (found,) = [row["hedges"] for row in rows if row["hedges"]]
    return dict(found)


def check(net: MeshNetwork) -> None:
    for host in net.hosts.values():
        check_router(host.router)


def check_processes(net: MeshNetwork) -> None:
    """No process has a call twice."""
    had: set[tuple[str, bytes]] = set()
    for host in net.hosts.values():
        for topic in host.router.directory:
            for consumer in topic.consumers:
                mine = {(consumer.link.identity, key) for key in consumer.in_flight}
                assert not mine & had
                had |= mine


def test_the_second_consumer_is_one_of_another_router(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "a", "a", "b")
    for _ in range(2):
        call = ask(net, api)
        first, second = having(nodes, call)
        assert first.identity.startswith("node-a") and second is nodes[2]
        check(net)


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_answer_of_two_routers_counts(net: MeshNetwork, winner: int) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "a", "b")
    call = ask(net, api)
    assert having(nodes, call) == nodes
    answer(nodes[winner], call)
    assert call.end.payload == b"mine"
    loser = nodes[1 - winner]
    assert cancelled(loser, call) and not cancelled(nodes[winner], call)
    answer(loser, call, b"late")
    net.advance(1.0)
    check(net)
    assert len(call.ends) == 1
    routers = [host.router for host in net.hosts.values()]
    assert not any(c.in_flight for router in routers for topic in router.directory for c in topic.consumers)


def test_a_caller_without_local_consumers_has_two_other_routers(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "b", "c", "b")
    call = ask(net, api)
    assert {node.identity[5] for node in having(nodes, call)} == {"b", "c"}
    more = ask(net, api, consumers=8)
    assert len(having(nodes, more)) == 2  # one at each: its router gives it to nobody else


def test_a_router_that_is_stopped_holds_up_nothing(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "b", "c")
    net.hosts["b"].pause()
    calls = [ask(net, api, delay=0.05) for _ in range(2)]
    net.advance(0.1)
    for call in calls:
        assert nodes[1] in having(nodes, call)
        answer(nodes[1], call)
    assert [call.end.payload for call in calls] == [b"mine", b"mine"]
    net.hosts["b"].resume()
    net.advance(1.0)
    check(net)


@pytest.mark.parametrize("lost", ["router", "consumer"])
def test_what_is_lost_elsewhere_never_wins(net: MeshNetwork, lost: str) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "a", "b")
    call = ask(net, api)
    if lost == "router":
        net.hosts["b"].kill()
        net.advance(8.0)
    else:
        nodes[1].uplink.close()
        net.run()
    assert not call.ends
    answer(nodes[0], call)
    assert call.end.payload == b"mine"


def test_a_neighbour_whose_consumers_are_busy_sends_it_back_and_it_goes_on(net: MeshNetwork) -> None:
    a, b = net.process("api-a", router="a"), net.process("api-b", router="b")
    nodes = serve(net, "a", "b", credit=1)
    blocking = b.request("compute", "boot", ttl=30)
    assert having(nodes, blocking) == [nodes[1]]
    call = ask(net, a, delay=0.05)
    net.advance(0.2)
    check(net)
    assert having(nodes, call) == [nodes[0]]
    answer(nodes[0], call)
    assert call.end.payload == b"mine"
    check(net)


def test_what_a_busy_neighbour_sends_back_goes_to_another_one(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "a", "b", "c", credit=1)
    for name in "bc":  # of which a knows nothing
        busy = net.process(f"busy-{name}", router=name)
        busy.request("compute", "boot", ttl=30)
    extra = net.process("free", router="c")
    extra.register("compute", credit=8)
    net.advance(1.0)
    call = ask(net, api, delay=0.05)
    assert having(nodes, call) == [nodes[0]]
    # Whichever neighbour is tried first: the one at which somebody is free has it then.
    net.advance(0.06)
    assert having([*nodes, extra], call) == [nodes[0], extra]
    answer(extra, call)
    assert call.end.payload == b"mine"
    assert hedges(net)["deliveries"] == 1 and hedges(net)["won"] == 1
    check(net)


def test_what_a_busy_neighbour_sends_back_is_tried_there_again_and_counts_once(net: MeshNetwork) -> None:
    a, b = net.process("api-a", router="a"), net.process("api-b", router="b")
    nodes = serve(net, "a", "b", credit=1)
    blocking = b.request("compute", "boot", ttl=30)
    call = ask(net, a, delay=0.05)
    net.advance(0.3)
    assert having(nodes, call) == [nodes[0]]
    assert hedges(net)["deliveries"] == 0
    answer(nodes[1], blocking)
    net.advance(5.0)
    assert having(nodes, call) == nodes
    assert hedges(net)["deliveries"] == 1
    answer(nodes[1], call)
    assert call.end.payload == b"mine" and len(call.ends) == 1
    check(net)


def test_busy_neighbours_are_not_asked_without_end(net: MeshNetwork) -> None:
    a = net.process("api-a", router="a")
    serve(net, "a", "b", "c", credit=1)
    for name in "bc":
        net.process(f"api-{name}", router=name).request("compute", "boot", ttl=300)
    call = ask(net, a, delay=0.01)
    net.advance(28.0)
    assert not call.ends
    story = list(net.hosts["a"].router.dispatch.requests.journal.story(net.now, call.key))
    assert 2 < sum("hedged" in line for line in story) < 50
    check(net)


def test_a_deadline_tells_all(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    nodes = serve(net, "a", "b", "c")
    call = ask(net, api, consumers=3)
    assert having(nodes, call) == nodes
    net.advance(31.0)
    assert call.end.outcome is Outcome.TIMEOUT and all(cancelled(node, call) for node in nodes)


@pytest.mark.parametrize("seed", range(30))
def test_random_histories_end_each_call_once(seed: int) -> None:
    """Consumers answer, raise, stop, leave and come; routers are killed: each call ends once, and nothing is left."""
    chance = random.Random(seed)
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0, hedge_unbounded=("compute",), hedge_sample=0.3))
    net.advance(2.0)
    apis = [net.process(f"api-{router}", router=router) for router in "abc"]
    nodes = serve(net, *(chance.choice("abc") for _ in range(4)), credit=chance.choice([1, 2, 8]))
    calls: list[Call] = []
    made = 0
    for _ in range(120):
        step = chance.random()
        if step < 0.4:
            terms = {"exception_wins": chance.random() < 0.5}
            calls.append(ask(net, chance.choice(apis), chance.choice([2, 3]), chance.choice([0.0, 0.01, 0.1]), **terms))
        elif step < 0.8:
            node = chance.choice(nodes)
            requests = [m for m in node.inbox if m.kind is Kind.REQUEST]
            if requests:
                request = chance.choice(requests)
                node.inbox.remove(request)
                header = request.header
                kind = Kind.FAULT if chance.random() < 0.2 else Kind.REPLY
                node.send(
                    kind, b"1", key=request.key, hops=header.hops, attempt=header.attempt, consumer=header.consumer,
                    format=1,
                )  # fmt: skip
        elif step < 0.84 and len(nodes) > 1:
            nodes.pop(chance.randrange(len(nodes))).uplink.close()
            net.run()
        elif step < 0.88:
            made += 1
            nodes.append(net.process(f"new-{made}", router=chance.choice("abc")))
            nodes[-1].register("compute", credit=2)
        elif step < 0.92 and calls:
            call = chance.choice(calls)
            if not call.ends:
                call.process.send(Kind.CANCEL, key=call.key)
                calls.remove(call)
        else:
            net.advance(chance.choice([0.005, 0.05, 0.3]))
        check(net)
        assert all(len(call.ends) <= 1 for call in calls)
        check_processes(net)
    net.advance(100.0)
    assert all(len(call.ends) == 1 for call in calls)
    check(net)
    for host in net.hosts.values():
        assert host.router.in_flight == 0


def test_kinds_of_records_say_which_delivery_was_overtaken() -> None:
    assert MessageKind.of(Kind.HEDGE, Flag.HEDGED) is MessageKind.HEDGE
    assert MessageKind.of(Kind.HEDGE, 0) is MessageKind.OVERTAKEN
    assert [kind.is_message for kind in MessageKind] == [True, True, True, False, False]


class Rows:
    """A dispatch log that keeps kind, outcome and router of each delivery that did not answer its call."""

    def __init__(self) -> None:
        self.rows: list[tuple[MessageKind, int, str]] = []

    def ended(self, now: float, row: Request, delivery: Delivery | None, outcome: int, *rest: Any, **more: Any) -> None:
        if row.message[KIND_AT] == Kind.HEDGE:
            assert delivery is not None
            kind = MessageKind.of(row.message[KIND_AT], flags_of(row.message))
            self.rows.append((kind, outcome, delivery.consumer.link.identity))


def log_of(net: MeshNetwork) -> Rows:
    rows = Rows()
    net.hosts["a"].router.dispatch.requests.log = rows  # type: ignore[assignment]
    return rows


def test_the_late_answer_of_another_router_has_a_record(net: MeshNetwork) -> None:
    rows, api = log_of(net), net.process("api", router="a")
    mine, other = serve(net, "a", "b")
    call = ask(net, api)
    answer(mine, call)
    net.advance(5.0)
    assert rows.rows == []
    answer(other, call)
    assert rows.rows == [(MessageKind.HEDGE, Outcome.CANCELLED, "b")]


def test_a_loser_of_another_router_that_is_lost_has_a_record(net: MeshNetwork) -> None:
    rows, api = log_of(net), net.process("api", router="a")
    mine, other = serve(net, "a", "b")
    call = ask(net, api)
    answer(mine, call)
    other.uplink.close()
    net.advance(60.0)
    assert rows.rows == [(MessageKind.HEDGE, Outcome.LINK_LOST, "b")]
    check(net)


def test_of_a_call_that_ended_at_its_deadline_the_other_delivery_has_a_record(net: MeshNetwork) -> None:
    rows, api = log_of(net), net.process("api", router="a")
    nodes = serve(net, "b", "c")
    call = ask(net, api)
    net.advance(40.0)
    assert call.end.outcome is Outcome.TIMEOUT
    for node in nodes:
        answer(node, call)
    # The record of the call is about the other one.
    assert len(rows.rows) == 1 and rows.rows[0][1] == Outcome.CANCELLED and rows.rows[0][2] in ("b", "c")
    check(net)
