"""Threads, locks and waits of the operating system, also where gevent or eventlet has patched the standard library.

Neither is imported for it: who has not loaded one of them has patched nothing with it.
"""

from __future__ import annotations

import _thread
import os
import select
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = [
    "allocate_lock",
    "get_ident",
    "is_main_thread",
    "new_epoll",
    "new_poll",
    "new_rlock",
    "program_is_patched",
    "start_new_thread",
]


def _original(module: ModuleType, name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_object_patched(module.__name__, name):
        return monkey.get_original(module.__name__, name)
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and hasattr(patcher, "original") and patcher.is_monkey_patched(module.__name__.strip("_")):
        return getattr(patcher.original(module.__name__), name)
    return getattr(module, name)


allocate_lock: Callable[[], Any] = _original(_thread, "allocate_lock")
get_ident: Callable[[], int] = _original(_thread, "get_ident")
start_new_thread: Callable[..., int] = _original(_thread, "start_new_thread")
#: A lock that the thread which holds it may take again.
new_rlock: Callable[[], Any] = _original(_thread, "RLock")
new_epoll: Callable[[], Any] = _original(select, "epoll")
new_poll: Callable[[], Any] = _original(select, "poll")


def is_main_thread() -> bool:
    """Return whether this is the main thread of the process in the operating system, whichever green thread runs."""
    return _thread.get_native_id() == os.getpid()


def program_is_patched() -> bool:
    """Return whether threads of the program are green: one that blocks in the operating system holds up the others."""
    return _thread.allocate_lock is not allocate_lock
