"""What the dispatch log says becomes events of the history, at the right time and of the right life; and is checked."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rpcmq.client.arguments import trace_context
from rpcmq.drill.checks import Verdict, check
from rpcmq.drill.dispatches import Dispatch, events_of, read_log, trace_id_of, traceparent_of
from rpcmq.drill.faults import FAULTS
from rpcmq.drill.history import Event, What, merged
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology
from rpcmq.latency.record import SpoolError
from tests.latency.spools import BOOT, Sent, spooled

#: What is lost of the log with a router that is killed: what ended in its last second, and a busy machine (seconds).
LOST = 1.5

Line = tuple[float, str, What, str, dict[str, Any]]


def numbers(dispatches: list[Dispatch]) -> list[tuple[int, float]]:
    """Which record, and how many seconds after the router's start."""
    return [(int.from_bytes(d.trace_id, "little"), round(d.at - 1000.0, 5)) for d in dispatches]


def test_a_trace_context_is_made_of_any_id():
    for id in ("c0#12-123456", "x", "a name that is longer than sixteen bytes-1", "ü#1-1"):
        sent = trace_context(traceparent_of(id)).decode()
        assert bytes.fromhex(sent[3:35]) == trace_id_of(id)


def test_records_that_reached_a_consumer(tmp_path: Path):
    # Those with even numbers have no trace id; the eleventh reached nobody.
    spooled(tmp_path, [Sent(1, 1.0, 0.5), Sent(2, 1.0), Sent(3, 2.0, 0.25), Sent(11, 3.0)], final=True)
    log = read_log(tmp_path)
    assert numbers(log.dispatches) == [(1, 1.5), (3, 2.25)]
    assert [(d.to, d.attempt) for d in log.dispatches] == [("node-1:nova:4711:abcd", 1), ("node-3:nova:4711:abcd", 0)]
    assert log.is_complete


def test_a_call_that_took_long_is_in_the_log_twice(tmp_path: Path):
    spooled(tmp_path, in_flight=[Sent(9, 1.0, 0.25, 1.0), Sent(13, 1.0, 0.25, 1.0)])
    # The second one has gone to another consumer since.
    spooled(tmp_path, [Sent(9, 1.0, 0.25, 3.0), Sent(13, 1.0, 1.75, 1.0)], segment=2, final=True)
    assert numbers(read_log(tmp_path).dispatches) == [(9, 1.25), (13, 1.25), (13, 2.75)]


def test_several_lives(tmp_path: Path):
    # The first is killed while it writes its second block of a hundred.
    spooled(tmp_path, [Sent(n, n / 100, 0.0) for n in range(1, 102)], in_flight=[Sent(101, 1.01, 0.0)], cut=-200)
    assert not read_log(tmp_path).is_complete
    spooled(tmp_path, [Sent(1, 70.0, 0.5)], boot=BOOT + 60_000, final=True)
    log = read_log(tmp_path)
    killed = [n for n in range(1, 101, 2) if n % 11]
    assert [number for number, _ in numbers(log.dispatches)] == [*killed, 1]
    assert numbers(log.dispatches)[-1] == (1, 70.5) and log.is_complete


def test_a_log_with_gaps_is_not_complete(tmp_path: Path):
    assert not read_log(tmp_path).is_complete
    spooled(tmp_path, [Sent(1)], final=True, dropped=3)
    assert not read_log(tmp_path).is_complete


def test_damage_is_told(tmp_path: Path):
    path = spooled(tmp_path, [Sent(1)], final=True)
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
    with pytest.raises(SpoolError, match="checksum"):
        read_log(tmp_path)


def test_a_router_that_died_at_once(tmp_path: Path):
    spooled(tmp_path, cut=20)
    assert read_log(tmp_path).dispatches == []


