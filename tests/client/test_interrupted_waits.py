"""A signal's handler raises while a cast waits for room, or a thread takes the engines' lock back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rpcmq.client.cast_window import CastWindow
from rpcmq.config import ClientConfig
from rpcmq.transport.connection import Connection
from rpcmq.transport.monitor import NativeMonitor
from rpcmq.transport.shell import ClientShell
from rpcmq.wire import Address
from tests.core.interrupts import is_interrupted
from tests.core.process.calling import Process

COMPUTE = Address("compute").encode()


class Interrupt(Exception):
    """As a handler of SIGALRM may raise it."""


class Shell:
    """Makes room while the caller waits, and remembers timers that were not stopped."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.timers: list[Callable[[], object]] = []
        self.resumed = 0

    def parking(self) -> tuple[Callable[[], object], Callable[[], object]]:
        return self._resume, self._park

    def _resume(self) -> None:
        self.resumed += 1

    def _park(self) -> None:
        self._process.sent()
        self._process.acknowledge()

    def call_later(self, seconds: float, function: Callable[[], object]) -> Any:
        self.timers.append(function)
        return SimpleNamespace(stop=lambda: self.timers.remove(function), close=lambda: None)


def run(resume: Callable[[], object]) -> None:
    resume()


def test_an_interrupted_wait_for_room_resumes_nobody_later() -> None:
    for step in count():
        process = Process()
        process.cast()
        shell = Shell(process)
        connection = SimpleNamespace(schedule=lambda: None, check_open=lambda: None, closed=False, condition="")
        window = CastWindow(
            ClientConfig(cast_window=1),
            process.casts,
            process.uplink,
            cast(Connection, connection),
            cast(ClientShell, shell),
        )

        def wait(window: CastWindow = window) -> None:
            window.wait(COMPUTE, 10.0, "compute")

        interrupted = is_interrupted(step, wait, ("cast_window.py",), Interrupt, each_instruction=False)
        process.sent()
        process.acknowledge()
        window.wake(run)
        for fire in shell.timers:
            fire()
        assert shell.resumed == 0, f"after step {step}"
        assert not interrupted or not any(window.waiting.values())
        if not interrupted:
            break
    assert step > 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interrupt])
def test_an_interrupt_while_the_lock_is_taken_back_leaves_as_it_is(error: type[BaseException]) -> None:
    for step in count():
        monitor = NativeMonitor()

        def use(monitor: NativeMonitor = monitor) -> None:
            with monitor.lock:
                monitor.outside(lambda: None)

        interrupted = is_interrupted(step, use, ("monitor.py",), error, each_instruction=False)
        assert not monitor.is_held(), f"after step {step}"
        if not interrupted:
            break
    assert step > 2
