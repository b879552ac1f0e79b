"""Calls that several consumers may have: when further ones get them, within which bounds, and what ends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rpcmq.core.router.hedge import Hedge
from rpcmq.core.router.model import Consumer
from rpcmq.core.router.views import overview
from rpcmq.errors import Outcome
from rpcmq.log_format import MessageKind
from rpcmq.testing.invariants import check_hedges, check_router, left_behind
from rpcmq.testing.network import Call, Message, Network, Process
from rpcmq.wire import NO_TTL, Flag, Kind
from rpcmq.wire.hedge import HedgeTerms
from tests.core.router.logged import Memory

DELAY = 0.05


@pytest.fixture
def nodes(net: Network) -> list[Process]:
    return serving(net, 3)


def serving(net: Network, count: int, credit: int = 2) -> list[Process]:
    nodes = [net.process(f"node-{number}") for number in range(count)]
    for node in nodes:
        node.register("compute", credit=credit)
    return nodes


def ask(api: Process, consumers: int = 2, delay: float = DELAY, flags: int = Flag.IDEMPOTENT, **terms: Any) -> Call:
    """A call that ``consumers`` may have."""
    call = api.request("compute", "boot", ttl=30, flags=flags)
    api.uplink.send(HedgeTerms(consumers, delay, **terms).message(call.key))
    api._network.run()
    return call


def holders(net: Network, call: Call) -> set[str]:
    """Whose processes have ``call``."""
    consumers: list[Consumer] = [c for topic in net.router.directory for c in topic.consumers]
    return {consumer.link.identity for consumer in consumers if call.key in consumer.in_flight}


def counts(net: Network) -> dict[str, Any]:
    (row,) = [row for row in overview_methods(net) if row["method"] == "boot"]
    hedges: dict[str, Any] = row["hedges"]
    return hedges


def overview_methods(net: Network) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = overview(net.router, net.now, "methods")["methods"]
    return rows


def had(node: Process, kind: Kind) -> list[Message]:
    """All of that kind that ``node`` was sent so far."""
    return [message for message in node.received if message.kind is kind]


def holder(nodes: list[Process], identity: str) -> Process:
    (node,) = [each for each in nodes if each.identity == identity]
    return node


# --- when --------------------------------------------------------------------------------------------


def test_two_consumers_have_it_at_once_and_the_first_answer_ends_it(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, delay=0.0)
    first, second = sorted(holders(net, call))
    assert first != second
    answering = holder(nodes, second)
    answering.reply(answering.take(Kind.REQUEST), b"mine")
    assert (call.end.kind, call.end.payload) == (Kind.REPLY, b"mine")
    late = holder(nodes, first)
    assert had(late, Kind.CANCEL) and not had(answering, Kind.CANCEL)
    late.reply(late.take(Kind.REQUEST), b"late")
    assert len(call.ends) == 1 and not holders(net, call)
    check_router(net.router)


def test_as_many_have_it_as_are_asked_for_and_no_process_twice(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, consumers=8, delay=0.0)
    assert holders(net, call) == {"node-0", "node-1", "node-2"}
    assert [len(had(node, Kind.REQUEST)) for node in nodes] == [1, 1, 1]
    nodes[1].register("compute", tag=9)
    net.advance(20)
    assert [len(had(node, Kind.REQUEST)) for node in nodes] == [1, 1, 1]


def test_a_second_consumer_gets_it_when_the_first_has_had_it_for_the_delay(
    net: Network, api: Process, nodes: list[Process]
):
    call = ask(api)
    net.advance(DELAY - 0.01)
    assert len(holders(net, call)) == 1
    net.advance(0.02)
    assert len(holders(net, call)) == 2
    net.advance(10)
    assert len(holders(net, call)) == 2


def test_each_further_consumer_has_its_own_delay(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, consumers=3)
    net.advance(DELAY + 0.001)
    assert len(holders(net, call)) == 2
    net.advance(DELAY)
    assert len(holders(net, call)) == 3


def test_what_is_answered_within_the_delay_is_given_to_nobody_else(net: Network, api: Process, nodes: list[Process]):
    call = ask(api)
    (first,) = holders(net, call)
    holder(nodes, first).reply(holder(nodes, first).take(Kind.REQUEST), b"fast")
    net.advance(1)
    assert sum(len(had(node, Kind.REQUEST)) for node in nodes) == 1
    assert counts(net)["deliveries"] == 0
    assert net.router.dispatch.hedging.next_deadline() is None


def test_the_delay_begins_with_the_delivery(net: Network, api: Process):
    (node,) = serving(net, 1, credit=1)
    blocking = api.request("compute", "boot", ttl=60)
    call = ask(api)
    net.advance(5)
    assert holders(net, call) == set() and counts(net)["withheld"] == {"overloaded": 1}
    node.reply(node.take(Kind.REQUEST), b"")
    assert len(blocking.ends) == 1 and holders(net, call) == {"node-0"}
    net.process("other").register("compute")
    net.advance(10)
    assert holders(net, call) == {"node-0", "other"}


def test_a_percentile_is_that_of_the_latency_policy(net: Network, api: Process, nodes: list[Process]):
    net.router.dispatch.hedging.usual = {("", "compute", "boot"): (0.1, 0.2, 0.3)}
    call = ask(api, percentile=95)
    net.advance(0.19)
    assert len(holders(net, call)) == 1
    net.advance(0.02)
    assert len(holders(net, call)) == 2


def test_without_an_entry_in_the_policy_nothing_is_hedged(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, percentile=95)
    net.advance(5)
    assert len(holders(net, call)) == 1
    assert counts(net)["withheld"] == {"not in the latency policy": 1}


# --- within which bounds -----------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, Flag.MANDATORY, Flag.IDEMPOTENT | Flag.STREAM])
def test_what_must_not_run_twice_is_never_hedged(net: Network, api: Process, nodes: list[Process], flags: int):
    call = ask(api, delay=0.0, flags=flags)
    net.advance(5)
    assert len(holders(net, call)) == 1
    assert net.link(api).counters["refused hedge"] == 1
    assert any("not idempotent" in note.text for note in net.notes)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\2" * 7,
        b"\2" * 9,
        bytes((1, 0, 0, 0)) + bytes(4),
        bytes((9, 0, 0, 0)) + bytes(4),
        bytes((2, 96, 0, 0)) + bytes(4),
        bytes((2, 0, 0, 0)) + b"\xff" * 4,
    ],
)
def test_malformed_terms_cost_nothing_but_themselves(net: Network, api: Process, nodes: list[Process], payload: bytes):
    call = api.request("compute", "boot", ttl=30, flags=Flag.IDEMPOTENT)
    api.send(Kind.HEDGE, payload, key=call.key)
    net.advance(5)
    assert len(holders(net, call)) == 1
    assert sum(net.link(api).counters[f"refused {reason}"] for reason in ("hedge", "length")) == 1


def test_the_terms_are_said_once_and_only_of_ones_own_calls(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, delay=0.0)
    api.uplink.send(HedgeTerms(8).message(call.key))
    net.run()
    assert net.link(api).counters["refused duplicate"] == 1 and len(holders(net, call)) == 2
    other = net.process("other")
    mine = api.request("compute", "boot", ttl=30, flags=Flag.IDEMPOTENT)
    other.uplink.send(HedgeTerms(8).message(mine.key))
    net.run()
    assert len(holders(net, mine)) == 1


def test_terms_of_what_has_ended_are_dropped(net: Network, api: Process, nodes: list[Process]):
    call = api.request("compute", "boot", ttl=30, flags=Flag.IDEMPOTENT)
    api.send(Kind.CANCEL, key=call.key)
    api.uplink.send(HedgeTerms(2).message(call.key))
    net.run()
    assert not net.router.refused and net.router.dispatch.hedging.next_deadline() is None


def test_nobody_else_gets_it_while_others_wait(net: Network, api: Process):
    nodes = serving(net, 2, credit=1)
    call = ask(api)
    filling = api.request("compute", "boot", ttl=30)
    waiting = api.request("compute", "boot", ttl=30)
    net.advance(1)
    assert len(holders(net, call)) == 1 and counts(net)["withheld"] == {"overloaded": 1}
    (had,) = holders(net, call)
    (other,) = [node for node in nodes if node.identity != had]
    other.reply(other.take(Kind.REQUEST), b"")
    other.reply(other.take(Kind.REQUEST), b"")
    assert len(filling.ends) == len(waiting.ends) == 1
    net.advance(5)
    assert holders(net, call) == {"node-0", "node-1"}
    check_router(net.router)


def test_extra_deliveries_are_bounded_by_the_budget(make_net: Callable[..., Network]):
    net = make_net(hedge_budget=0.05, hedge_burst=20)
    api, nodes = net.process("api"), serving(net, 3, credit=100)
    extra = 0
    for number in range(1000):
        call = ask(api, delay=0.0)
        extra += len(holders(net, call)) - 1
        for node in nodes:
            while node.inbox:
                if (message := node.inbox.pop(0)).kind is Kind.REQUEST:
                    node.reply(message, b"")
        assert extra <= 10 + 0.05 * (number + 1) + 1
    assert extra >= 50
    hedges = counts(net)
    assert (hedges["calls"], hedges["deliveries"]) == (1000, extra)
    assert hedges["withheld"] == {"budget": 1000 - extra}


def test_the_budget_is_one_of_all_callers_of_a_method(make_net: Callable[..., Network]):
    net = make_net(hedge_budget=0.05, hedge_burst=20)
    flood, api, nodes = net.process("flood"), net.process("api"), serving(net, 3, credit=100)

    def answered() -> None:
        for node in nodes:
            while node.inbox:
                if (message := node.inbox.pop(0)).kind is Kind.REQUEST:
                    node.reply(message, b"")

    while True:
        call = ask(flood, delay=0.0)
        if len(holders(net, call)) == 1:
            break
        answered()
    # Another one has one consumer now, and its answer none the later.
    call = ask(api, delay=0.0)
    assert len(holders(net, call)) == 1
    answered()
    assert call.end.kind is Kind.REPLY
    assert counts(net)["withheld"] == {"budget": 2}
    # Calls of a topic of their own have a budget of their own.
    for node in nodes:
        node.register("other", tag=1, credit=2)
    call = api.request("other", "boot", ttl=30, flags=Flag.IDEMPOTENT)
    api.uplink.send(HedgeTerms(2, 0.0).message(call.key))
    net.run()
    assert len(holders(net, call)) == 2


def test_the_check_of_a_simulation_notices_more_than_the_budget_allows(
    net: Network, api: Process, nodes: list[Process]
):
    ask(api, delay=0.0)
    check_hedges(net.router)
    (hedges,) = [
        each.statistics.hedges for each in net.router.directory.destinations.values() if each.statistics.hedges
    ]
    for _ in range(10):
        hedges.spend()
    with pytest.raises(AssertionError, match="budget"):
        check_hedges(net.router)
    hedges.take_back(is_free=False)


def test_a_budget_of_zero_ends_hedging_and_an_unbounded_topic_has_none(make_net: Callable[..., Network]):
    net = make_net(hedge_budget=0.0)
    api = net.process("api")
    serving(net, 2, credit=1000)
    for _ in range(20):
        ask(api, delay=0.0)
    assert counts(net)["deliveries"] == 0
    net.settings.hedge_unbounded = ("comp.*", "comp*")
    for _ in range(20):
        ask(api, delay=0.0)
    assert counts(net)["deliveries"] == 0
    net.settings.hedge_unbounded = ("compute.#",)
    for _ in range(20):
        ask(api, delay=0.0)
    assert counts(net)["deliveries"] == 20
    assert overview(net.router, net.now, "stats")["hedges"]["deliveries"] == 20


def test_what_waits_to_be_hedged_is_forgotten_with_its_call(net: Network, api: Process, nodes: list[Process]):
    before = net.router.dispatch.hedging
    for _ in range(3000):
        call = ask(api, delay=3600.0)
        for node in nodes:
            while node.inbox:
                if (message := node.inbox.pop(0)).kind is Kind.REQUEST:
                    node.reply(message, b"")
        assert len(call.ends) == 1
    assert len(before._due) <= 1025
    assert Hedge(2, 0.0, True).next_pause() < Hedge(2, 1.0, True).next_pause()


def test_nothing_is_hedged_in_a_drain(net: Network, api: Process, nodes: list[Process]):
    call = ask(api)
    net.router.begin_drain(net.now)
    net.advance(5)
    assert len(holders(net, call)) == 1


# --- what ends it ------------------------------------------------------------------------------------


def failing(net: Network, api: Process, nodes: list[Process], **terms: Any) -> tuple[Call, Process, Process]:
    """A call that two have, of which the first has raised."""
    call = ask(api, delay=0.0, **terms)
    first, second = (holder(nodes, identity) for identity in sorted(holders(net, call)))
    had = first.take(Kind.REQUEST)
    first.send(Kind.FAULT, b"{}", key=had.key, attempt=had.header.attempt, consumer=had.header.consumer, format=1)
    return call, first, second


def test_what_a_handler_raises_wins_unless_the_caller_says_otherwise(net: Network, api: Process, nodes: list[Process]):
    call, _, second = failing(net, api, nodes)
    assert call.end.kind is Kind.FAULT and had(second, Kind.CANCEL)
    call, _, second = failing(net, api, nodes, exception_wins=False)
    assert not call.ends and holders(net, call) == {second.identity}
    check_router(net.router)
    second.inbox = [message for message in second.inbox if message.key == call.key]
    second.reply(second.take(Kind.REQUEST), b"better")
    assert call.end.payload == b"better"
    assert counts(net)["failed"] == 1


def test_the_last_exception_is_the_answer(net: Network, api: Process, nodes: list[Process]):
    call, _, second = failing(net, api, nodes, exception_wins=False)
    had = second.take(Kind.REQUEST)
    second.send(Kind.FAULT, b"[]", key=had.key, attempt=had.header.attempt, consumer=had.header.consumer, format=1)
    assert (call.end.kind, call.end.payload) == (Kind.FAULT, b"[]")
    assert net.router.in_flight == 0


def test_a_malformed_answer_never_wins(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, delay=0.0)
    first, second = (holder(nodes, identity) for identity in sorted(holders(net, call)))
    had = first.take(Kind.REQUEST)
    first.send(
        Kind.REPLY, b"?", key=had.key, attempt=had.header.attempt, consumer=had.header.consumer, method=b"surplus"
    )
    assert not call.ends
    second.reply(second.take(Kind.REQUEST), b"well")
    assert call.end.payload == b"well"


@pytest.mark.parametrize("gone", [0, 1])
def test_a_consumer_that_is_lost_never_wins(net: Network, api: Process, nodes: list[Process], gone: int):
    call = ask(api, delay=0.0)
    both = [holder(nodes, identity) for identity in sorted(holders(net, call))]
    both[gone].uplink.close()
    net.run()
    check_router(net.router)
    left = both[1 - gone]
    assert not call.ends and holders(net, call) == {left.identity}
    left.reply(left.take(Kind.REQUEST), b"here")
    assert call.end.payload == b"here"


def test_it_goes_on_at_a_third_when_both_are_lost(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, delay=0.0)
    both = [holder(nodes, identity) for identity in sorted(holders(net, call))]
    (third,) = [node for node in nodes if node not in both]
    for node in both:
        node.uplink.close()
        net.run()
    assert holders(net, call) == {third.identity}
    third.reply(third.take(Kind.REQUEST), b"third")
    assert call.end.payload == b"third"


def test_a_deadline_and_a_cancel_tell_all_who_have_it(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, consumers=3, delay=0.0)
    net.advance(31)
    assert call.end.outcome is Outcome.TIMEOUT
    assert all(had(node, Kind.CANCEL) for node in nodes)
    gone = ask(api, consumers=3, delay=0.0)
    api.send(Kind.CANCEL, key=gone.key)
    assert all(len(had(node, Kind.CANCEL)) == 2 for node in nodes)
    check_router(net.router)


def test_items_of_a_call_that_two_have_end_it(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, delay=0.0)
    (first, _) = sorted(holders(net, call))
    node = holder(nodes, first)
    had = node.take(Kind.REQUEST)
    node.send(Kind.ITEM, b"1", key=had.key, attempt=had.header.attempt, consumer=had.header.consumer, format=1)
    assert call.end.outcome is Outcome.PROTOCOL and "hedged" in call.end.body["text"]


def test_one_that_has_sent_an_item_is_given_to_nobody_else(net: Network, api: Process, nodes: list[Process]):
    call = ask(api)
    (first,) = holders(net, call)
    node = holder(nodes, first)
    had = node.take(Kind.REQUEST)
    node.send(Kind.ITEM, b"1", key=had.key, attempt=had.header.attempt, consumer=had.header.consumer, format=1)
    net.advance(5)
    assert holders(net, call) == {first} and not call.ends


def test_a_delivery_that_is_given_back_leaves_it_with_the_other(net: Network, api: Process, nodes: list[Process]):
    call = ask(api, delay=0.0)
    first, second = (holder(nodes, identity) for identity in sorted(holders(net, call)))
    had = first.take(Kind.REQUEST)
    first.send(Kind.GIVE_BACK, key=had.key, attempt=had.header.attempt, consumer=had.header.consumer)
    net.advance(0.001)
    # The third has it in its place, which is within the budget: nobody has begun what came back.
    (third,) = [node for node in nodes if node not in (first, second)]
    assert holders(net, call) == {second.identity, third.identity}
    assert counts(net)["deliveries"] == 1
    check_router(net.router)


def test_what_is_given_back_each_time_is_given_again_ever_more_seldom(net: Network, api: Process):
    nodes = serving(net, 2)
    call = ask(api, delay=0.0)
    returned = 0
    for _ in range(2000):
        for node in nodes[1:]:
            for had in [each for each in node.inbox if each.kind is Kind.REQUEST]:
                node.inbox.remove(had)
                node.send(Kind.GIVE_BACK, key=had.key, attempt=had.header.attempt, consumer=had.header.consumer)
                returned += 1
        net.advance(0.01)
    assert 5 < returned < 20 and not call.ends
    nodes[0].reply(nodes[0].take(Kind.REQUEST), b"mine")
    assert call.end.payload == b"mine"
    assert counts(net)["won"] == 0
    check_router(net.router)


def test_nothing_is_left_behind(net: Network, api: Process, nodes: list[Process]):
    for delay in (0.0, DELAY):
        ask(api, delay=delay)
    net.advance(1)
    api.stop()
    for node in nodes:
        node.stop()
    net.advance(700)
    assert left_behind(net.router) == {}


# --- results that differ -----------------------------------------------------------------------------


def compared(
    make_net: Callable[..., Network], results: tuple[bytes, bytes], late: Kind = Kind.REPLY, error: str = ""
) -> Network:
    """A call whose loser is let finish: the results of the winner and of the other."""
    net = make_net(hedge_sample=1.0)
    api, nodes = net.process("api"), serving(net, 2)
    call = ask(api, delay=0.0)
    nodes[0].reply(nodes[0].take(Kind.REQUEST), results[0])
    assert call.end.payload == results[0] and not had(nodes[1], Kind.CANCEL)
    given = nodes[1].take(Kind.REQUEST)
    header = given.header
    name = error.encode() if late is Kind.FAULT else b""
    nodes[1].send(
        late, results[1], key=given.key, attempt=header.attempt, consumer=header.consumer, format=1, method=name
    )
    assert len(call.ends) == 1
    check_router(net.router)
    return net


def test_the_same_result_is_no_disagreement(make_net: Callable[..., Network]):
    hedges = counts(compared(make_net, (b"42", b"42")))
    assert (hedges["compared"], hedges["disagreed"], hedges["disagreeing"]) == (1, 0, [])


@pytest.mark.parametrize("late", [Kind.REPLY, Kind.FAULT])
def test_another_result_is_counted_and_noted(make_net: Callable[..., Network], late: Kind):
    net = compared(make_net, (b"42", b"43"), late)
    hedges = counts(net)
    assert (hedges["compared"], hedges["disagreed"]) == (1, 1)
    assert hedges["disagreeing"] == [["node-0", "node-1", 1]]
    (note,) = [note for note in net.notes if note.event == "disagreement"]
    assert "'boot' of 'compute': node-0 and node-1" in note.text
    assert note.fields["method"] == "boot"


def test_one_that_is_let_finish_is_told_in_the_end(make_net: Callable[..., Network]):
    net = make_net(hedge_sample=1.0)
    api, nodes = net.process("api"), serving(net, 2)
    ask(api, delay=0.0)
    nodes[0].reply(nodes[0].take(Kind.REQUEST), b"42")
    net.advance(9)
    assert not had(nodes[1], Kind.CANCEL)
    net.advance(2)
    assert len(had(nodes[1], Kind.CANCEL)) == 1
    nodes[1].reply(nodes[1].take(Kind.REQUEST), b"43")
    assert counts(net)["compared"] == 0
    assert net.router.dispatch.hedging.next_deadline() is None


# --- the dispatch log --------------------------------------------------------------------------------


@pytest.mark.parametrize("first_answers", [False, True])
def test_each_delivery_has_a_record(make_logged: Callable[..., Network], sink: Memory, first_answers: bool):
    net = make_logged(hedge_sample=0.0)
    api, nodes = net.process("api"), serving(net, 2)
    asked = ask(api)
    (name,) = holders(net, asked)
    first = holder(nodes, name)
    (second,) = [node for node in nodes if node is not first]
    net.advance(0.1)
    winner, loser = (first, second) if first_answers else (second, first)
    winner.reply(winner.take(Kind.REQUEST), b"fast")
    net.advance(0.2)
    loser.reply(loser.take(Kind.REQUEST), b"slow")
    net.advance(1)
    call, other = sink.entries()
    assert (call.kind, call.server_identity, call.outcome) == (MessageKind.CALL, winner.identity, Outcome.OK)
    kind = MessageKind.HEDGE if first_answers else MessageKind.OVERTAKEN
    assert (other.kind, other.server_identity, other.outcome) == (kind, loser.identity, Outcome.CANCELLED)
    assert (other.handle, other.sequence) == (call.handle, call.sequence)
    assert other.total_us == pytest.approx(300_000, rel=0.01) and call.total_us == pytest.approx(100_000, rel=0.01)
    assert (other.service_us or 0) < 260_000 if first_answers else other.service_us == other.total_us


def test_a_call_that_ends_without_an_answer_has_one_record_for_each_delivery(
    make_logged: Callable[..., Network], sink: Memory
):
    net = make_logged()
    api, nodes = net.process("api"), serving(net, 2)
    ask(api, delay=0.0)
    net.advance(31)
    for node in nodes:
        node.reply(node.take(Kind.REQUEST), b"late")
    net.advance(1)
    records = [record for record in sink.entries() if record.outcome is not None]
    assert [(record.kind, record.outcome) for record in records] == [
        (MessageKind.CALL, Outcome.TIMEOUT),
        (MessageKind.OVERTAKEN, Outcome.CANCELLED),
    ]
    assert {record.server_identity for record in records} == {"node-0", "node-1"}


def test_failures_that_were_outlived_have_records(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged()
    api, nodes = net.process("api"), serving(net, 3)
    call, _, second = failing(net, api, nodes, exception_wins=False)
    second.reply(second.take(Kind.REQUEST), b"")
    assert len(call.ends) == 1
    call = ask(api, delay=0.0)
    first, second = (holder(nodes, identity) for identity in sorted(holders(net, call)))
    first.uplink.close()
    net.run()
    second.inbox = [message for message in second.inbox if message.key == call.key]
    second.reply(second.take(Kind.REQUEST), b"")
    net.advance(1)
    records = sink.entries()
    assert [each.outcome for each in records if each.kind is MessageKind.CALL] == [Outcome.OK, Outcome.OK]
    others = [each.outcome for each in records if not each.kind.is_message]
    assert others == [Outcome.REMOTE_ERROR, Outcome.LINK_LOST]


@pytest.mark.parametrize(("late", "error"), [(Kind.REPLY, "differs"), (Kind.FAULT, "differs: KeyError")])
def test_the_record_of_another_result_says_so(
    make_logged: Callable[..., Network], sink: Memory, late: Kind, error: str
):
    net = compared(make_logged, (b"42", b"43"), late, "KeyError")
    net.advance(1)
    _, other = sink.entries()
    assert (other.kind.is_message, other.error_class) == (False, error)
    assert other.outcome == (Outcome.OK if late is Kind.REPLY else Outcome.REMOTE_ERROR)


def test_the_record_of_a_delivery_that_was_not_begun_has_no_time_in_the_handler(
    make_logged: Callable[..., Network], sink: Memory
):
    net = make_logged(hedge_sample=0.0)
    api, nodes = net.process("api"), serving(net, 3)
    call = ask(api, consumers=3, delay=0.0)
    nodes[0].reply(nodes[0].take(Kind.REQUEST), b"mine")
    for node, ttl in ((nodes[1], NO_TTL), (nodes[2], 7000)):
        given = node.take(Kind.REQUEST)
        header = given.header
        node.send(
            Kind.FAULT, b"", key=given.key, attempt=header.attempt, consumer=header.consumer, format=1, ttl=ttl,
        )  # fmt: skip
    net.advance(1)
    assert len(call.ends) == 1
    _, *others = sink.entries()
    assert [(each.outcome, each.handler_us) for each in others] == [
        (Outcome.CANCELLED, None),
        (Outcome.CANCELLED, 7000),
    ]
