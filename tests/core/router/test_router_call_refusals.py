"""A call that nobody can take is refused at once, and says why."""

from __future__ import annotations

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import DETACH_BYTES, Flag, Kind
from tests.core.router.refusals import error_of


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
