"""The example of two routers, as a reader starts it in two terminals."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rpcmq.testing import eventually
from rpcmq.testing.processes import Program

CHECKOUT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long, pytest.mark.timeout(240)]


def terminal(name: str) -> Program:
    return Program([sys.executable, "-m", "examples.mesh", name], {"PYTHONPATH": str(CHECKOUT)}, name=name)


def press_ctrl_c(program: Program, router: int) -> None:
    """Interrupt the program, and its router if a terminal would."""
    if os.path.exists(f"/proc/{router}") and os.getpgid(router) == os.getpgid(program.pid):
        os.kill(router, signal.SIGINT)
    os.kill(program.pid, signal.SIGINT)


def has_said(program: Program, *patterns: str) -> bool:
    """Return whether its last line has all of ``patterns``."""
    return bool(program.lines) and all(re.search(pattern, program.lines[-1]) for pattern in patterns)


@pytest.fixture
def routers() -> Iterator[list[int]]:
    """The process ids of routers, which are not to outlive a test that fails."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_each_terminal_is_served_by_both_and_goes_on_when_its_router_is_killed(routers: list[int]) -> None:
    both = r"clock-a: a \(pid", r"clock-b: b \(pid"
    with terminal("a") as a, terminal("b") as b:
        routers += [int(program.expect(r"router [ab]: .*, pid (\d+)")[1]) for program in (a, b)]
        eventually(lambda: has_said(a, *both) and has_said(b, *both), 60)
        os.kill(routers[0], signal.SIGKILL)
        before = len(a.lines)
        eventually(lambda: len(a.lines) > before and has_said(a, *both), 60)
        press_ctrl_c(a, routers[0])
        eventually(lambda: has_said(b, "clock-a: NoConsumer", both[1]), 60)
        press_ctrl_c(b, routers[1])
        assert b.wait(60) == 0 and not re.search("Interrupt|second signal", b.said()), b.said()
