"""SIGTERM and SIGINT in a program that waits for its service: the first one stops that, a second ends the program."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

from rpcmq.client.consumer import Consumer
from rpcmq.client.router_consumers import RouterConsumers, running_tasks
from rpcmq.printable import printable

__all__ = ["STOP_SIGNALS", "on_stop_signal", "tell_what_runs"]

log = logging.getLogger("rpcmq.service")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Methods that are named.
_NAMED = 5


def on_stop_signal(stop: Callable[[], object]) -> Callable[[int], None]:
    """A function that is called with the number of each signal: it calls ``stop`` once, and then ends the process."""
    is_told = False

    def come(number: int) -> None:
        nonlocal is_told
        if is_told:
            # An exception would have to get through whatever waits for what runs.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        else:
            is_told = True
            stop()

    return come


def tell_what_runs(consumer: Consumer | RouterConsumers[Any], seconds: float) -> None:
    """Log which methods run, if any do, and that they are waited for, for so many seconds. From any thread."""
    running = [task.method for task in running_tasks(consumer)]
    if not running:
        return
    named = [f"{method} x {count}" if count > 1 else method for method, count in Counter(running).most_common(_NAMED)]
    more = " ..." if len(set(running)) > _NAMED else ""
    log.warning(
        "%s stops when what runs has ended (%s%s), in %g s at the latest; a second signal ends the process at once",
        consumer.address, printable(", ".join(named), "?"), more, seconds,
    )  # fmt: skip
