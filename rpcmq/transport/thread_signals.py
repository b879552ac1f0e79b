"""Keeps handlers of signals, which may raise between any two steps, out of the engines while the main thread uses them.

Python calls them in the main thread only. They come late if the operating system holds the signals back there, and
there is no other thread that it could give them to.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rpcmq.transport.originals import get_ident

__all__ = ["hold_back_all", "is_main_thread", "may_be_interrupted", "no_longer_hold_back", "uninterrupted"]

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
#: An item for each thread, beside that of the sockets, that gets no signals.
_without_signals: deque[None] = deque()


def is_main_thread() -> bool:
    """Return whether this is the thread in which Python calls the handlers of signals."""
    return get_ident() == _main_thread


def may_be_interrupted() -> bool:
    """Return whether this is the main thread, and another one would get the signals that it holds back."""
    return get_ident() == _main_thread and _thread._count() > 1 + len(_without_signals)


def hold_back_all() -> None:
    """Have this thread, another one than the main thread, get no signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _without_signals.append(None)


def no_longer_hold_back() -> None:
    """Count this thread, which is about to end, no more."""
    _without_signals.pop()


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
    _without_signals.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