def test_events_name_the_id_and_the_life():
    history = [
        Event(1.0, "s0#1", What.LINKED, "", {"resumed": False}),
        Event(2.0, "c0#2", What.SUBMIT, "c0#2-1", {"verb": "call"}),
        Event(9.0, "s0#1", What.LINKED, "", {"resumed": True}),
        Event(20.0, "s0#3", What.LINKED, "", {"resumed": False}),
        Event(21.0, "c0#2", What.SUBMIT, "c0#2-2", {"verb": "call"}),
    ]
    first, second, unknown = map(trace_id_of, ("c0#2-1", "c0#2-2", "another"))
    dispatches = [
        Dispatch(21.1, second, "s0", 1),
        Dispatch(19.5, first, "s0", 0),
        # The router has read its clock before the process was linked, and has sent it something in the same step.
        Dispatch(19.99, first, "s0", 0),
        Dispatch(2.1, first, "s0", 0),
        Dispatch(2.2, first, "s7", 0),
        Dispatch(2.3, unknown, "s0", 0),
    ]
    assert list(events_of(dispatches, history)) == [
        Event(2.1, "router", What.DISPATCH, "c0#2-1", {"to": "s0#1", "attempt": 0}),
        Event(2.2, "router", What.DISPATCH, "c0#2-1", {"to": "s7", "attempt": 0}),
        Event(19.5, "router", What.DISPATCH, "c0#2-1", {"to": "s0#1", "attempt": 0}),
        Event(19.99, "router", What.DISPATCH, "c0#2-1", {"to": "s0#3", "attempt": 0}),
        Event(21.1, "router", What.DISPATCH, "c0#2-2", {"to": "s0#3", "attempt": 1}),
    ]


# --- what is checked ----------------------------------------------------------------------------


def verdict_on(*lines: Line) -> Verdict:
    return check(sorted((Event(*line) for line in lines), key=lambda event: event.at))


def run(id: str = "c-1", attempt: int = 0, process: str = "s", at: float = 1.0) -> list[Line]:
    """A call that is run and answered."""
    fields = {"verb": "call", "topic": "t", "idempotent": True, "confirm": False, "timeout": 10.0}
    return [
        (at, "c", What.SUBMIT, id, fields),
        (at + 0.2, process, What.START, id, {"topic": "t", "attempt": attempt}),
        (at + 0.3, process, What.FINISH, id, {"failed": False}),
        (at + 0.4, "c", What.END, id, {"outcome": "ok", "of": id}),
    ]


def sent(to: str, at: float = 1.1, attempt: int = 0, id: str = "c-1") -> Line:
    return at, "router", What.DISPATCH, id, {"to": to, "attempt": attempt}


def seen(at: float, state: str = "unresponsive") -> list[Line]:
    """The router was asked for its opinion of ``s``."""
    taken: Line = (at, "drill", What.TAKEN, "s", {"taken": 5})
    return [*([taken] if state == "unresponsive" else []), (at, "drill", What.DECLARED, "s", {"state": state})]


def fault(at: float, kind: str, target: str) -> Line:
    return at, "drill", What.FAULT, kind, {"target": target}


BACK = [fault(0.1, "kill", "router"), (0.2, "drill", What.HEALED, "kill", {"target": "router"})]
#: The log is complete.
LOGGED: Line = (90.0, "drill", What.COUNTED, "", {"dispatches": 1})
LINKED: Line = (0.5, "s", What.LINKED, "", {"resumed": False})

NOT_DISPATCHED: dict[str, list[Line]] = {
    "to nobody": [LINKED, *run(), LOGGED],
    "to another": [LINKED, *run(), sent("s2"), LOGGED],
    "at another attempt": [LINKED, *run(attempt=1), sent("s"), LOGGED],
    "after the router's return": [*BACK, LINKED, *run(), LOGGED],
}

DISPATCHED: dict[str, list[Line]] = {
    "to the one": [LINKED, *run(), sent("s"), LOGGED],
    "to the one, by a router that has looked at its clock before": [LINKED, *run(), sent("s", 0.99), LOGGED],
    "and the log is not complete": [LINKED, *run()],
    "by a router that was killed since": [
        *run(), fault(5, "kill", "router"), (6, "drill", What.HEALED, "kill", {"target": "router"}), LOGGED,
    ],
    "to one that was killed, and to another": [*run(), fault(1.5, "kill", "s"), LOGGED],
    "to one that lost its link, and came back": [LINKED, *run(), (2, "s", What.LINKED, "", {"resumed": True}), LOGGED],
    "to one that was stopped, and to another": [*run(), sent("s2", 1.9, 1), fault(1.15, "stop", "s"), LOGGED],
    "to all of a fanout": [
        (1, "c", What.SUBMIT, "c-1", {"verb": "fanout"}), sent("s"), sent("s2"),
        (1.2, "s", What.START, "c-1", {"topic": "", "attempt": 0}),
        (1.2, "s2", What.START, "c-1", {"topic": "", "attempt": 0}), LOGGED,
    ],
}  # fmt: skip


