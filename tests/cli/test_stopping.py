"""Commands that end between two steps of their work when a signal comes."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from rpcmq.cli.stopping import stopped_by_signals
from tests.server.daemons import SECONDS

#: More lines than one ``Event.wait`` and one ``Event.is_set`` have.
_LINES = 100


def send_at_line(number: signal.Signals, wanted: int) -> bool:
    """Wait for an event, and send a signal before the given line of ``threading`` is executed; whether there is one."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != threading.__file__:
            return None
        if event == "line":
            count += 1
            if count == wanted:
                signal.raise_signal(number)
        return trace

    before = sys.gettrace()
    with stopped_by_signals() as stop:
        sys.settrace(trace)
        try:
            stop.wait(0.001)
            stop.is_set()
        finally:
            sys.settrace(before)
        if count < wanted:
            return False
        assert stop.wait(SECONDS)
    return True


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_counts_wherever_it_interrupts_the_wait(number: signal.Signals) -> None:
    # In the middle of it the event's own lock is held.
    lines = next(line for line in range(1, _LINES) if not send_at_line(number, line))
    assert lines > 10


def test_handlers_are_restored_and_no_thread_is_left() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stopped_by_signals() as stop:
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    ours = [thread for thread in threading.enumerate() if thread.name == "rpcmq-signals"]
    for thread in ours:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in ours)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert not stop.is_set()
