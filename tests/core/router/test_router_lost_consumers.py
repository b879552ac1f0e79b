"""A call whose consumer is lost ends, or goes to another one if it may."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind
from tests.core.router.refusals import error_of


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


@pytest.mark.parametrize("seconds", [0.2, 2])
def test_a_consumer_that_comes_back_is_told_that_others_have_what_it_had(
    net: Network, api: Process, node: Process, seconds: float
) -> None:
    """In front of what it is given from then on, and only if it was taken for lost."""
    node.register("compute", credit=1)
    api.cast("compute", flags=Flag.IDEMPOTENT)
    had = node.take(Kind.CAST)
    before = len(node.received)
    node.lose()
    net.advance(seconds)
    node.connect()
    net.advance(0)
    told = [message for message in node.received[before:] if message.kind in (Kind.REGISTERED, Kind.CAST)]
    if seconds < 0.5:
        assert not told
    else:
        restored, again = told
        assert restored.kind == Kind.REGISTERED and not any(restored.key) and restored.body == {"topic": "compute"}
        assert again.key == had.key and again.header.attempt == 1
