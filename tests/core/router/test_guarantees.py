"""Faults of the table in docs/guarantees.md that concern several engines at once, at the times that it states."""

from __future__ import annotations

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind

DEFAULTS = Settings()


def attempts_until(net: Network, kind: Kind, consumers: int) -> list[int]:
    """Let consumers come one after the other, each of which dies with what it was given; the attempts they saw."""
    seen = []
    for number in range(consumers):
        node = net.process(f"node-{number}")
        node.register("compute")
        seen += [m.header.attempt for m in node.got(kind)]
        node.die()
        net.advance(1)
    return seen


def test_an_idempotent_cast_is_given_to_five_consumers_at_most(net: Network, api: Process):
    api.cast("compute", flags=Flag.IDEMPOTENT)
    assert attempts_until(net, Kind.CAST, 10) == [0, 1, 2, 3, 4]
    assert api.query("summary")["dropped"] == {"cast": {"consumer lost": 1}}


def test_consumers_are_counted_anew_after_a_restart_of_the_router(net: Network, api: Process):
    call = api.request("compute", ttl=600, flags=Flag.IDEMPOTENT)
    assert attempts_until(net, Kind.REQUEST, 3) == [0, 1, 2]
    net.restart_router()
    api.connect()
    again = api.request("compute", ttl=600, key=call.key, flags=Flag.IDEMPOTENT)
    assert attempts_until(net, Kind.REQUEST, 10) == [0, 1, 2, 3, 4]
    assert again.end.outcome is Outcome.LINK_LOST


def test_queued_calls_of_a_caller_that_dies_are_kept_for_a_while(net: Network, api: Process):
    api.request("compute", ttl=600)
    api.request("compute", ttl=600)
    api.cast("compute", ttl=600)
    api.die()
    net.advance(DEFAULTS.resume_seconds - 1)
    node = net.process("node")
    node.register("compute", credit=1)
    started = node.take(Kind.REQUEST)
    assert net.router.in_flight == 2
    net.advance(2)
    assert node.take(Kind.CANCEL).key == started.key, "what runs is told"
    node.reply(started)
    assert [m.kind for m in node.got(Kind.REQUEST, Kind.CAST)] == [Kind.CAST], "the other call never starts"


def test_a_consumer_that_never_answers_keeps_a_place_until_its_link_ends(net: Network, api: Process):
    node = net.process("node")
    node.register("compute", credit=2)
    calls = [api.request("compute", ttl=5) for _ in range(3)]
    assert len(node.got(Kind.REQUEST)) == 2
    net.advance(6)
    assert [call.end.outcome for call in calls] == [Outcome.TIMEOUT] * 3
    late = api.request("compute", ttl=600)
    net.advance(60)
    assert node.got(Kind.REQUEST) == [] and late.ends == []
    node.die()
    net.advance(1)
    other = net.process("other")
    other.register("compute")
    other.reply(other.take(Kind.REQUEST))
    assert late.end.outcome is Outcome.OK


def test_a_consumer_whose_host_vanishes(net: Network, api: Process):
    """Nothing says that its connection is dead: silence does, and after 60 s the transport's heartbeats."""
    node, other = net.process("node"), net.process("other")
    node.register("compute", credit=5)
    plain, again = api.request("compute", ttl=600), api.request("compute", ttl=600, flags=Flag.IDEMPOTENT)
    api.cast("compute")
    assert len(node.got(Kind.REQUEST, Kind.CAST)) == 3
    node.cut_off()
    other.register("compute", credit=5)
    net.advance(DEFAULTS.unresponsive_seconds - 1)
    assert net.link(node).is_responsive, "until then it gets work"
    net.advance(2)
    assert not net.link(node).is_responsive
    api.request("compute", ttl=600)
    assert len(other.got(Kind.REQUEST)) == 1, "new work goes elsewhere"
    net.advance(40)
    assert plain.ends == [] and other.got(Kind.REQUEST) == []
    net.lose_at_router(node)
    net.advance(DEFAULTS.consumer_grace_seconds + 0.1)
    assert plain.end.outcome is Outcome.LINK_LOST
    assert [m.key for m in other.got(Kind.REQUEST)] == [again.key]
    assert api.query("summary")["dropped"] == {"call": {"consumer lost": 1}, "cast": {"consumer lost": 1}}


def test_answers_that_nobody_gets_are_counted_with_their_reason(net: Network, api: Process):
    node, operator = net.process("node"), net.process("operator")
    node.register("compute", credit=3)
    for ttl in (5, 600, 600):
        api.request("compute", ttl=ttl)
    late, *others = node.got(Kind.REQUEST)
    net.advance(6)
    node.reply(late)
    api.lose()
    node.reply(others[0])
    net.advance(DEFAULTS.resume_seconds + 1)
    node.reply(others[1])
    counters = operator.query("summary")["counters"]
    assert (counters["late replies"], counters["answers to ended links"]) == (2, 1)
