"""Log records of the loop's thread, written by green threads of a patched program.

There the locks of logging are green, too: one that is held would have the loop's thread wait in a hub that nobody runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rpcmq.transport.originals import get_ident

__all__ = ["hand_over_log_records"]

#: The loggers that are used in the loop's thread.
_LOGGERS = ("rpcmq.client", "rpcmq.security", "rpcmq.service", "rpcmq.trust")


class _HandOver(logging.Filter):
    """Passes on the records of other threads only."""

    def __init__(self, thread: int, call: Callable[[Callable[[], object]], None]) -> None:
        super().__init__()
        self._thread = thread
        self._call = call

    def filter(self, record: logging.LogRecord) -> bool:
        if get_ident() != self._thread:
            return True
        # In a thread of its own, which may wait for a handler; for that one it comes through here.
        write = threading.Thread(target=logging.getLogger(record.name).handle, args=(record,), daemon=True)
        self._call(write.start)
        return False


def hand_over_log_records(thread: int, call: Callable[[Callable[[], object]], None]) -> None:
    """Have ``call`` write what ``thread`` logs.

    Args:
        thread: its ident in the operating system.
        call: calls a function in a green thread, soon.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_HandOver(thread, call))
