"""Each call ends exactly once, and says why."""

from __future__ import annotations

import gc

import pytest

from rpcmq.core.router.model import Delivery, Request
from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import DETACH_BYTES, NO_TTL, Flag, Kind
from tests.core.router.tables import left_behind


def error_of(call: Call) -> tuple[Outcome, str, dict[str, object]]:
    body = call.end.body
    assert call.end.kind is Kind.ERROR
    return Outcome(body["outcome"]), body["text"], body["details"]


# --- results ---------------------------------------------------------------------------------


def test_what_has_ended_is_freed_at_once_and_not_by_the_collector(net: Network, api: Process, node: Process):
    def kept() -> int:
        return sum(isinstance(each, Request | Delivery) for each in gc.get_objects())

    node.register("compute")
    gc.collect()
    gc.disable()
    try:
        before = kept()
        for _ in range(3):
            api.request("compute", "reboot")
            node.reply(node.take(Kind.REQUEST), b"done")
            api.cast("compute", "log")
            node.settle(node.take(Kind.CAST))
            late = api.request("compute", "reboot")
            request = node.take(Kind.REQUEST)
            api.cancel(late)
            node.reply(request, b"too late")
        assert kept() == before
    finally:
        gc.enable()


def test_a_call_ends_with_the_reply(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", "reboot", b'{"id":17}', ttl=30, trace=b"00-trace")
    request = node.take(Kind.REQUEST)
    assert (str(request.address), request.method, request.payload) == ("compute", "reboot", b'{"id":17}')
    assert request.header.trace_length == 8 and request.header.ttl == 30_000
    assert net.router.in_flight == 1
    node.reply(request, b"done")
    assert call.end.kind is Kind.REPLY and call.end.payload == b"done"
    assert net.router.in_flight == 0


def test_a_call_ends_with_the_fault(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    node.fault(node.take(Kind.REQUEST), b"ValueError")
    assert call.end.kind is Kind.FAULT and call.end.payload == b"ValueError"


def test_large_payloads_travel_both_ways(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", payload=b"q" * DETACH_BYTES)
    request = node.take(Kind.REQUEST)
    assert request.payload == b"q" * DETACH_BYTES
    node.reply(request, b"r" * 5 * DETACH_BYTES)
    assert call.end.payload == b"r" * 5 * DETACH_BYTES


def test_replies_go_home_whatever_their_order(net: Network, node: Process):
    callers = [net.process(f"api-{i}") for i in range(3)]
    node.register("compute", credit=10)
    calls = [caller.request("compute", payload=b"%d" % i) for i, caller in enumerate(callers)]
    for request in reversed(node.got(Kind.REQUEST)):
        node.reply(request, b"for " + request.payload)
    assert [call.end.payload for call in calls] == [b"for 0", b"for 1", b"for 2"]


def test_a_process_may_call_itself(node: Process):
    node.register("compute")
    call = node.request("compute")
    node.reply(node.take(Kind.REQUEST), b"me")
    assert call.end.payload == b"me"


def test_a_second_reply_is_counted_and_goes_nowhere(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.reply(request)
    node.reply(request)
    assert len(call.ends) == 1
    assert net.router.dispatch.requests.counters["reply for an unknown call"] == 1
    assert net.link(node).counters["reply for an unknown call"] == 1


# --- timeouts --------------------------------------------------------------------------------


def test_timeout_of_a_call_to_a_topic_nobody_ever_served(net: Network, api: Process):
    call = api.request("compute", "reboot", server="node-7", ttl=30)
    net.advance(29.9)
    assert call.ends == []
    net.advance(0.2)
    assert error_of(call) == (
        Outcome.TIMEOUT,
        "queued 30.0 s: no consumer on 'compute.node-7' (never seen)",
        {
            "topic": "compute.node-7",
            "method": "reboot",
            "queued_seconds": pytest.approx(30.0, abs=0.02),
            "attempt": 0,
            "state": "queued",
            "consumers": 0,
        },
    )


def test_timeout_of_a_call_to_a_server_that_left(net: Network, api: Process, node: Process):
    node.register("compute", server="node-7")
    net.advance(300)
    node.stop()
    net.advance(180)
    call = api.request("compute", "reboot", server="node-7", ttl=60)
    net.advance(61)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.TIMEOUT
    assert text == "queued 60.0 s: no consumer on 'compute.node-7' (last seen 4 min ago)"
    assert details["state"] == "queued" and details["consumers"] == 0


def test_timeout_of_a_call_behind_a_busy_consumer(net: Network, api: Process, node: Process):
    node.register("compute", credit=2)
    running = [api.request("compute", ttl=100) for _ in range(2)]
    call = api.request("compute", ttl=5)
    net.advance(6)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.TIMEOUT
    assert text == "queued 5.0 s: all 1 consumers of 'compute' are busy (2 of 2 in flight)"
    assert details["consumers"] == 1 and details["state"] == "queued"
    assert [c.ends for c in running] == [[], []]


def test_timeout_of_a_call_that_runs(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", "reboot", ttl=3)
    net.advance(4)
    assert error_of(call) == (
        Outcome.TIMEOUT,
        "with node for 3.0 s, running",
        {
            "topic": "compute",
            "method": "reboot",
            "queued_seconds": 0.0,
            "attempt": 0,
            "server": "node",
            "server_seconds": pytest.approx(3.0, abs=0.02),
            "state": "running",
        },
    )


def test_timeout_of_a_call_that_waited_and_then_ran(net: Network, api: Process, node: Process):
    call = api.request("compute", ttl=3)
    net.advance(1)
    node.register("compute")
    net.advance(3)
    _, text, details = error_of(call)
    assert text == "with node for 2.0 s, running"
    assert details["queued_seconds"] == 1.0


def test_timeout_of_a_call_with_an_unresponsive_consumer(net: Network, api: Process, node: Process):
    node.register("compute")
    net.advance(1)
    call = api.request("compute", ttl=20)
    node.cut_off()
    net.advance(21)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.TIMEOUT
    assert text == "node stopped answering heartbeats 21 s ago, had it for 20.0 s"
    assert details["state"] == "unresponsive" and details["server"] == "node"


def test_timeout_of_a_call_queued_behind_an_unresponsive_consumer(net: Network, api: Process, node: Process):
    node.register("compute")
    node.cut_off()
    net.advance(15)
    call = api.request("compute", ttl=5)
    net.advance(6)
    _, text, details = error_of(call)
    assert text == "queued 5.0 s: no consumer on 'compute' answers (silent for 20 s: node)"
    assert details["consumers"] == 1


def test_a_call_without_a_ttl_gets_the_default_timeout(make_net):
    net = make_net(default_timeout_seconds=2.0)
    call = net.process("api").request("compute")
    net.advance(1.9)
    assert call.ends == []
    net.advance(0.2)
    assert call.end.outcome is Outcome.TIMEOUT


def test_an_absurd_ttl_is_cut_to_the_longest_allowed(make_net):
    net = make_net(max_ttl_seconds=5.0)
    call = net.process("api").request("compute", ttl=(NO_TTL - 1) / 1000)
    net.advance(5.1)
    assert call.end.outcome is Outcome.TIMEOUT


def test_a_ttl_of_zero_expires_at_once(net: Network, api: Process):
    call = api.request("compute", ttl=0)
    net.advance(0.05)
    assert call.end.outcome is Outcome.TIMEOUT


def test_a_queued_call_that_timed_out_never_runs(net: Network, api: Process, node: Process):
    api.request("compute", ttl=1)
    net.advance(2)
    node.register("compute")
    assert node.got(Kind.REQUEST) == []


def test_a_running_call_that_timed_out_is_cancelled_and_its_late_reply_ignored(
    net: Network, api: Process, node: Process
):
    node.register("compute")
    call = api.request("compute", ttl=1)
    request = node.take(Kind.REQUEST)
    net.advance(2)
    assert node.take(Kind.CANCEL).key == request.key
    node.reply(request, b"too late")
    assert call.end.outcome is Outcome.TIMEOUT
    assert net.router.dispatch.requests.counters["late replies"] == 1


def test_the_ttl_that_a_consumer_sees_is_what_remains(net: Network, api: Process, node: Process):
    api.request("compute", ttl=10)
    net.advance(4)
    node.register("compute")
    assert node.take(Kind.REQUEST).header.ttl == 6_000


def test_no_ttl_stays_no_ttl_however_long_it_waited(net: Network, api: Process, node: Process):
    api.request("compute")
    net.advance(4)
    node.register("compute")
    assert node.take(Kind.REQUEST).header.ttl == NO_TTL


# --- refusals --------------------------------------------------------------------------------


def test_a_mandatory_call_fails_at_once_when_nobody_ever_consumed(api: Process):
    call = api.request("compute", "reboot", server="node-7", flags=Flag.MANDATORY)
    assert error_of(call) == (
        Outcome.NO_CONSUMER,
        "no consumer on 'compute.node-7' (never seen)",
        {"topic": "compute.node-7", "method": "reboot"},
    )


def test_a_mandatory_call_fails_at_once_when_the_consumer_has_left(net: Network, api: Process, node: Process):
    tag = node.register("compute")
    net.advance(300)
    node.unregister(tag)
    net.advance(50)
    call = api.request("compute", flags=Flag.MANDATORY)
    assert error_of(call)[:2] == (Outcome.NO_CONSUMER, "no consumer on 'compute' (last seen 50 s ago)")


def test_a_mandatory_call_waits_for_a_consumer_that_is_busy(api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    call = api.request("compute", flags=Flag.MANDATORY)
    assert call.ends == []
    node.reply(node.take(Kind.REQUEST))
    node.reply(node.take(Kind.REQUEST), b"mandatory")
    assert call.end.payload == b"mandatory"


def test_a_call_is_refused_when_the_queue_is_full_by_number(make_net):
    net = make_net(queue_max_messages=2)
    api = net.process("api")
    waiting = [api.request("compute") for _ in range(2)]
    call = api.request("compute")
    outcome, text, details = error_of(call)
    assert outcome is Outcome.OVERLOADED
    assert text.startswith("'compute' is full: 2 messages, ") and text.endswith("; queue.max_messages = 2")
    assert isinstance(details.pop("queued_bytes"), int)
    assert details == {"topic": "compute", "queued": 2, "limit": "queue.max_messages", "limit_value": 2}
    assert [c.ends for c in waiting] == [[], []]
    assert net.router.in_flight == 2


def test_a_call_is_refused_when_the_queue_is_full_by_bytes(make_net):
    net = make_net(queue_max_bytes=1000)
    api = net.process("api")
    api.request("compute", payload=b"x" * 600)
    call = api.request("compute", payload=b"x" * 600)
    outcome, _, details = error_of(call)
    assert outcome is Outcome.OVERLOADED
    assert details["limit"] == "queue.max_bytes" and details["queued"] == 1
    assert api.request("compute", payload=b"x" * 100).ends == [], "a smaller one still fits"


def test_detached_payloads_count_for_the_bytes_of_a_queue(make_net):
    net = make_net(queue_max_bytes=10_000)
    call = net.process("api").request("compute", payload=b"x" * DETACH_BYTES)
    assert call.end.outcome is Outcome.OVERLOADED


def test_the_bytes_of_a_queue_are_given_back(make_net):
    net = make_net(queue_max_bytes=1000)
    api, node = net.process("api"), net.process("node")
    for _ in range(5):
        call = api.request("compute", payload=b"x" * 900, ttl=1)
        api.cancel(call)
        call = api.request("compute", payload=b"x" * 900, ttl=1)
        net.advance(2)
        assert call.end.outcome is Outcome.TIMEOUT
        call = api.request("compute", payload=b"x" * 900, ttl=1)
        tag = node.register("compute")
        node.reply(node.take(Kind.REQUEST))
        node.unregister(tag)
        assert call.end.outcome is Outcome.OK


def test_a_call_is_refused_when_the_router_has_too_many_in_flight(make_net):
    net = make_net(max_calls_in_flight=1)
    api = net.process("api")
    first = api.request("compute")
    call = api.request("compute")
    assert error_of(call) == (
        Outcome.OVERLOADED,
        "limit of calls in flight reached (call.max_in_flight = 1)",
        {"limit": "call.max_in_flight"},
    )
    api.cancel(first)
    assert api.request("compute").ends == []


def test_a_call_whose_format_no_consumer_accepts_is_refused(net: Network, api: Process):
    simple = net.process("simple", accepts=["json"])
    simple.register("compute")
    outcome, text, details = error_of(api.request("compute", format=2))
    assert outcome is Outcome.PROTOCOL
    assert text == "'compute' has no free consumer that accepts pickle payloads"
    assert details == {"accepts": 0b10}


def test_a_call_goes_to_the_consumer_that_accepts_its_format(net: Network, api: Process, node: Process):
    simple = net.process("simple", accepts=["json"])
    simple.register("compute", credit=5)
    node.register("compute", credit=5)
    for _ in range(3):
        api.request("compute", format=2)
    assert len(node.got(Kind.REQUEST)) == 3 and simple.got(Kind.REQUEST) == []


def test_a_queued_call_is_refused_by_the_consumer_that_comes_and_does_not_accept_its_format(net: Network, api: Process):
    call = api.request("compute", format=3)
    simple = net.process("simple", accepts=["json"])
    simple.register("compute")
    outcome, text, details = error_of(call)
    assert outcome is Outcome.PROTOCOL and details == {"accepts": 0b10}
    assert text == "simple does not accept dill payloads"
    assert simple.got(Kind.REQUEST) == []


# --- loss of the consumer --------------------------------------------------------------------


def test_a_call_in_flight_ends_with_link_lost_when_its_consumer_dies(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", "reboot", ttl=60)
    net.advance(7)
    node.die()
    net.advance(1)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.LINK_LOST
    assert text == "node went away (connection lost) after 7.5 s with the call; it may have run"
    assert details == {
        "topic": "compute",
        "method": "reboot",
        "server": "node",
        "server_seconds": pytest.approx(7.5, abs=0.3),
        "started": "unknown",
    }


def test_a_call_in_flight_ends_with_link_lost_when_its_consumer_says_goodbye(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    node.stop()
    assert call.end.outcome is Outcome.LINK_LOST
    assert "said goodbye" in call.end.body["text"]


def test_an_idempotent_call_goes_to_another_consumer(net: Network, api: Process, node: Process):
    other = net.process("other")
    node.register("compute")
    call = api.request("compute", flags=Flag.IDEMPOTENT)
    first = node.take(Kind.REQUEST)
    other.register("compute")
    node.die()
    net.advance(1)
    second = other.take(Kind.REQUEST)
    assert second.key == first.key
    assert (first.header.attempt, second.header.attempt) == (0, 1)
    other.reply(second, b"second try")
    assert call.end.payload == b"second try"


def test_an_idempotent_call_waits_for_another_consumer(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.IDEMPOTENT, ttl=60)
    node.die()
    net.advance(10)
    assert call.ends == []
    other = net.process("other")
    other.register("compute")
    other.reply(other.take(Kind.REQUEST), b"at last")
    assert call.end.payload == b"at last"


def test_deliveries_that_were_never_sent_go_to_another_consumer(net: Network, api: Process, node: Process):
    """The router finds the connection broken when it sends: the consumer cannot have started it."""
    other = net.process("other")
    node.register("compute", credit=5)
    node.lose(is_noticed=False)
    with net.together():
        call = api.request("compute")
        api.cast("compute", payload=b"cast")
    other.register("compute", credit=5)
    net.advance(1)
    assert node.got(Kind.REQUEST, Kind.CAST) == []
    request, cast = other.take(Kind.REQUEST), other.take(Kind.CAST)
    assert request.header.attempt == 0 and cast.payload == b"cast"
    other.reply(request, b"first try")
    assert call.end.payload == b"first try"


def test_the_reply_of_an_earlier_attempt_is_ignored(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.IDEMPOTENT)
    first = node.take(Kind.REQUEST)
    node.lose()
    net.advance(1)  # longer than the grace: the call is taken away from it
    node.connect()
    second = node.take(Kind.REQUEST)
    assert second.key == first.key and second.header.attempt == 1
    node.reply(first, b"of the first attempt")
    assert call.ends == []
    assert net.router.dispatch.requests.counters["reply of an earlier attempt"] == 1
    node.reply(second, b"of the second attempt")
    assert call.end.payload == b"of the second attempt"


def test_a_call_that_kills_its_consumers_is_not_given_to_all_of_them(net: Network, api: Process):
    call = api.request("compute", ttl=600, flags=Flag.IDEMPOTENT)
    attempts = []
    for number in range(20):
        node = net.process(f"node-{number}")
        node.register("compute")
        attempts += [m.header.attempt for m in node.got(Kind.REQUEST)]
        node.die()
        net.advance(1)
    assert attempts == [0, 1, 2, 3, 4]
    assert call.end.outcome is Outcome.LINK_LOST


def test_an_idempotent_call_is_refused_if_nobody_else_accepts_its_format(net: Network, api: Process, node: Process):
    simple = net.process("simple", accepts=["json"])
    simple.register("compute", credit=5)
    node.register("compute")
    call = api.request("compute", flags=Flag.IDEMPOTENT, format=2)
    assert len(node.got(Kind.REQUEST)) == 1
    node.die()
    net.advance(1)
    outcome, text, _ = error_of(call)
    assert outcome is Outcome.PROTOCOL and "accept" in text and "pickle payloads" in text


def test_an_idempotent_call_goes_to_the_one_who_accepts_its_format(net: Network, api: Process, node: Process):
    simple, other = net.process("simple", accepts=["json"]), net.process("other")
    node.register("compute")
    call = api.request("compute", flags=Flag.IDEMPOTENT, format=2)
    simple.register("compute", credit=5)
    other.register("compute", credit=5)
    api.request("compute", server="other")
    node.die()
    net.advance(1)
    assert simple.got(Kind.REQUEST) == []
    assert [m.key for m in other.got(Kind.REQUEST)] == [call.key]


def test_the_order_of_calls_is_kept_when_they_go_to_another_consumer(net: Network, api: Process, node: Process):
    node.register("compute", credit=3)
    for i in range(5):
        api.request("compute", payload=b"%d" % i, flags=Flag.IDEMPOTENT)
    node.die()
    other = net.process("other")
    other.register("compute", credit=5)
    net.advance(1)
    assert [m.payload for m in other.got(Kind.REQUEST)] == [b"3", b"4", b"0", b"1", b"2"]


def test_those_not_started_come_before_what_still_waits(net: Network, api: Process, node: Process):
    node.register("compute", credit=3)
    for i in range(5):
        api.request("compute", payload=b"%d" % i, flags=Flag.IDEMPOTENT)
    node.die()
    net.advance(1)
    other = net.process("other")
    other.register("compute", credit=5)
    assert [m.payload for m in other.got(Kind.REQUEST)] == [b"0", b"1", b"2", b"3", b"4"]


# --- cancel ----------------------------------------------------------------------------------


def test_a_cancelled_call_that_is_queued_never_runs(net: Network, api: Process, node: Process):
    call = api.request("compute")
    api.cancel(call)
    node.register("compute")
    assert node.got(Kind.REQUEST) == [] and call.answers == []
    assert net.router.in_flight == 0


def test_a_cancelled_call_that_runs_is_told(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    api.cancel(call)
    assert net.router.in_flight == 0
    assert node.take(Kind.CANCEL).key == request.key
    waiting = api.request("compute")
    assert node.got(Kind.REQUEST) == [], "the cancelled one still has the only credit"
    node.reply(request, b"anyway")
    assert call.answers == []
    node.reply(node.take(Kind.REQUEST), b"next")
    assert waiting.end.payload == b"next"


def test_a_call_cannot_be_cancelled_by_another_process(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    net.process("mallory").cancel(call)
    assert node.got(Kind.CANCEL) == []
    node.reply(node.take(Kind.REQUEST))
    assert call.end.outcome is Outcome.OK


def test_cancelling_what_has_ended_changes_nothing(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST))
    api.cancel(call)
    assert len(call.ends) == 1 and node.got(Kind.CANCEL) == []


def test_calls_of_a_caller_that_leaves_are_cancelled(net: Network, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    api.request("compute")
    request = node.take(Kind.REQUEST)
    api.stop()
    assert node.take(Kind.CANCEL).key == request.key
    assert net.router.in_flight == 0
    node.reply(request)
    assert node.got(Kind.REQUEST) == [], "the queued one is gone too"


# --- streams ---------------------------------------------------------------------------------


def test_a_stream_brings_its_items_and_ends(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    for i in range(3):
        node.item(request, b"%d" % i)
    node.end(request)
    assert [m.payload for m in call.answers if m.kind is Kind.ITEM] == [b"0", b"1", b"2"]
    assert call.end.kind is Kind.END


def test_items_put_the_deadline_off(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM, ttl=10)
    request = node.take(Kind.REQUEST)
    for _ in range(5):
        net.advance(8)
        node.item(request)
    assert call.ends == []
    net.advance(11)
    assert call.end.outcome is Outcome.TIMEOUT


def test_signs_of_life_reach_the_caller_and_do_not_put_the_deadline_off(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", ttl=10)
    request = node.take(Kind.REQUEST)
    net.advance(8)
    node.alive(request, b"80 %")
    assert api.take(Kind.ALIVE).payload == b"80 %"
    net.advance(3)
    assert call.end.outcome is Outcome.TIMEOUT


def test_grants_reach_the_consumer(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    api.grant(call, 16)
    grant = node.take(Kind.GRANT)
    assert grant.key == request.key and grant.payload == (16).to_bytes(4)


def test_grants_for_what_is_queued_or_has_ended_go_nowhere(api: Process, node: Process):
    call = api.request("compute", flags=Flag.STREAM)
    api.grant(call, 16)
    node.register("compute")
    node.end(node.take(Kind.REQUEST))
    api.grant(call, 16)
    assert node.got(Kind.GRANT) == []


def test_items_after_the_end_go_nowhere(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    node.end(request)
    node.item(request, b"late")
    assert [m.kind for m in call.answers] == [Kind.END]
    assert net.router.dispatch.requests.counters["item of an unknown call"] == 1


def test_items_of_a_cancelled_stream_go_nowhere(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    api.cancel(call)
    node.item(request, b"late")
    assert call.answers == []


# --- nothing stays ---------------------------------------------------------------------------


def test_calls_leave_nothing_however_they_end(make_net):
    net = make_net(mailbox_max_seconds=20.0, unclaimed_seconds=10.0, resume_seconds=5.0, queue_max_messages=3)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=2)
    calls = [api.request("compute", ttl=1) for _ in range(6)]  # 2 in flight, 3 queued, 1 refused
    api.cancel(calls[2])
    node.reply(node.take(Kind.REQUEST))
    node.die()
    net.advance(2)
    calls += [api.request("compute", flags=Flag.MANDATORY), api.request("nowhere", ttl=2)]
    net.advance(10)
    assert [len(c.ends) for c in calls] == [1, 1, 0, 1, 1, 1, 1, 1]
    api.stop()
    net.advance(60)
    assert left_behind(net.router) == {}
