"""The clock of a queue server's queues goes on from life to life, whatever the machine's is set to."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import rpcmq
from rpcmq.queue_server import clock
from rpcmq.queue_server.clock import QueueClock
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess

MONTH = 30 * 86400
STEPS = [3600, -3600, MONTH, -MONTH]


class Machine:
    """The clocks of a machine, which are set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.wall, self.runs = 1_800_000_000.0, 500.0
        self._boot = tmp_path / "boot_id"
        self.start("one")
        monkeypatch.setattr(clock, "_BOOT", self._boot)
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.runs)
        monkeypatch.setattr(time, "clock_gettime", lambda which: self.runs)

    def start(self, boot: str) -> None:
        self._boot.write_text(boot)

    def go_on(self, seconds: float, step: float = 0.0) -> None:
        self.wall += seconds + step
        self.runs += seconds

    def noted(self, of: QueueClock) -> bytes:
        note = of.note(self.runs)
        assert note is not None
        return note.value


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


@pytest.mark.parametrize("step", STEPS)
def test_the_next_life_goes_on_where_the_machine_was_set(machine: Machine, step: float) -> None:
    before = QueueClock(0, b"")
    begin, noted = before(machine.runs), machine.noted(before)
    machine.go_on(10, step)
    after = QueueClock(0, noted)
    assert (after(machine.runs) - begin, after.ahead) == (10_000, -step)


def test_a_machine_that_was_started_again_goes_by_its_clock_and_never_back(machine: Machine) -> None:
    before = QueueClock(0, b"")
    begin, noted = before(machine.runs), machine.noted(before)
    machine.start("two")
    machine.go_on(10, MONTH)
    assert QueueClock(0, noted)(machine.runs) - begin == 10_000 + MONTH * 1000, "it may have been off for so long"
    machine.go_on(10, -2 * MONTH)
    assert QueueClock(0, noted)(machine.runs) == begin


def test_where_the_system_does_not_tell_when_it_was_started_it_never_goes_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(clock, "_BOOT", tmp_path / "none")
    before = QueueClock(0, b"")
    begin, noted = before(machine.runs), machine.noted(before)
    machine.go_on(10, -MONTH)
    assert QueueClock(0, noted)(machine.runs) == begin
    machine.go_on(0, MONTH)
    assert QueueClock(0, noted)(machine.runs) == begin + 10_000


def test_owners_of_one_database_begin_with_its_clock(machine: Machine) -> None:
    assert QueueClock(1_700_000_000_000, b"")(machine.runs) == 1_700_000_000_000
    assert QueueClock(1_700_000_000_000, b"damaged")(machine.runs) == 1_700_000_000_000


def test_it_is_noted_once_a_minute(machine: Machine) -> None:
    of = QueueClock(0, b"")
    assert [of.note(machine.runs + seconds) is not None for seconds in (0, 59, 60, 61, 121)] == [
        True, False, True, False, True,
    ]  # fmt: skip


# --- real processes --------------------------------------------------------------------------


class Work:
    def __init__(self) -> None:
        self.begun: dict[str, float] = {}

    def run(self, ctx: Any, name: str) -> str:
        self.begun[name] = monotonic()
        return name


#: Runs a queue server at a machine whose clock is wrong by the first argument (seconds).
_WRONG = """
import runpy, sys, time
right, wrong = time.time, float(sys.argv.pop(1))
time.time = lambda: right() + wrong
runpy.run_module("rpcmq.queue_server", run_name="__main__", alter_sys=True)
"""


@contextmanager
def server(url: str, folder: Path, wrong: float) -> Iterator[Program]:
    command = [sys.executable, "-c", _WRONG, str(wrong), "--router", url, "--owner", "here", "--store", str(folder)]
    with Program(command, name="queue server") as process:
        process.expect("are served")
        yield process


@pytest.mark.integration
@pytest.mark.fault
@pytest.mark.parametrize("step", STEPS)
def test_items_are_neither_early_nor_late_where_the_clock_is_set_and_the_queue_server_killed(
    tmp_path: Path, step: float
) -> None:
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess())
        client = stack.enter_context(rpcmq.Client(router.url, shell="gevent"))
        with server(router.url, tmp_path / "store", 0.0) as first:
            client.declare_queue("work", lease=1, timeout=30)
            message = {"method": "run", "args": {"name": "wanted"}}
            wanted = client.put({}, "work", message, expires=600, keep_result=600, timeout=30)
            begun = monotonic()
            client.put({}, "work", {"method": "run", "args": {"name": "delayed"}}, delay=6, timeout=30)
            first.kill()
        work = Work()
        worker = rpcmq.Worker("work", work, router=router.url)
        with server(router.url, tmp_path / "store", step):
            worker.start(30)
            stack.callback(worker.stop, 5)
            assert wanted.result(30) == "wanted"
            eventually(lambda: "delayed" in work.begun)
            assert work.begun["delayed"] - begun >= 6
