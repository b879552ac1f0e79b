"""Children that multiprocessing makes, in each of its ways: each has a connection of its own, and loses nothing."""

from __future__ import annotations

import sys

import pytest

from tests.programs.groups import CHECKOUT, PROGRAMS, Group

QUICK = ("fork", "process")
CASES = [(method, kind) for method in ("fork", "spawn", "forkserver") for kind in ("process", "pool", "executor")]


@pytest.mark.parametrize(
    ("method", "kind"), [case if case == QUICK else pytest.param(*case, marks=pytest.mark.long) for case in CASES]
)
def test_children_call_and_cast_beside_their_parent(cloud, method, kind):
    command = [sys.executable, str(PROGRAMS / "children.py"), method, kind]
    casts = [f"i-{number}-{n}" for number in range(3) for n in range(10)]
    with Group(command, {**cloud.environment, "PYTHONPATH": str(CHECKOUT)}, "children") as program:
        program.expect("^called")
        cloud.expect_casts(casts)
        # Of a pool one child may have had all the work.
        links = cloud.expect_links(4) if kind == "process" else cloud.processes()
        assert 2 <= len(links) == len({link["pid"] for link in links}) <= 4
        program.tell("")
        program.expect("^ended")
        (parent,) = cloud.expect_links(1)
        assert parent["identity"] in {link["identity"] for link in links}
        if kind == "process":
            cloud.expect_casts([f"last-{number}" for number in range(3)])
        program.tell("")
        assert program.wait(40) == 0, program.said()
        states = [] if kind == "process" else [str([f"state of i-{number}" for number in range(3)])]
        ended = "ended [0, 0, 0]" if kind == "process" else "ended"
        assert program.lines == ["state of i-1", *states, "called", ended, "state of i-2"]
    cloud.expect_casts(["parent"])
    cloud.expect_nobody()
