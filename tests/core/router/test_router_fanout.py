"""A fanout reaches each consumer, in the order of its sender's casts, within bounds."""

from __future__ import annotations

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind
from tests.core.router.mailboxes import dropped, payloads


def test_fanout_reaches_every_consumer_once(net: Network, api: Process):
    nodes = [net.process(f"node-{i}") for i in range(3)]
    for i, node in enumerate(nodes):
        node.register("compute", server=f"node-{i}", credit=2)
    api.cast("compute", payload=b"all", flags=Flag.FANOUT)
    assert [payloads(node.got(Kind.CAST)) for node in nodes] == [[b"all"]] * 3


def test_a_confirmed_fanout_tells_how_many_it_reached(net: Network, api: Process, node: Process):
    assert api.cast("compute", flags=Flag.FANOUT | Flag.CONFIRM).answers[0].payload == (0).to_bytes(4)
    node.register("compute")
    net.process("other").register("compute")
    assert api.cast("compute", flags=Flag.FANOUT | Flag.CONFIRM).answers[0].payload == (2).to_bytes(4)


def test_a_fanout_waits_for_each_consumer_that_is_busy(net: Network, api: Process, node: Process):
    free = net.process("free")
    node.register("compute", server="a")
    api.cast("compute", server="a", payload=b"busy")
    free.register("compute", server="b")
    api.cast("compute", payload=b"all", flags=Flag.FANOUT)
    assert payloads(free.got(Kind.CAST)) == [b"all"]
    busy = node.take(Kind.CAST)
    assert node.got(Kind.CAST) == []
    node.settle(busy)
    assert payloads(node.got(Kind.CAST)) == [b"all"]


def test_a_fanout_copy_keeps_its_place_among_the_senders_casts(api: Process, node: Process):
    node.register("compute")
    api.cast("compute", payload=b"0")
    api.cast("compute", payload=b"1")
    api.cast("compute", payload=b"2", flags=Flag.FANOUT)
    api.cast("compute", payload=b"3")
    seen = []
    while casts := node.got(Kind.CAST):
        seen += payloads(casts)
        node.settle(*casts)
    assert seen == [b"0", b"1", b"2", b"3"]


def test_a_fanout_without_consumers_is_counted(api: Process):
    api.cast("compute", flags=Flag.FANOUT)
    assert dropped(api, "compute") == {"no consumer": 1}


def test_a_mandatory_fanout_without_consumers_is_refused(api: Process):
    cast = api.cast("compute", flags=Flag.FANOUT | Flag.MANDATORY)
    assert cast.answers[0].outcome is Outcome.NO_CONSUMER


def test_a_slow_consumers_fanout_backlog_is_bounded_and_its_own(make_net):
    net = make_net(queue_max_messages=2)
    api, slow, fast = net.process("api"), net.process("slow"), net.process("fast")
    slow.register("compute")
    fast.register("compute", credit=100)
    for i in range(5):
        api.cast("compute", payload=b"%d" % i, flags=Flag.FANOUT)
    assert len(fast.got(Kind.CAST)) == 5
    assert dropped(api, "compute") == {"queue full": 2}
    seen = []
    while casts := slow.got(Kind.CAST):
        seen += payloads(casts)
        slow.settle(*casts)
    assert seen == [b"0", b"1", b"2"]


def test_a_fanout_is_not_given_to_a_consumer_that_does_not_accept_its_format(net: Network, api: Process):
    simple, node = net.process("simple", accepts=["json"]), net.process("node")
    simple.register("compute")
    node.register("compute")
    api.cast("compute", format=2, flags=Flag.FANOUT)
    assert simple.got(Kind.CAST) == [] and len(node.got(Kind.CAST)) == 1
    assert dropped(api, "compute") == {"format not accepted": 1}


def test_the_fanout_backlog_of_a_dead_consumer_is_counted_as_dropped(net: Network, api: Process, node: Process):
    node.register("compute")
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT)
    node.die()
    net.advance(1)
    assert dropped(api, "compute") == {"consumer lost": 1, "consumer left": 2}


def test_the_fanout_backlog_of_a_stopping_consumer_is_counted_as_dropped(net: Network, api: Process, node: Process):
    tag = node.register("compute")
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT)
    running = node.take(Kind.CAST)
    node.unregister(tag)
    node.settle(running)
    assert node.got(Kind.CAST) == []
    assert dropped(api, "compute") == {"consumer left": 2}


def test_what_a_stopping_consumer_leaves_behind_does_not_stay(make_net):
    net = make_net(mailbox_max_seconds=10.0, unclaimed_seconds=10.0)
    api, node, other = net.process("api"), net.process("node"), net.process("other")
    other.register("compute", credit=10)
    tag = node.register("compute")
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT)
    running = node.take(Kind.CAST)
    node.unregister(tag)
    node.settle(running)
    other.settle(*other.got(Kind.CAST))
    net.advance(60)
    assert len(net.router.dispatch.requests.deadlines.wheel) == 0
