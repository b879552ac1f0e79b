"""Payloads that travel in frames of their own, from programs of each kind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rpcmq.testing import InProcessRouter
from rpcmq.testing.processes import Program

PROGRAM = Path(__file__).parent / "programs/large_payloads.py"


@pytest.mark.parametrize(("kind", "shell"), [("plain", "auto"), ("plain", "gevent"), ("patched", "auto")])
def test_large_payloads_arrive_in_both_directions_and_with_their_neighbours(
    router: InProcessRouter, kind: str, shell: str
) -> None:
    with Program([sys.executable, str(PROGRAM), kind, router.url], {"RPCMQ_SHELL": shell}) as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines[-1:] == ["arrived (40000, 70000, 1048576, 5242880)"]
    assert not router.query("summary")["refused"]
