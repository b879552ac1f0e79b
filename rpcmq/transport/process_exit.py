"""Functions to be called at the end of this process, also where it is a child of multiprocessing."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["call_at_exit", "forget_at_exit"]

#: After all that multiprocessing itself finalizes, such as the thread that writes for a queue (-5), its folder (-100).
_LAST = -200

_finalizers: dict[Callable[[], object], Any] = {}
_was_forked = False


def call_at_exit(function: Callable[[], object]) -> None:
    """Have ``function`` called, once, when this process ends and its threads have ended.

    To be called again in the child of a fork: one of multiprocessing forgets what its parent had registered. Nothing is
    called at the end by ``os._exit`` or a signal.
    """
    forget_at_exit(function)
    atexit.register(function)
    if _ends_without_atexit():
        from multiprocessing.util import Finalize

        _finalizers[function] = Finalize(None, _call_after_threads, (function,), exitpriority=_LAST)


def forget_at_exit(function: Callable[[], object]) -> None:
    """Undo :func:`call_at_exit`."""
    atexit.unregister(function)
    finalizer = _finalizers.pop(function, None)
    if finalizer is not None:
        finalizer.cancel()


def _ends_without_atexit() -> bool:
    """Return whether this is a child forked by multiprocessing: that ends by ``os._exit`` when it has finalized."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return False
    # One that it has spawned ends as any program does.
    return _was_forked or "--multiprocessing-fork" not in sys.orig_argv


def _call_after_threads(function: Callable[[], object]) -> None:
    # As at the end of any program. multiprocessing does it a moment later, and then it does nothing.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit.unregister(function)
    function()


def _after_fork_in_child() -> None:
    global _was_forked
    _was_forked = True
    _finalizers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
