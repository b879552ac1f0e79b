"""Programs of asyncio without gevent: threads and loops beside one another, forks, signals, and the end."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq.testing import eventually
from rpcmq.testing.processes import Program
from tests.client.endpoints import Compute, message

PROGRAM = Path(__file__).parent / "programs" / "edges.py"
CLOSED = "this client is closed"


@pytest.fixture(params=["asyncio", "uvloop"])
def start(request: pytest.FixtureRequest, router: Any) -> Any:
    def start(scenario: str) -> Program:
        quiet = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
        return Program([sys.executable, str(PROGRAM), router.url, request.param, scenario], quiet, name=scenario)

    return start


def test_casts_and_events_pending_at_the_end_of_the_program_arrive(start, serve, client):
    compute, events = Compute(), []
    serve(compute)
    client.subscribe("last", lambda ctx, topic, payload: events.append(payload))
    with start("ends_with_casts") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == []
    eventually(lambda: sorted(compute.seen) == list(range(1000)) and events == [1])


def test_threads_and_the_event_loops_of_several_threads_share_one_connection(start, serve):
    serve(Compute())
    with start("one_connection") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["3 [(1, 2), (1, 2), (1, 2)] 1 2"]


class Begun(Compute):
    def is_begun(self, ctx: Any) -> bool:
        return bool(self.started.is_set())


def test_an_event_loop_that_is_closed_under_a_call_cancels_it(start, serve):
    compute = Begun()
    serve(compute)
    with start("closed_under_a_call") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines[0] == "1 False"
    eventually(lambda: compute.ended == ["cancelled"])


def test_an_event_loop_that_is_closed_under_a_direct_call_cancels_it(start, serve):
    compute = Begun()
    serve(compute, direct=True)
    with start("closed_under_a_direct_call") as program:
        program.expect(r"^1 {}$")
        # While the program lives: its end would cancel the call, too.
        eventually(lambda: compute.ended == ["cancelled"], 20)
        assert program.exit_code is None
        program.tell("end")
        assert program.wait(60) == 0, program.said()
        assert program.lines[1] == "1 False"


def test_the_child_of_a_fork_goes_on_with_an_event_loop_of_its_own(start, serve):
    serve(Compute())
    with start("forked") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines[:2] == ["1", "True"]
        assert program.lines[2].startswith("2 parent/")
        assert program.lines[3] == "0 3 parent"


def test_a_closed_client_ends_its_calls_and_refuses_every_verb(start, serve):
    compute = Compute()
    serve(compute)
    with start("closed_client") as program:
        assert program.wait(60) == 0, program.said()
        assert program.lines == ["LinkLost", *[CLOSED] * 4]
    compute.go_on.set()


def test_a_signal_stops_a_service_when_its_requests_are_done(start, client):
    with start("serves_until_a_signal") as program:
        program.expect("serving")
        call = gevent.spawn(client.call, None, "slow", message("slow"))
        eventually(lambda: client.query("calls")["calls"])
        program.signal(signal.SIGTERM)
        assert call.get(timeout=20) == "drained"
        assert program.wait(60) == 0, program.said()
        assert program.lines[-1] == "stopped"
