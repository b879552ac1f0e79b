"""Each check of a mesh's history finds the history that breaks it, and no other."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from rpcmq.drill.history import Event, What
from tests.faults.mesh_checks import MeshChecker
from tests.faults.simulated_process import Seen

Line = tuple[str, str, str, dict[str, Any]]


def sent(id: str, verb: str = "call", process: str = "c0#1", **fields: Any) -> Line:
    return What.SUBMIT, process, id, {"verb": verb, "topic": "compute", "idempotent": False, "server": ""} | fields


def started(id: str, process: str = "s0#2", topic: str = "compute", **fields: Any) -> Line:
    return What.START, process, id, {"topic": topic, "attempt": 0} | fields


def ended(id: str, outcome: str = "ok", process: str = "c0#1", **fields: Any) -> Line:
    return What.END, process, id, {"outcome": outcome} | fields


def item(number: int, id: str = "1", of: str = "1") -> Line:
    return Seen.ITEM, "c0#1", id, {"number": number, "of": of}


def serves(process: str, group: str = "") -> Line:
    return Seen.SERVES, process, "compute", {"server": "", "group": group}


def published(id: str, topic: str = "net.up") -> Line:
    return What.SUBMIT, "e0#4", id, {"verb": "event", "topic": topic}


def got(id: str, topic: str = "net.up", process: str = "e1#5") -> Line:
    return Seen.EVENT, process, id, {"topic": topic}


def fault(kind: str = "cut", target: str = "ab") -> Line:
    return What.FAULT, "drill", kind, {"target": target}


def healed(kind: str = "cut", target: str = "ab") -> Line:
    return What.HEALED, "drill", kind, {"target": target}


def found(*lines: Line, is_gentle: bool = True, is_stable: bool = False, patience: float = inf) -> list[str]:
    """The names of the checks that ``lines``, one each second, violate."""
    checker = MeshChecker(is_gentle, is_stable, patience)
    for number, (what, process, id, fields) in enumerate(lines):
        checker.see(Event(float(number), process, what, id, fields))
    return [violation.check for violation in checker.finish().violations]


WELL = (sent("1"), started("1"), ended("1", of="1"), sent("2", "cast"), started("2"))


def test_a_history_in_which_all_is_well() -> None:
    assert found(*WELL) == found(*WELL, is_stable=True) == found(*WELL, is_gentle=False) == []


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        ((sent("1"), started("1"), started("1", "s1#3"), ended("1")), "started twice"),
        ((sent("1", "cast"), started("1"), started("1")), "started twice"),
        ((sent("1"), started("1"), ended("1"), ended("1")), "ended twice"),
        ((sent("1"), started("1")), "never ended"),
        ((sent("1", "cast", confirm=True), started("1")), "never ended"),
        ((sent("1"), started("1"), ended("1", process="c1#9")), "misrouted"),
        ((sent("1"), started("1"), ended("1", of="7")), "misrouted"),
        ((sent("1"), started("1", topic="network"), ended("1")), "misrouted"),
        ((sent("1"), ended("1")), "answered by nobody"),
        ((sent("1"), started("1"), ended("1", "link_lost")), "no result"),
        ((sent("1"), ended("1", "timeout")), "no result"),
        ((sent("1", "cast"),), "lost"),
    ],
)
def test_each_check_finds_its_violation(lines: tuple[Line, ...], check: str) -> None:
    assert found(*lines) == [check]


def test_an_answer_and_a_start_of_what_nobody_sent() -> None:
    assert found(started("1"), ended("2")) == ["misrouted", "misrouted"]


def test_an_idempotent_message_may_start_twice() -> None:
    assert found(sent("1", idempotent=True), started("1"), started("1"), ended("1")) == []


def test_where_several_things_fail_a_call_may_be_lost_and_must_end() -> None:
    assert found(sent("1"), started("1"), ended("1", "link_lost"), sent("2", "cast"), is_gentle=False) == []
    assert found(sent("1"), started("1"), ended("1", "TypeError"), is_gentle=False) == ["no result"]
    assert found(sent("1"), started("1"), is_gentle=False) == ["never ended"]
    assert found(sent("1"), started("1"), started("1"), ended("1"), is_gentle=False) == ["started twice"]


def test_the_call_of_a_caller_that_was_killed_need_not_end() -> None:
    assert found(sent("1"), (What.FAULT, "drill", "kill", {"target": "c0"}), is_gentle=False) == []


def test_order_matters_where_nothing_fails() -> None:
    casts = (sent("1", "cast"), sent("2", "cast"), started("2"), started("1"))
    assert found(*casts, is_stable=True) == ["order"]
    assert found(*casts) == []
    elsewhere = (sent("1", "cast"), sent("2", "cast"), started("2", "s1#3"), started("1"))
    to_one = (sent("1", "cast"), sent("2", "cast", server="s0"), started("2"), started("1"))
    assert found(*elsewhere, is_stable=True) == found(*to_one, is_stable=True) == []


STREAM = sent("1", "stream", items=2, timeout=60.0), started("1")


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        ((*STREAM, item(0), item(1), item(1), ended("1")), "items"),
        ((*STREAM, item(1), ended("1", "remote_error")), "items"),
        ((*STREAM, item(0), ended("1")), "items"),
        ((*STREAM, item(0), item(1), ended("1"), item(2)), "items"),
        ((*STREAM, item(0), item(1, of="7"), ended("1")), "misrouted"),
        ((*STREAM, item(0), item(1), ended("1"), ended("1")), "ended twice"),
        ((*STREAM, item(0), item(1)), "never ended"),
        ((*STREAM, started("1", "s1#3"), item(0), item(1), ended("1")), "started twice"),
        (
            (sent("1", timeout=2.0), started("1"), sent("2", "fanout"), sent("3", "fanout"), ended("1", "timeout")),
            "overdue",
        ),
        ((sent("1", timeout=300.0), ended("1", "timeout")), "no result"),
        ((sent("1", "fanout"), started("1"), started("1")), "copied twice"),
        ((sent("1", "cast"), started("1"), started("1", group="g"), started("1", "s1#3", group="g")), "copied twice"),
    ],
)
def test_each_check_of_streams_copies_and_times_finds_its_violation(lines: tuple[Line, ...], check: str) -> None:
    assert found(*lines) == [check]


def test_streams_copies_and_times_that_are_well() -> None:
    assert found(*STREAM, item(0), item(1), ended("1")) == []
    assert found(*STREAM, item(0), ended("1", "remote_error")) == []
    assert found(*STREAM, item(0), ended("1", "link_lost")) == [], "nobody goes on with the streams of a dead router"
    assert found(*STREAM, item(0), ended("1", "link_lost"), is_stable=True) == ["no result"]
    assert found(sent("1", timeout=2.0), started("1"), ended("1", "timeout")) == []
    assert found(sent("1", timeout=300.0), started("1"), ended("1", "cancelled")) == []
    assert found(sent("1", "fanout"), started("1"), started("1", "s1#3")) == []
    assert found(sent("1", "cast"), started("1"), started("1", group="g"), started("1", group="h")) == []


def test_a_caller_that_was_stopped_may_be_late_by_that() -> None:
    stopped = fault("stop", "c0"), sent("9", "fanout"), sent("8", "fanout"), healed("stop", "c0")
    assert found(sent("1", timeout=2.0), started("1"), *stopped, ended("1", "timeout")) == []
    assert found(sent("1", timeout=2.0), started("1"), fault("stop", "c0"), ended("1")) == []


def test_where_nothing_fails_every_consumer_and_group_gets_its_copy() -> None:
    here = serves("s0#2"), serves("s1#3"), serves("s1#3", "g")
    well = (
        sent("1", "fanout"),
        started("1"),
        started("1", "s1#3"),
        sent("2", "cast"),
        started("2"),
        started("2", group="g"),
    )
    assert found(*here, *well, is_stable=True) == []
    for missing in (1, 2, 5):
        assert found(*here, *well[:missing], *well[missing + 1 :], is_stable=True) == ["copy missed"]
        assert found(*here, *well[:missing], *well[missing + 1 :]) == []


def test_where_nothing_fails_nothing_starts_after_its_end() -> None:
    late = sent("1", timeout=3.0), sent("2", "cast"), started("2"), ended("1", "timeout"), started("1")
    assert found(*late, is_stable=True) == ["started late"]
    assert found(*late) == []


SUBSCRIBED: Line = (Seen.SUBSCRIBED, "e1#5", "net.*", {})


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        ((published("1"), got("1"), got("1")), "event doubled"),
        ((published("1"), published("2"), got("2"), got("1")), "event order"),
        ((published("1"), published("2"), got("2")), "event missed"),
        ((published("1"), got("1"), got("7")), "misrouted"),
        ((published("1"), got("1", "net.down")), "misrouted"),
    ],
)
def test_each_check_of_events_finds_its_violation(lines: tuple[Line, ...], check: str) -> None:
    assert found(SUBSCRIBED, *lines) == [check]


def test_events_around_a_fault_may_be_missed_or_come_late_and_never_twice() -> None:
    assert found(SUBSCRIBED, published("1"), got("1"), published("2", "disk")) == []
    assert found(SUBSCRIBED, fault(), published("1"), healed()) == []
    assert found(SUBSCRIBED, fault(), healed(), published("1")) == [], "not converged"
    assert found(SUBSCRIBED, published("1"), fault(), healed()) == [], "under way"
    quiet = [published(f"{n}", "disk") for n in range(2, 30)]
    assert found(SUBSCRIBED, fault(), healed(), *quiet, published("1")) == ["event missed"]
    assert found(SUBSCRIBED, fault(), published("1"), published("2"), got("2"), got("1"), healed()) == []
    assert found(SUBSCRIBED, fault(), published("1"), got("1"), got("1"), healed()) == ["event doubled"]
    assert found(SUBSCRIBED, published("1"), fault("kill", "e1"), healed("kill", "e1")) == []


ISOLATED, BACK = fault("isolate router", "c"), healed("isolate router", "c")
LOST = sent("1"), started("1"), ISOLATED, sent("2", "cast"), sent("3", "fanout"), ended("1", "link_lost")


def test_messages_are_given_up_while_a_router_is_cut_off_for_longer_than_others_wait_for_its_word() -> None:
    assert found(*LOST, BACK, patience=2.5) == []
    assert found(*LOST, BACK, patience=3.5) == ["no result"], "too early"
    assert found(*LOST, BACK, patience=4.5) == ["no result", "lost"], "not cut off for that long"
    assert found(*LOST, BACK) == ["no result", "lost"]
    for kind in ("stop router", "cut routers", "kill router"):
        other = fault(kind, "c"), healed(kind, "c")
        assert found(*LOST[:2], other[0], *LOST[3:], other[1], patience=2.5) == ["no result", "lost"]


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        ((sent("4", "cast"),), "lost"),
        ((sent("4"), started("4"), ended("4", "link_lost")), "no result"),
        ((sent("4"), started("4"), ended("4", "timeout")), "no result"),
    ],
)
def test_all_that_is_sent_after_a_router_was_cut_off_counts(lines: tuple[Line, ...], check: str) -> None:
    assert found(*LOST, BACK, *lines, patience=2.5) == [check]


def test_messages_that_may_start_twice_count_also_while_a_router_is_cut_off() -> None:
    here = ISOLATED, *(sent(f"{n}", "fanout") for n in range(2, 6))
    call = sent("1", idempotent=True), started("1")
    assert found(*call, *here, ended("1", "link_lost"), BACK, patience=2.5) == ["no result"]
    assert found(sent("1", "cast", idempotent=True), *here, BACK, patience=2.5) == ["lost"]
    assert found(sent("1"), started("1"), started("1"), *here, ended("1"), BACK, patience=2.5) == ["started twice"]
    assert found(sent("1"), started("1"), *here, BACK, patience=2.5) == ["never ended"]


def test_a_router_may_be_cut_off_again_meanwhile() -> None:
    assert found(*LOST, ISOLATED, BACK, BACK, is_gentle=False) == []
