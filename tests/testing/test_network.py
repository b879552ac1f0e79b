"""The virtual network itself: it must lose, delay and hold up what it is told to, and nothing else."""

from __future__ import annotations

import pytest

from rpcmq.core.router.link_states import LinkState
from rpcmq.testing.network import Network
from rpcmq.wire import Kind


def test_a_conversation(net: Network):
    """As the documentation shows it."""
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=2)
    call = api.request("compute", "reboot", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"


def test_what_is_not_there_cannot_be_taken(net: Network):
    node = net.process("node")
    node.register("compute")
    with pytest.raises(AssertionError, match=r"node has no REQUEST, but \[<REGISTERED 1 "):
        node.take(Kind.REQUEST)


def test_a_call_that_has_not_ended_has_no_end(net: Network):
    call = net.process("api").request("compute")
    with pytest.raises(AssertionError, match="has ended 0 times"):
        _ = call.end


def test_got_takes_what_is_asked_for_and_leaves_the_rest(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=3)
    api.request("compute")
    api.cast("compute")
    assert [m.kind for m in node.got(Kind.CAST)] == [Kind.CAST]
    assert [m.kind for m in node.got()] == [Kind.REGISTERED, Kind.REQUEST]
    assert node.got() == [] and len(node.received) == 3


def test_a_query_that_the_router_refuses_is_a_failure(net: Network):
    with pytest.raises(AssertionError, match="no view 'nonsense'"):
        net.process("api").query("nonsense")


def test_a_process_that_the_router_does_not_know_has_no_link(net: Network):
    api = net.process("api")
    api.stop()
    with pytest.raises(LookupError, match="no link of api"):
        net.link(api)


def test_what_is_sent_together_is_one_batch(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=10)
    batches: list[bytes] = []
    receive = net.router.receive

    def spy(now: float, route: bytes, batch: bytes, payloads: list[bytes], user: str) -> None:
        batches.append(batch)
        receive(now, route, batch, payloads, user)

    net.router.receive = spy  # type: ignore[assignment]
    with net.together():
        for _ in range(3):
            api.cast("compute")
        assert batches == [] and node.got(Kind.CAST) == []
    assert len(batches) == 1 and len(node.got(Kind.CAST)) == 3


def test_time_stands_still_but_for_advance(net: Network):
    before = net.now
    api = net.process("api")
    call = api.request("compute", ttl=5)
    assert net.now == before
    net.advance(4.9)
    assert net.now == pytest.approx(before + 4.9) and call.ends == []
    net.advance(0.2)
    assert call.ends != []


def test_a_delay_holds_each_way_and_keeps_the_order(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=5)
    node.delay = 0.5
    api.cast("compute", payload=b"0")
    node.delay = 0.1
    api.cast("compute", payload=b"1")
    net.advance(0.4)
    assert node.got(Kind.CAST) == [], "nothing overtakes on one connection"
    net.advance(0.2)
    assert [m.payload for m in node.got(Kind.CAST)] == [b"0", b"1"]


def test_a_partition_holds_up_and_loses_nothing(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=5)
    node.cut_off()
    api.cast("compute", payload=b"to")
    node.cast("elsewhere", payload=b"from")
    net.advance(1)
    assert node.got(Kind.CAST) == [] and len(net.router.directory) == 1
    node.heal()
    assert len(node.got(Kind.CAST)) == 1 and len(net.router.directory) == 2


def test_a_broken_connection_loses_what_was_under_way(net: Network):
    """The session sends it again; the connection does not."""
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=5)
    node.cut_off()
    api.cast("compute")
    node.lose()
    node.heal()
    assert node.got(Kind.CAST) == [] and not node.uplink.ready
    node.connect()
    assert len(node.got(Kind.CAST)) == 1


def test_a_loss_that_is_not_noticed_is_noticed_when_the_router_sends(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    node.lose(is_noticed=False)
    assert net.link(node).is_responsive
    api.cast("compute")
    assert net.link(node).state is LinkState.AWAY


def test_a_dead_connection_is_noticed_in_the_end(make_net):
    net = make_net(resume_seconds=1000.0, unresponsive_seconds=500.0)
    node = net.process("node")
    old = net.link(node).route
    node.cut_off()
    node.connect()  # nothing of it gets through
    net.advance(59)
    assert net.link(node).route == old
    net.advance(2)
    assert net.link(node).state is LinkState.AWAY
    node.heal()
    assert net.link(node).is_responsive and net.link(node).route != old


def test_a_router_that_restarts_knows_nobody(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    boot = net.router.boot
    net.restart_router()
    assert len(net.router.links) == 0 and net.router.boot > boot
    api.connect()
    node.connect()
    assert not node.welcomes[-1].resumed and len(net.router.links) == 2


def test_bytes_can_be_injected_past_every_rule(net: Network):
    (answer,) = net.inject(b"stranger", b"garbage")
    assert answer.kind is Kind.REFUSED
    api = net.process("api")
    api.inject(b"garbage")
    assert api.refusals[0][0] == "protocol"


def test_an_engine_that_never_rests_is_told(net: Network):
    net.router.next_deadline = lambda: net.now  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="keeps asking for a tick at the same time"):
        net.advance(1)


def test_engines_that_talk_for_ever_are_told(net: Network):
    api = net.process("api")
    api.uplink.handle(Kind.ERROR, lambda now, message: api.uplink.send(message))
    net.router.kinds.handlers[Kind.ERROR] = lambda now, link, message: link.send(message)
    net._is_holding = True
    api.send(Kind.ERROR)
    net._is_holding = False
    with pytest.raises(RuntimeError, match="do not come to rest"):
        net.run()
