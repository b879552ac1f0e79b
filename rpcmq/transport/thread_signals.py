"""Keeps handlers of signals, which may raise between any two steps, out of the engines while the main thread uses them.

Python calls them in the main thread only. They come late if the operating system holds the signals back there, and
there is no other thread that it could give them to.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rpcmq.transport.originals import get_ident

__all__ = ["may_be_interrupted", "uninterrupted"]

T = TypeVar("T")

# The C function: it skips the conversion of the old mask to enums.
_mask: Callable[[int, Iterable[int]], set[int]] = getattr(signal.pthread_sigmask, "__wrapped__", signal.pthread_sigmask)
_BLOCK, _SET = int(signal.SIG_BLOCK), int(signal.SIG_SETMASK)
#: Signals that a program may have a handler for; each costs time.
_HELD_BACK = tuple(
    int(getattr(signal, name))
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGVTALRM",
                 "SIGPROF", "SIGWINCH", "SIGIO")
    if hasattr(signal, name)
)  # fmt: skip
_main_thread = threading.main_thread().ident


def may_be_interrupted() -> bool:
    """Whether this is the main thread, and another one, beside that of the sockets, would get its signals."""
    return get_ident() == _main_thread and _thread._count() > 1


def uninterrupted(function: Callable[..., T], *args: Any) -> T:
    """Call ``function``, which must not wait; what a signal's handler raises meanwhile is raised afterwards."""
    if get_ident() != _main_thread:
        return function(*args)
    before = _mask(_BLOCK, ())
    try:
        # In here: it calls the handlers of signals that came just before.
        _mask(_BLOCK, _HELD_BACK)
        return function(*args)
    finally:
        _mask(_SET, before)


def _after_fork_in_child() -> None:
    global _main_thread
    _main_thread = get_ident()


os.register_at_fork(after_in_child=_after_fork_in_child)
