"""Handlers of signals raise in the main thread of programs of plain threads, wherever Python runs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import rpcmq
from rpcmq.testing.processes import Program

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SCENARIOS = [
    "made", "connected", "subscribed", "unsubscribed", "closed", "started", "stopped", "called", "reported",
]  # fmt: skip


class Endpoint:
    def add(self, ctx: Any, a: int) -> int:
        return a

    def report(self, ctx: Any, times: int) -> int:
        request = rpcmq.current_request()
        assert request is not None
        for n in range(times):
            request.progress(n)
        return times


def run(url: str, every: int, again: int) -> None:
    """Run the scenarios with a signal at one of ``every`` steps, and a second one ``again`` steps later."""
    command = [sys.executable, str(HERE / "programs" / "interrupted.py"), url, str(every), str(again), *SCENARIOS]
    with Program(command, {"PYTHONPATH": str(ROOT)}, name="interrupted") as program:
        assert program.wait(600) == 0, program.said()
        assert program.lines == SCENARIOS


@pytest.mark.timeout(650)
def test_a_signal_leaves_nothing_half_made(router, serve):
    serve(Endpoint())
    run(router.url, 11, -1)


@pytest.mark.long
@pytest.mark.timeout(650)
@pytest.mark.parametrize("again", [-1, 0, 1, 2, 3, 5])
def test_one_or_two_signals_at_every_step_leave_nothing_half_made(router, serve, again):
    serve(Endpoint())
    run(router.url, 1, again)
