"""SIGTERM and SIGINT that end a command between two steps of its work, or where it waits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread

from rpcmq.cli.exit_codes import ExitCode

__all__ = ["ended_by_signals", "stopped_by_signals"]


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """Give an event that SIGTERM and SIGINT set within the block. For the main thread."""
    stop = Event()
    received: SimpleQueue[bool] = SimpleQueue()
    # A handler runs in the main thread, between any two steps of that: also while it holds the lock of the event for a
    # moment, in `stop.wait`. Then `stop.set` there would wait for ever. To put into this queue needs no lock.
    Thread(target=_set_when_received, args=(stop, received), name="rpcmq-signals", daemon=True).start()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: received.put(True))
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(False)


def _set_when_received(stop: Event, received: SimpleQueue[bool]) -> None:
    if received.get():
        stop.set()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let the first SIGTERM or SIGINT end this greenlet where it waits within the block, so that it cleans up.

    A handler that raises would do so in whatever code is running, also between two steps of a client, which then has
    to find out what is on its way, and while a process is being started. For the main thread.

    Raises:
        SystemExit: SIGTERM came; with its exit code.
        KeyboardInterrupt: SIGINT came.
    """
    import gevent

    loop, end = gevent.get_hub().loop, gevent.getcurrent().throw
    errors = {signal.SIGINT: KeyboardInterrupt(), signal.SIGTERM: SystemExit(ExitCode.TERMINATED)}
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 1:
            loop.run_callback_threadsafe(end, errors[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in errors}
    for number in before:
        # A shell has its background jobs ignore SIGINT.
        if before[number] != signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
        # One that came while nothing waited ends the block here.
        gevent.sleep(0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
