"""Threads and locks of the operating system, also where gevent or eventlet has patched the standard library.

Neither is imported for it: who has not loaded one of them has patched nothing with it.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["allocate_lock", "get_ident", "new_rlock", "program_is_patched", "start_new_thread"]


def _original(name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_object_patched("_thread", name):
        return monkey.get_original("_thread", name)
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and hasattr(patcher, "original") and patcher.is_monkey_patched("thread"):
        return getattr(patcher.original("_thread"), name)
    return getattr(_thread, name)


allocate_lock: Callable[[], Any] = _original("allocate_lock")
get_ident: Callable[[], int] = _original("get_ident")
start_new_thread: Callable[..., int] = _original("start_new_thread")
#: A lock that the thread which holds it may take again.
new_rlock: Callable[[], Any] = _original("RLock")


def program_is_patched() -> bool:
    """Whether threads of the program are green: one that blocks in the operating system holds up the others."""
    return _thread.allocate_lock is not allocate_lock
