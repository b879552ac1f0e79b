"""SIGTERM and SIGINT that end a command between two steps of its work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread

__all__ = ["stopped_by_signals"]


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
