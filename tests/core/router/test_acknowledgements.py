"""The router tells the senders of casts which they need not keep, and so loses none when it is killed."""

from __future__ import annotations

import pytest

from rpcmq.core.router.roundrobin.acknowledgements import RECEIPTS
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Flag, Kind


@pytest.fixture
def net(make_net) -> Network:
    made: Network = make_net(recovery_seconds=1.0, queue_max_messages=300)
    made.advance(2)
    return made


def sender(net: Network, name: str = "api") -> Process:
    return net.process(name, keeps=True)


def told(process: Process) -> list[bytes]:
    """The sequences that it was told of."""
    payloads = [m.payload for m in process.inbox if m.kind is Kind.DELIVERED]
    return [payload[at : at + 8] for payload in payloads for at in range(0, len(payload), 8)]


def keys_of(*casts: Call) -> list[bytes]:
    return [cast.key[12:] for cast in casts]


def acknowledge(net: Network, process: Process) -> None:
    """The process says what it has received."""
    process.uplink.acknowledge()
    net.run()


def test_a_sender_is_told_when_the_consumer_has_the_cast(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute")
    net.advance(1)
    assert told(api) == [], "it may still be on its way"
    acknowledge(net, node)
    assert told(api) == [], "not at once"
    net.advance(0.2)
    assert told(api) == keys_of(cast)
    node.settle(node.take(Kind.CAST))
    net.advance(1)
    assert told(api) == keys_of(cast), "and not again"


def test_a_sender_is_told_at_once_when_the_router_ends(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute")
    node.settle(node.take(Kind.CAST))
    assert told(api) == []
    net.router.dispatch.requests.receipts.tell_all()
    net.run()
    assert told(api) == keys_of(cast)
    net.router.dispatch.requests.receipts.tell_all()
    net.advance(1)
    assert told(api) == keys_of(cast), "and not again"


def test_a_sender_is_told_of_what_was_settled_before_it_was_acknowledged(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute")
    node.settle(node.take(Kind.CAST))
    net.advance(0.2)
    assert told(api) == keys_of(cast)


def test_many_are_told_at_once_and_without_delay(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute", credit=300)
    casts = [api.cast("compute") for _ in range(RECEIPTS + 1)]
    acknowledge(net, node)
    assert told(api) == keys_of(*casts[:RECEIPTS])
    net.advance(0.2)
    assert told(api) == keys_of(*casts)


def test_what_waits_is_kept(net: Network):
    api = sender(net)
    api.cast("compute")
    net.advance(1)
    assert told(api) == []


def test_an_idempotent_cast_is_kept_until_it_has_ended(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute", flags=Flag.IDEMPOTENT)
    acknowledge(net, node)
    net.advance(1)
    assert told(api) == []
    node.settle(node.take(Kind.CAST))
    net.advance(0.2)
    assert told(api) == keys_of(cast)


def test_a_cast_that_expires_need_not_be_kept(net: Network):
    api = sender(net)
    cast = api.cast("compute", ttl=0.5)
    net.advance(2)
    assert told(api) == keys_of(cast)


def test_a_cast_that_is_lost_with_its_consumer_need_not_be_kept(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute")
    node.uplink.close()
    net.run()
    net.advance(0.2)
    assert told(api) == keys_of(cast)


def test_a_refused_cast_is_the_senders_affair(net: Network):
    api = sender(net)
    casts = [api.cast("compute") for _ in range(301)]
    assert [m.kind for m in casts[-1].answers] == [Kind.ERROR]
    net.advance(0.2)
    assert told(api) == []


def test_a_fanout_is_for_its_moment(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    api.cast("compute", flags=Flag.FANOUT)
    node.settle(node.take(Kind.CAST))
    net.advance(0.2)
    assert told(api) == []


def test_who_keeps_nothing_is_told_nothing(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    api.cast("compute")
    node.settle(node.take(Kind.CAST))
    net.advance(1)
    assert api.got(Kind.DELIVERED) == []


def test_after_a_restart_a_sender_is_told_of_what_a_consumer_had(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute")
    had = node.got(Kind.CAST)
    net.restart_router()
    api.connect()
    node.connect()
    node.register("compute", recent=b"".join(m.key for m in had).hex())
    api.cast("compute", key=cast.key, flags=Flag.RESENT)
    net.advance(1.2)
    assert told(api) == keys_of(cast)
    assert net.router.dispatch.requests.counters["duplicate casts dropped"] == 1


def test_a_sender_that_has_gone_is_told_nothing_and_nothing_is_left(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    api.cast("compute")
    node.settle(node.take(Kind.CAST))
    api.uplink.close()
    net.run()
    net.advance(0.2)
    assert net.router.dispatch.requests.receipts.next_deadline() is None


def test_a_sender_that_is_away_is_told_when_it_is_back(net: Network):
    api, node = sender(net), net.process("node")
    node.register("compute")
    cast = api.cast("compute")
    api.lose()
    node.settle(node.take(Kind.CAST))
    net.advance(0.2)
    api.connect()
    assert told(api) == keys_of(cast)
