"""Locks of threads that wake one another before they wait, which is one step in the compiled wheel.

In two steps the thread that was woken wants the interpreter's lock while the other one still has it, waits a second
time, and is woken again. In the one step of ``_handoff.c`` that lock is let go of first.
"""

from __future__ import annotations

from typing import Any

from rpcmq.transport.current_hub import current_hub, new_lock

__all__ = ["HandoffLock", "new_handoff_lock", "wake_next_and_acquire"]

#: The lock of a thread that can be woken so; None: this is not the compiled wheel.
HandoffLock: Any = None
#: Calls the first function of a deque that does not raise RuntimeError, and waits for a :class:`HandoffLock`. Returns
#: False, and does not wait, if there is none.
wake_next_and_acquire: Any = None
try:
    from rpcmq.transport._handoff import HandoffLock, wake_next_and_acquire
except ImportError:
    pass  # the pure wheel, or a checkout


def new_handoff_lock() -> Any:
    """A lock that is held, and on which the current OS thread, or greenlet of its hub, can wait."""
    if HandoffLock is not None and current_hub() is None:
        return HandoffLock()
    lock = new_lock()
    lock.acquire()
    return lock
