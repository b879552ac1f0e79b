"""Shadow mode with two real routers: what an operator sees before cutting over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program, RouterProcess

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parent / "programs" / "shadowed.py"


def program(router: RouterProcess, *arguments: str) -> Program:
    return Program([sys.executable, str(PROGRAM), *arguments], {"RPCMQ_ROUTER": router.url}, name=arguments[0])


def test_reading_calls_are_compared_with_those_of_another_router():
    with (
        RouterProcess() as ours,
        RouterProcess() as theirs,
        program(ours, "serve", "active") as one,
        program(theirs, "serve", "error") as two,
    ):
        one.expect("serving")
        two.expect("serving")
        with program(ours, "call", theirs.url) as caller:
            assert caller.wait(30) == 0, caller.said()
            assert [line for line in caller.lines if line.startswith("first")] == ["first says active"] * 2
            assert "reply.state is 'active', there 'error'" in caller.said()
            assert caller.lines[-1] == "counts {'different': 1}"


def test_a_second_backend_that_is_not_there_is_not_felt():
    with RouterProcess() as ours, program(ours, "serve", "active") as one:
        one.expect("serving")
        with program(ours, "call", "tcp://127.0.0.1:1") as caller:
            assert caller.wait(60) == 0, caller.said()
            assert [line for line in caller.lines if line.startswith("first")] == ["first says active"] * 2
            assert "get_state failed: RPCException" in caller.said()
            assert caller.lines[-1] == "counts {'failed': 1}"
