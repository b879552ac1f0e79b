"""Each check of a mesh's history finds the history that breaks it, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.drill.history import Event, What
from tests.faults.mesh_checks import MeshChecker

Line = tuple[What, str, str, dict[str, Any]]


def sent(id: str, verb: str = "call", process: str = "c0#1", **fields: Any) -> Line:
    return What.SUBMIT, process, id, {"verb": verb, "topic": "compute", "idempotent": False, "server": ""} | fields


def started(id: str, process: str = "s0#2", topic: str = "compute") -> Line:
    return What.START, process, id, {"topic": topic, "attempt": 0}


def ended(id: str, outcome: str = "ok", process: str = "c0#1", **fields: Any) -> Line:
    return What.END, process, id, {"outcome": outcome} | fields


def found(*lines: Line, is_gentle: bool = True, is_stable: bool = False) -> list[str]:
    """The names of the checks that ``lines`` violate."""
    checker = MeshChecker(is_gentle, is_stable)
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