@pytest.mark.parametrize("lines", NOT_DISPATCHED.values(), ids=NOT_DISPATCHED.keys())
def test_a_start_that_was_not_dispatched_is_found(lines: list[Line]):
    (violation,) = (v for v in verdict_on(*lines).violations if v.check != "slow recovery")
    assert violation.check == "not dispatched" and violation.ids == ("c-1", "s")


@pytest.mark.parametrize("lines", DISPATCHED.values(), ids=DISPATCHED.keys())
def test_a_start_whose_dispatch_is_known_or_may_be_lost(lines: list[Line]):
    assert [v for v in verdict_on(*lines).violations if v.check != "slow recovery"] == []


def test_sent_between_two_looks_at_which_it_was_silent():
    verdict = verdict_on(*seen(1.0), *run(), sent("s", 1.1), *seen(1.21), *seen(1.42, "answering"))
    (violation,) = verdict.violations
    assert violation.check == "sent to a silent process" and violation.ids == ("c-1", "s")


@pytest.mark.parametrize(
    "lines",
    [
        [*seen(1.0), sent("s", 1.1), *seen(1.3, "answering")],
        # While the router was asked: it may have answered just after.
        [*seen(1.0), sent("s", 1.25), *seen(1.3), *seen(1.5, "answering")],
        # Time enough to answer and to be silent again.
        [*seen(1.0), sent("s", 1.1), *seen(15.0)],
        [*seen(1.0), sent("s", 1.1), fault(1.2, "kill", "router"), *seen(1.3)],
        [*seen(1.0), *seen(1.2, "answering"), sent("s", 1.3), *seen(14.0)],
    ],
)
def test_sent_to_one_that_may_have_answered(lines: list[Line]):
    assert [v for v in verdict_on(*run(), *lines).violations if v.check == "sent to a silent process"] == []


# --- real processes -----------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.fault
def test_a_drill_has_a_dispatch_for_each_start(tmp_path: Path):
    verbs = {"call": 3.0, "cast": 2.0, "fanout": 1.0}
    topology = Topology(services=2, workers=8, rate=200.0, verbs=verbs, handler_seconds=(0.0, 0.01))
    with Drill(topology, 12, tmp_path) as drill:
        drill.load(600)
        drill.hog(drill.services[0], 0.1)
        FAULTS["router"](drill, drill.rng, 0.2)
        FAULTS["kill"](drill, drill.rng, 0.1)
        drill.wait_sent(60.0)
        result = drill.finish()
    assert [str(violation) for violation in result.verdict.violations] == []
    events = list(merged(drill.histories))
    sent_at: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
    for event in events:
        if event.what == What.DISPATCH:
            sent_at[event.id, event.fields["to"], event.fields["attempt"]].append(event.at)
    (killed,) = (event.at for event in events if (event.what, event.fields.get("target")) == (What.FAULT, "router"))
    starts = [event for event in events if event.what == What.START]
    assert len(starts) > 600 and {event.process for event in starts} >= {"s0#1", "s1#2"}
    for start in starts:
        known = sent_at[start.id, start.process, start.fields["attempt"]]
        assert (known and min(known) <= start.at) or killed - LOST < start.at < killed + LOST
    assert any(event.what == What.DISPATCH and event.at < killed for event in events) or killed - starts[0].at < LOST
    assert next(e.fields["dispatches"] for e in reversed(events) if "dispatches" in e.fields) == sum(
        map(len, sent_at.values())
    )


@pytest.mark.integration
@pytest.mark.fault
def test_a_router_with_a_log_of_its_own_keeps_it(tmp_path: Path):
    own = tmp_path / "own"
    topology = Topology(services=1, rate=100.0, router={"dispatch_log_directory": str(own)})
    with Drill(topology, 13, tmp_path / "drill") as drill:
        drill.load(50)
        drill.wait_sent(60.0)
        assert drill.finish().verdict.ok
    assert list((own / "spool").iterdir())
    assert not (tmp_path / "drill" / "dispatch-log").exists()
    assert all(event.what != What.DISPATCH for event in merged(drill.histories))
