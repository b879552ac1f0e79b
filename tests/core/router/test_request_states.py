"""The transition tables of requests and deliveries: each row by what really happens in a router, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import pytest

from rpcmq.core.common import illegal_events
from rpcmq.core.common.illegal_events import IllegalEvent
from rpcmq.core.router.model import Delivery, Request
from rpcmq.core.router.request_states import (
    DELIVERY_TRANSITIONS,
    TRANSITIONS,
    DeliveryState,
    RequestState,
    end_event,
)
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.errors import Outcome
from rpcmq.testing import checked_states
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import SETTLEMENT, Flag, Kind

ROUTING, WAITING, DELIVERED, HELD, ENDED = RequestState
OPEN, ABANDONED, CLOSED = DeliveryState
Row = tuple[Enum, str]


@pytest.fixture
def api(net: Network) -> Process:
    return net.process("api")


@pytest.fixture
def node(net: Network) -> Process:
    return net.process("node")


# --- what happens --------------------------------------------------------------------------------


def delivered(api: Process, node: Process, **options: object) -> Call:
    node.register("compute")
    return api.request("compute", **options)  # type: ignore[arg-type]


def settled(api: Process, node: Process, outcome: Outcome) -> None:
    node.register("compute")
    api.cast("compute")
    node.settle(node.take(Kind.CAST), outcome=outcome)


def held(net: Network, api: Process, node: Process) -> None:
    # The first router of a network of this test has just started.
    net = Network(net.settings.__class__(recovery_seconds=5.0))
    sender = net.process("sender")
    net.restart_router()
    sender.connect()
    sender.cast("compute", flags=Flag.RESENT)
    assert net.link(sender).held


def comes_again_to_nobody(net: Network, api: Process, node: Process) -> None:
    api.cast("compute", flags=Flag.MANDATORY | Flag.RESENT)


def fan_out_to_nobody(net: Network, api: Process, node: Process) -> None:
    api.cast("compute", flags=Flag.FANOUT)


def fill_the_queue(net: Network, api: Process, node: Process) -> None:
    net.settings.queue_max_messages = 1
    api.request("compute")
    assert api.request("compute").end.outcome is Outcome.OVERLOADED


def format_that_nobody_takes(net: Network, api: Process, node: Process) -> None:
    node.register("compute")
    assert api.request("compute", format=3).end.outcome is Outcome.PROTOCOL


def cast_that_ages_out(net: Network, api: Process, node: Process) -> None:
    api.cast("compute", ttl=1)
    net.advance(2)


def caller_ended_while_it_waited(net: Network, api: Process, node: Process) -> None:
    """A queue is purged: its casts are taken out first."""
    api.cast("compute")
    request = next(net.router.dispatch.unsettled())
    net.router.dispatch.requests.purge(net.now, request, "operator")


def to_two(net: Network, api: Process, node: Process) -> Request:
    """A call that two consumers have."""
    other = net.process("other")
    delivered(api, node)
    other.register("compute")
    (request,) = net.link(api).calls.values()
    (consumer,) = net.link(other).consumers.values()
    net.router.dispatch.deliveries.deliver(net.now, request, consumer)
    net.run()
    return request


def one_of_two_leaves(net: Network, api: Process, node: Process) -> None:
    request = to_two(net, api, node)
    consumer = request.consumer
    assert consumer is not None
    net.router.links.end(net.now, consumer.link, "kicked")
    assert request.state is DELIVERED


def one_of_two_answers(net: Network, api: Process, node: Process) -> None:
    request = to_two(net, api, node)
    node.reply(node.take(Kind.REQUEST))
    assert request.state is ENDED


def consumer_is_lost(net: Network, api: Process, node: Process) -> None:
    call = delivered(api, node)
    node.stop()
    assert call.end.outcome is Outcome.LINK_LOST


def runs_again(net: Network, api: Process, node: Process) -> None:
    delivered(api, node, flags=Flag.IDEMPOTENT)
    node.stop()


def answered(net: Network, api: Process, node: Process) -> None:
    delivered(api, node)
    node.reply(node.take(Kind.REQUEST))


def fault(net: Network, api: Process, node: Process) -> None:
    delivered(api, node)
    node.fault(node.take(Kind.REQUEST))


def runs_too_long(net: Network, api: Process, node: Process) -> None:
    delivered(api, node, ttl=1)
    net.advance(2)


def late_answer(net: Network, api: Process, node: Process) -> None:
    runs_too_long(net, api, node)
    node.reply(node.take(Kind.REQUEST))


def cancelled_while_it_runs(net: Network, api: Process, node: Process) -> None:
    api.cancel(delivered(api, node))


def cancelled_while_it_waits(net: Network, api: Process, node: Process) -> None:
    api.cancel(api.request("compute"))


def waits_too_long(net: Network, api: Process, node: Process) -> None:
    api.request("compute", ttl=1)
    net.advance(2)


def last_consumer_leaves(net: Network, api: Process, node: Process) -> None:
    delivered(api, node)
    api.request("compute", flags=Flag.MANDATORY)
    node.stop()


def last_consumer_leaves_with_it(net: Network, api: Process, node: Process) -> None:
    delivered(api, node, flags=Flag.MANDATORY | Flag.IDEMPOTENT)
    node.stop()


def drain_while_it_waits(net: Network, api: Process, node: Process) -> None:
    api.request("compute")
    net.router.begin_drain(net.now)


def drain_times_out(net: Network, api: Process, node: Process) -> None:
    delivered(api, node, flags=Flag.IDEMPOTENT)
    net.router.begin_drain(net.now)
    net.router.finish_drain(net.now)


def consumer_comes(net: Network, api: Process, node: Process) -> None:
    api.request("compute")
    node.register("compute")


def waits(net: Network, api: Process, node: Process) -> None:
    api.request("compute")


def runs(net: Network, api: Process, node: Process) -> None:
    delivered(api, node)


def malformed_answer(net: Network, api: Process, node: Process) -> None:
    delivered(api, node)
    request = node.take(Kind.REQUEST)
    node.send(Kind.REPLY, key=request.key, format=1, method=b"no", consumer=request.header.consumer)


def settling_with(outcome: Outcome) -> Callable[[Network, Process, Process], None]:
    return lambda net, api, node: settled(api, node, outcome)


SCENARIOS: dict[Row, Callable[[Network, Process, Process], object]] = {
    (ROUTING, "queued"): waits,
    (ROUTING, "delivered"): runs,
    (ROUTING, "held"): held,
    (ROUTING, "timeout"): cast_that_ages_out,
    (ROUTING, "no_consumer"): fan_out_to_nobody,
    (ROUTING, "link_lost"): comes_again_to_nobody,
    (ROUTING, "overloaded"): fill_the_queue,
    (ROUTING, "cancelled"): caller_ended_while_it_waited,
    (ROUTING, "protocol"): format_that_nobody_takes,
    (WAITING, "taken"): consumer_comes,
    (WAITING, "timeout"): waits_too_long,
    (WAITING, "no_consumer"): last_consumer_leaves,
    (WAITING, "link_lost"): last_consumer_leaves_with_it,
    (WAITING, "cancelled"): cancelled_while_it_waits,
    (WAITING, "draining"): drain_while_it_waits,
    (DELIVERED, "delivered"): to_two,
    (DELIVERED, "one returned"): one_of_two_leaves,
    (DELIVERED, "returned"): runs_again,
    (DELIVERED, "ok"): answered,
    (DELIVERED, "remote_error"): fault,
    (DELIVERED, "timeout"): runs_too_long,
    (DELIVERED, "no_consumer"): settling_with(Outcome.NO_CONSUMER),
    (DELIVERED, "overloaded"): settling_with(Outcome.OVERLOADED),
    (DELIVERED, "link_lost"): consumer_is_lost,
    (DELIVERED, "cancelled"): cancelled_while_it_runs,
    (DELIVERED, "protocol"): malformed_answer,
    (DELIVERED, "draining"): drain_times_out,
    (DELIVERED, "denied"): settling_with(Outcome.DENIED),
    (OPEN, "request ended"): one_of_two_answers,
    (OPEN, "closed"): answered,
    (ABANDONED, "closed"): late_answer,
}


@pytest.mark.parametrize(("state", "event"), [*TRANSITIONS, *DELIVERY_TRANSITIONS], ids=str)
def test_each_row_of_the_tables_happens_in_a_router(
    net: Network, api: Process, node: Process, state: Enum, event: str
) -> None:
    checked_states.seen.clear()
    SCENARIOS[state, event](net, api, node)
    assert checked_states.seen[state, event]


# --- what is illegal -----------------------------------------------------------------------------


def in_state(net: Network, api: Process, node: Process, state: RequestState) -> Request:
    """A call in ``state``, as the engine has it."""
    if state is WAITING:
        waits(net, api, node)
    else:
        runs(net, api, node)
    (request,) = net.link(api).calls.values()
    if state is ENDED:
        node.reply(node.take(Kind.REQUEST))
    elif state is ROUTING:
        assert request.delivery is not None
        request.take_back(request.delivery)
    assert request.state is state
    return request


def cause(request: Request, event: str) -> None:
    if event == "queued":
        request.queue = Queue("test")
    elif event == "delivered":
        delivery = Delivery()
        delivery.request, delivery.earlier = request, request.delivery
        request.delivery = delivery
    else:
        request.outcome = int(Outcome[event.upper()])


#: What is taken out of a queue waited there, and what is taken back was delivered: that cannot be otherwise.
EVENTS = ["queued", "delivered", *map(end_event, Outcome)]
STATES = (ROUTING, WAITING, DELIVERED, ENDED)
ILLEGAL = [(state, event) for state in STATES for event in EVENTS if (state, event) not in TRANSITIONS]


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=str)
def test_what_the_table_lacks_raises_in_tests(
    net: Network, api: Process, node: Process, state: RequestState, event: str
) -> None:
    request = in_state(net, api, node, state)
    with pytest.raises(IllegalEvent, match=f"request: {event} while it is {state.value}"):
        cause(request, event)
    illegal_events.raised.clear()
    forget(net)


def forget(net: Network) -> None:
    """The tables of this router are wrong now, and the fixture would say so."""
    net.start_router()


def test_a_delivery_is_given_once(net: Network, api: Process, node: Process) -> None:
    delivered(api, node)
    (consumer,) = net.link(node).consumers.values()
    (delivery,) = consumer.in_flight.values()
    node.reply(node.take(Kind.REQUEST))
    with pytest.raises(IllegalEvent, match="delivery: given while its request is ended"):
        consumer.in_flight[delivery.request.key] = delivery
    illegal_events.raised.clear()


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.LINK_LOST])
def test_in_production_a_call_that_ends_twice_is_counted_logged_and_told_once(
    net: Network, api: Process, node: Process, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    call = delivered(api, node)
    (request,) = net.link(api).calls.values()
    node.reply(node.take(Kind.REQUEST), b"done")
    monkeypatch.setattr(illegal_events, "_strict", False)
    requests = net.router.dispatch.requests

    for _ in range(2):
        assert not requests.finish(net.now, request, outcome)
    requests.cancel(net.now, request)
    requests.break_off(net.now, request, outcome, "broken off")
    requests.record(net.now, request, outcome)
    net.run()

    assert call.end.payload == b"done" and request.outcome == Outcome.OK
    assert requests.calls_in_flight == 0
    counted = api.query("stats")["counters"]
    text = f"illegal event: request: {outcome.name.lower()} while it is ended"
    assert counted[text] == 5 - (outcome is not Outcome.CANCELLED)
    logged = [note for note in net.notes if note.event == "internal error"]
    assert len(logged) == 1 + (outcome is not Outcome.CANCELLED)
    assert text.removeprefix("illegal event: ") in "".join(note.text for note in logged)
    net.notes.clear()


def test_messages_of_an_earlier_attempt_leave_deliveries_in_their_order(net: Network, api: Process) -> None:
    """The first in flight is the oldest: by that a consumer that is stuck is found."""
    node = net.process("node")
    node.register("compute", credit=10)
    for _ in range(2):
        api.request("compute")
        api.cast("compute")
    (consumer,) = net.link(node).consumers.values()
    keys = list(consumer.in_flight)
    call, cast = node.take(Kind.REQUEST), node.take(Kind.CAST)
    node.send(Kind.REPLY, key=call.key, format=1, attempt=7)
    node.send(Kind.SETTLE, SETTLEMENT.pack(cast.key, 7, Outcome.OK, 0))
    assert net.router.dispatch.requests.counters == {
        "reply of an earlier attempt": 1,
        "settlement of an unknown cast": 1,
    }
    assert list(consumer.in_flight) == keys
