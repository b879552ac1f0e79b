"""Back ends that stall or die while others have the same calls, in processes of their own."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).parent / "programs" / "catalogue.py"
CALLS = 40


def show(item: int) -> dict[str, Any]:
    return {"method": "show", "args": {"item": item}}


class Backends:
    """A router, and back ends of a topic."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.router = stack.enter_context(RouterProcess(hedge_unbounded="catalogue", hedge_sample=0.0))
        self.client = stack.enter_context(Client(self.router.url))

    def start(self, name: str, shell: str, seconds: float) -> Program:
        command = [sys.executable, str(PROGRAM), self.router.url, name, shell, str(seconds)]
        program = self._stack.enter_context(Program(command, name=name))
        program.expect("serving")
        return program

    def call(self, item: int, **options: Any) -> str:
        found: str = self.client.call(None, "catalogue", show(item), 30, idempotent=True, **options)
        return found

    def begun(self, name: str) -> int:
        count: int = self.client.call(None, f"catalogue.{name}", {"method": "begun"}, 30)
        return count

    def hedges(self) -> dict[str, Any]:
        rows = self.router.view("methods")["methods"]
        ours = (row["hedges"] for row in rows if (row["topic"], row["method"]) == ("catalogue", "show"))
        found: dict[str, Any] = next(ours, {}) or {}
        return found


@pytest.fixture
def backends() -> Iterator[Backends]:
    with ExitStack() as stack:
        yield Backends(stack)


@pytest.mark.parametrize("shell", ["gevent", "threads", "aio"])
def test_calls_that_wait_in_a_stopped_back_end_never_begin_once_others_have_answered(
    backends: Backends, shell: str
) -> None:
    stopped = backends.start("stopped", shell, 0.0)
    backends.start("quick", "gevent", 0.3)
    stopped.pause()
    calls = [gevent.spawn(backends.call, item, hedge_after=0.05) for item in range(CALLS)]
    assert Counter(call.get(timeout=30) for call in calls) == {"quick": CALLS}
    overtaken = backends.hedges()["won"]
    assert overtaken > CALLS / 4
    stopped.resume()
    assert backends.begun("stopped") == 0 and backends.begun("quick") == CALLS
    eventually(lambda: all(row["in_flight"] == 0 for row in backends.router.view("topics")["topics"]))


def test_calls_that_came_with_one_that_blocks_their_process_never_begin_once_others_have_answered(
    backends: Backends, tmp_path: Path
) -> None:
    blocked = backends.start("blocked", "gevent", 0.0)
    backends.start("quick", "gevent", 0.3)
    blocked.pause()
    message = {"method": "block", "args": {"path": str(tmp_path / "go-on")}}
    block = gevent.spawn(backends.client.call, None, "catalogue.blocked", message, 60)
    eventually(lambda: any(row["in_flight"] for row in backends.router.view("topics")["topics"]))
    calls = [gevent.spawn(backends.call, item, hedge_after=0.05) for item in range(CALLS)]
    # All of them are there before it goes on, so that it has them when it begins the first.
    eventually(lambda: backends.hedges().get("calls") == CALLS)
    blocked.resume()
    assert Counter(call.get(timeout=30) for call in calls) == {"quick": CALLS}
    assert backends.hedges()["won"] > CALLS / 4
    (tmp_path / "go-on").touch()
    assert block.get(timeout=60)
    # Of the last ones it may not have heard yet when it goes on.
    assert backends.begun("blocked") < CALLS / 8 and backends.begun("quick") == CALLS


def test_a_back_end_that_is_killed_costs_no_call_that_another_one_has(backends: Backends) -> None:
    killed = backends.start("killed", "gevent", 5.0)
    backends.start("quick", "gevent", 0.3)
    calls = [gevent.spawn(backends.call, item, first_of=2) for item in range(CALLS)]
    eventually(lambda: backends.hedges().get("deliveries") == CALLS)
    killed.kill()
    assert Counter(call.get(timeout=30) for call in calls) == {"quick": CALLS}


def test_calls_go_on_with_two_back_ends_over_a_restart_of_the_router(backends: Backends) -> None:
    backends.start("one", "gevent", 0.05)
    backends.start("two", "gevent", 0.05)
    assert backends.call(0, first_of=2) in ("one", "two")
    backends.router.kill()
    call = gevent.spawn(backends.call, 1, first_of=2)
    backends.router.restart()
    assert call.get(timeout=30) in ("one", "two")
    eventually(lambda: backends.hedges().get("calls") == 1)
