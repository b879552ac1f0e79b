"""A mandatory call that waits for busy consumers ends when the last of them goes."""

from __future__ import annotations

import pytest

from rpcmq.core.router.roundrobin.deadlines import ENDED_AT_ONCE
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind
from tests.core.router.refusals import error_of


@pytest.fixture
def api(net: Network) -> Process:
    return net.process("api")


@pytest.fixture
def node(net: Network) -> Process:
    return net.process("node")


def dropped(api: Process) -> dict[str, int]:
    """The number of calls that were dropped, by reason."""
    return {row["reason"]: row["count"] for row in api.query("dropped")["dropped"]}


def test_it_ends_with_no_consumer_when_the_only_one_stops(api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    call, patient = api.request("compute", flags=Flag.MANDATORY), api.request("compute")
    node.stop()
    outcome, text, details = error_of(call)
    assert (outcome, text) == (Outcome.NO_CONSUMER, "no consumer on 'compute' (last seen 0 s ago)")
    assert details["topic"] == "compute"
    assert patient.ends == [], "one that is not mandatory waits for the next consumer"
    assert dropped(api) == {"consumer lost": 1, "no consumer": 1}


def test_it_does_not_wait_for_what_a_leaving_consumer_still_runs(api: Process, node: Process):
    tag = node.register("compute")
    running = api.request("compute")
    call = api.request("compute", flags=Flag.MANDATORY)
    node.unregister(tag)
    assert error_of(call)[0] is Outcome.NO_CONSUMER
    node.reply(node.take(Kind.REQUEST), b"done")
    assert running.end.payload == b"done"


def test_a_consumer_whose_connection_is_lost_has_its_grace(net: Network, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    call = api.request("compute", flags=Flag.MANDATORY)
    net.lose_at_router(node)
    net.advance(net.settings.consumer_grace_seconds - 0.1)
    assert call.ends == []
    net.advance(0.2)
    assert error_of(call)[0] is Outcome.NO_CONSUMER


def test_it_waits_as_long_as_there_is_another_consumer(net: Network, api: Process, node: Process):
    other = net.process("other")
    for each in (node, other):
        each.register("compute")
        api.request("compute")
    call = api.request("compute", flags=Flag.MANDATORY)
    node.stop()
    assert call.ends == []
    other.reply(other.take(Kind.REQUEST))
    other.reply(other.take(Kind.REQUEST), b"mandatory")
    assert call.end.payload == b"mandatory"


def test_that_to_a_server_ends_when_this_server_goes(net: Network, api: Process, node: Process):
    other = net.process("other")
    for each in (node, other):
        each.register("compute", server=each.identity)
        api.request("compute", server=each.identity)
    call = api.request("compute", server="node", flags=Flag.MANDATORY)
    to_any = api.request("compute", flags=Flag.MANDATORY)
    node.stop()
    assert error_of(call)[1] == "no consumer on 'compute.node' (last seen 0 s ago)"
    assert to_any.ends == []


def test_an_idempotent_one_that_a_lost_consumer_had_may_have_run(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.MANDATORY | Flag.IDEMPOTENT)
    node.take(Kind.REQUEST)
    node.stop()
    outcome, text, details = error_of(call)
    assert outcome is Outcome.LINK_LOST
    assert text == "no consumer on 'compute' (last seen 0 s ago); the one that had it is lost, so it may have run"
    assert details["started"] == "unknown"
    assert dropped(api) == {"consumer lost": 1}


def test_a_cast_was_accepted_and_waits(net: Network, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    cast = api.cast("compute", flags=Flag.MANDATORY | Flag.CONFIRM)
    node.stop()
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM]
    heir = net.process("heir")
    heir.register("compute")
    assert heir.got(Kind.CAST)


def test_it_waits_for_consumers_that_may_come_back_after_a_restart(make_net):
    net = make_net(recovery_seconds=2.0)
    api, node = net.process("api"), net.process("node")
    for _ in range(2):
        tag = node.register("compute", credit=0)
        call = api.request("compute", flags=Flag.MANDATORY)
        node.unregister(tag)
    net.advance(1.0)
    assert call.ends == []
    net.advance(1.5)
    assert error_of(call)[0] is Outcome.NO_CONSUMER


def test_many_end_a_bounded_number_at_a_time_and_who_comes_meanwhile_gets_the_others(
    net: Network, api: Process, node: Process
):
    tag = node.register("compute")
    api.request("compute")
    calls = [api.request("compute", flags=Flag.MANDATORY) for _ in range(ENDED_AT_ONCE + 20)]
    with net.together():
        node.unregister(tag)
        node.register("compute", credit=1000)
    assert [call.end.outcome for call in calls[:ENDED_AT_ONCE]] == [Outcome.NO_CONSUMER] * ENDED_AT_ONCE
    assert len(node.got(Kind.REQUEST)) == 1 + 20


def test_all_of_many_end(net: Network, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    calls = [api.request("compute", flags=Flag.MANDATORY) for _ in range(2 * ENDED_AT_ONCE + 10)]
    node.stop()
    net.advance(0.1)
    assert {call.end.outcome for call in calls} == {Outcome.NO_CONSUMER}
