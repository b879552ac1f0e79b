"""The sentences: what they say in each case is held by the tests of calls; here, how they say it."""

from __future__ import annotations

import pytest

from rpcmq.core.common.text import shorten
from rpcmq.core.router.roundrobin.explain import ago
from rpcmq.testing.network import Network
from rpcmq.wire import Flag, Kind


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s ago"),
        (0.4, "0 s ago"),
        (119, "119 s ago"),
        (120, "2 min ago"),
        (240, "4 min ago"),
        (7199, "120 min ago"),
        (7200, "2 h ago"),
        (172_799, "48 h ago"),
        (172_800, "2 days ago"),
        (10_000_000, "116 days ago"),
    ],
)
def test_a_rough_age(seconds: float, text: str):
    assert ago(seconds) == text


def test_a_long_text_is_cut():
    assert shorten("short") == "short"
    assert shorten("x" * 500) == "x" * 500
    assert shorten("x" * 501) == "x" * 497 + "..."


def test_a_queue_that_is_full_says_with_what(make_net):
    net = make_net(queue_max_messages=2)
    api = net.process("api")
    api.cast("compute", payload=b"x" * 50)
    api.cast("compute", payload=b"x" * 50)
    (error,) = api.cast("compute").answers
    assert error.body["text"] == "'compute' is full: 2 messages, 200 bytes wait; queue.max_messages = 2"


def test_the_methods_name_goes_with_the_fields(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", exchange="nova")
    call = api.request("compute", "reboot", server="node-7", exchange="nova", ttl=1)
    net.advance(2)
    assert call.end.body["details"]["topic"] == "nova/compute.node-7"
    assert call.end.body["details"]["method"] == "reboot"


def test_the_number_of_the_attempt_goes_with_the_fields(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    call = api.request("compute", ttl=10, flags=Flag.IDEMPOTENT)
    node.lose()
    net.advance(1)
    node.connect()
    net.advance(20)
    assert call.end.body["details"]["attempt"] == 1
    assert call.end.body["text"].startswith("with node for ")


def test_silence_is_told_by_the_one_heard_last(net: Network):
    api, a, b = net.process("api"), net.process("a"), net.process("b")
    a.register("compute")
    b.register("compute")
    a.cut_off()
    net.advance(30)
    b.cut_off()
    net.advance(20)
    call = api.request("compute", ttl=1)
    net.advance(2)
    assert call.end.kind is Kind.ERROR
    assert call.end.body["text"] == "queued 1.0 s: no consumer on 'compute' answers (silent for 21 s: b)"
