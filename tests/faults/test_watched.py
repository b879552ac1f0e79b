"""The history of a drill has all that its router does, in order and in everybody's words."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from rpcmq.client.arguments import trace_context
from rpcmq.core.router.model import Link
from rpcmq.core.router.settings import Settings
from rpcmq.drill.faults import FAULTS
from rpcmq.drill.history import Event, What
from rpcmq.drill.names import named, trace_id_of, traceparent_of
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology
from rpcmq.drill.watched import WatchedRouter
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network
from rpcmq.wire import Flag, Kind, payload_of


class Seen:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def accepted(self, message: bytes) -> None:
        self.events.append(("accepted", bytes(payload_of(message)).decode()))

    def dispatched(self, message: bytes, link: Link, attempt: int) -> None:
        self.events.append(("dispatched", bytes(payload_of(message)).decode(), link.identity, str(attempt)))

    def settled(self, message: bytes, outcome: int) -> None:
        self.events.append(("settled", bytes(payload_of(message)).decode(), Outcome(outcome).name))

    def declared(self, link: Link) -> None:
        self.events.append(("declared", link.identity, link.state.value))


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def net(seen: Seen) -> Network:
    settings = Settings(recovery_seconds=0.0, queue_max_messages=2, consumer_grace_seconds=0.0)
    return Network(settings, engine=partial(WatchedRouter, seen))


def test_a_call_is_accepted_and_then_dispatched(net: Network, seen: Seen):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1)
    seen.events.clear()
    api.request("compute", "boot", payload=b"a")
    api.request("compute", "boot", payload=b"b")
    assert seen.events == [("accepted", "a"), ("dispatched", "a", "node", "0"), ("accepted", "b")]
    node.reply(node.take(Kind.REQUEST), b"done")
    assert seen.events[3:] == [("dispatched", "b", "node", "0")]


def test_what_is_refused_is_not_accepted(net: Network, seen: Seen):
    api = net.process("api")
    seen.events.clear()
    api.request("compute", "boot", payload=b"a", flags=Flag.MANDATORY)
    for name in (b"b", b"c", b"d"):
        api.request("compute", "boot", payload=name)
    assert seen.events == [("accepted", "b"), ("accepted", "c")]


def test_each_copy_of_a_fanout(net: Network, seen: Seen):
    api, one, two = net.process("api"), net.process("one"), net.process("two")
    one.register("compute")
    two.register("compute")
    seen.events.clear()
    api.cast("compute", "boot", payload=b"a", flags=Flag.FANOUT)
    assert seen.events[0] == ("accepted", "a")
    assert set(seen.events[1:]) == {("dispatched", "a", "one", "0"), ("dispatched", "a", "two", "0")}


def test_how_casts_end(net: Network, seen: Seen):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1)
    api.cast("compute", "boot", payload=b"a")
    api.cast("compute", "boot", payload=b"b")
    seen.events.clear()
    node.settle(node.take(Kind.CAST))
    node.lose()
    net.advance(1.0)
    assert seen.events == [
        ("settled", "a", "OK"), ("dispatched", "b", "node", "0"), ("declared", "node", "away"),
        ("settled", "b", "LINK_LOST"),
    ]  # fmt: skip


def test_each_consumer_that_had_it(net: Network, seen: Seen):
    api, one = net.process("api"), net.process("one")
    one.register("compute")
    api.request("compute", "boot", payload=b"a", flags=Flag.IDEMPOTENT)
    two = net.process("two")
    two.register("compute")
    seen.events.clear()
    one.lose()
    net.advance(1.0)
    assert seen.events == [("declared", "one", "away"), ("dispatched", "a", "two", "1")]


def test_a_router_says_of_whom_it_thinks_what_before_it_acts(net: Network, seen: Seen):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    node.lose()
    api.request("compute", "boot", payload=b"a")
    node.connect()
    assert seen.events[-4:] == [
        ("declared", "node", "away"), ("accepted", "a"), ("declared", "node", "answering"),
        ("dispatched", "a", "node", "0"),
    ]  # fmt: skip


# --- names --------------------------------------------------------------------------------------


def test_a_trace_context_is_made_of_any_id():
    for id in ("c0#12-123456", "x", "a name that is longer than sixteen bytes-1", "ü#1-1"):
        sent = trace_context(traceparent_of(id)).decode()
        assert sent[3:35] == trace_id_of(id)


def test_the_routers_events_are_put_into_the_words_of_the_others():
    first, second, unknown = map(trace_id_of, ("c0#2-1", "c0#2-2", "another"))
    submits = [
        Event(1.5, "c0#2", What.SUBMIT, "c0#2-1", {"verb": "call"}),
        Event(3.5, "c0#2", What.SUBMIT, "c0#2-2", {"verb": "call"}),
    ]
    events = [
        Event(0.9, "router", What.DECLARED, "aa", {"state": "answering"}),
        Event(1.0, "s0#1", What.LINKED, "", {"resumed": False, "link": "aa"}),
        submits[0],
        Event(2.0, "router", What.ACCEPT, first, {}),
        Event(2.0, "router", What.DISPATCH, first, {"to": "aa", "attempt": 0}),
        Event(2.1, "router", What.DISPATCH, unknown, {"to": "aa", "attempt": 0}),
        Event(3.0, "router", What.DECLARED, "aa", {"state": "away"}),
        Event(3.1, "s0#3", What.LINKED, "", {"resumed": False, "link": "bb"}),
        submits[1],
        Event(4.0, "router", What.DISPATCH, second, {"to": "bb", "attempt": 1}),
        Event(4.1, "router", What.DISPATCH, second, {"to": "cc", "attempt": 2}),
    ]
    assert list(named(events)) == [
        events[1],
        submits[0],
        Event(2.0, "router", What.ACCEPT, "c0#2-1", {}),
        Event(2.0, "router", What.DISPATCH, "c0#2-1", {"to": "s0#1", "attempt": 0}),
        Event(3.0, "router", What.DECLARED, "s0#1", {"state": "away"}),
        events[7],
        submits[1],
        Event(4.0, "router", What.DISPATCH, "c0#2-2", {"to": "s0#3", "attempt": 1}),
        Event(4.1, "router", What.DISPATCH, "c0#2-2", {"to": "cc", "attempt": 2}),
    ]


# --- real processes -----------------------------------------------------------------------------


def starts_and_dispatches(events: list[Event]) -> tuple[Counter[tuple[str, str, int]], Counter[tuple[str, str, int]]]:
    """Of each, how often there was one of that id, process and attempt."""
    starts = Counter((e.id, e.process, e.fields["attempt"]) for e in events if e.what == What.START)
    sent = Counter((e.id, e.fields["to"], e.fields["attempt"]) for e in events if e.what == What.DISPATCH)
    return starts, sent


@pytest.mark.integration
@pytest.mark.fault
def test_a_drill_has_each_dispatch_also_of_a_router_that_is_killed(tmp_path: Path):
    verbs = {"call": 3.0, "cast": 2.0, "fanout": 1.0}
    topology = Topology(services=2, workers=8, rate=200.0, verbs=verbs, handler_seconds=(0.0, 0.01), idempotent=0.5)
    with Drill(topology, 12, tmp_path) as drill:
        drill.load(600)
        drill.hog(drill.services[0], 0.1)
        FAULTS["router"](drill, drill.rng, 0.2)
        FAULTS["kill"](drill, drill.rng, 0.1)
        drill.wait_sent(60.0)
        result = drill.finish()
        events = list(drill.events())
    assert [str(violation) for violation in result.verdict.violations] == []
    starts, sent = starts_and_dispatches(events)
    assert len(starts) > 600 and {process for _, process, _ in starts} >= {"s0#1", "s1#2"}
    assert not starts - sent
    (killed,) = (event.at for event in events if (event.what, event.fields.get("target")) == (What.FAULT, "router"))
    assert any(event.what == What.DISPATCH and killed - 0.5 < event.at < killed for event in events)
    # What the router has taken and what nobody was asked to keep is all that there is.
    accepted = {event.id for event in events if event.what == What.ACCEPT}
    assert {event.id for event in events if event.what == What.CONFIRM} <= accepted
    assert {id for id, _, _ in sent} <= accepted


@pytest.mark.integration
@pytest.mark.fault
def test_a_router_whose_disk_is_full_writes_its_part_afterwards(tmp_path: Path):
    with Drill(Topology(services=1, rate=200.0), 14, tmp_path) as drill:
        drill.load(200)
        FAULTS["disk-full"](drill, drill.rng, 0.3)
        drill.wait_sent(60.0)
        assert drill.finish().verdict.ok
        starts, sent = starts_and_dispatches(list(drill.events()))
    assert len(starts) >= 190 and not starts - sent


@pytest.mark.integration
@pytest.mark.fault
def test_the_log_of_the_configuration_is_left_alone(tmp_path: Path):
    config = tmp_path / "router.toml"
    config.write_text(f'[dispatch_log]\ndirectory = "{tmp_path / "theirs"}"\n')
    with Drill(Topology(services=1, rate=100.0, router_config=str(config)), 15, tmp_path / "drill") as drill:
        drill.load(20)
        drill.wait_sent(60.0)
        assert drill.finish().verdict.ok
    assert not (tmp_path / "theirs").exists()
    assert list((tmp_path / "drill" / "dispatch-log" / "spool").iterdir())


@pytest.mark.integration
@pytest.mark.fault
def test_a_router_with_a_log_of_its_own_keeps_it(tmp_path: Path):
    own = tmp_path / "own"
    topology = Topology(services=1, rate=100.0, router={"dispatch_log_directory": str(own)})
    with Drill(topology, 13, tmp_path / "drill") as drill:
        drill.load(50)
        drill.wait_sent(60.0)
        assert drill.finish().verdict.ok
        starts, sent = starts_and_dispatches(list(drill.events()))
    assert list((own / "spool").iterdir())
    assert not (tmp_path / "drill" / "dispatch-log").exists()
    assert starts and starts == sent
