"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["ending_with_this_process"]

_PR_SET_PDEATHSIG = 1
# Loaded before the fork: after it, another thread's locks may never be released.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def ending_with_this_process() -> Callable[[], None]:
    """Return a ``preexec_fn`` of a child that is to be killed when this process ends, also by SIGKILL.

    It is killed when the *thread* that starts it ends. A child that is stopped is killed as well. Linux only: elsewhere
    it has no effect.
    """
    parent = os.getpid()

    def ask_for_it() -> None:
        if _prctl is None:
            return
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it has ended since the fork

    return ask_for_it
