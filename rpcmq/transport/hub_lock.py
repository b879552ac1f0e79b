"""A lock for a greenlet that waits for another OS thread: the other greenlets of its hub go on meanwhile."""

from __future__ import annotations

from typing import Any

from gevent import get_hub, getcurrent
from gevent.event import Event

from rpcmq.errors import UsageError

__all__ = ["HubLock"]


class HubLock:
    """A lock that greenlets of the current hub acquire, one at a time, and that any thread releases.

    Raises:
        UsageError: this is the hub itself, which cannot wait.
    """

    __slots__ = ("_hub", "_is_free", "_watcher")

    def __init__(self) -> None:
        self._hub = get_hub()
        if getcurrent() is self._hub:
            raise UsageError("the gevent hub cannot wait for a call; spawn a greenlet for it")
        self._is_free = True
        #: Wakes the hub while a greenlet waits.
        self._watcher: Any = None

    def locked(self) -> bool:
        """Return whether somebody has it."""
        return not self._is_free

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; see :meth:`threading.Lock.acquire`."""
        if not self._is_free and blocking:
            self._wait(None if timeout < 0 else timeout)
        if not self._is_free:
            return False
        self._is_free = False
        return True

    def _wait(self, seconds: float | None) -> None:
        released = Event()
        self._watcher = watcher = self._hub.loop.async_()
        watcher.start(released.set)
        try:
            # From here on whoever releases it wakes the hub; it may have been before.
            if not self._is_free:
                released.wait(seconds)
        finally:
            self._watcher = None
            watcher.stop()
            watcher.close()

    def release(self) -> None:
        """Let the greenlet that waits go on. From any thread."""
        self._is_free = True
        watcher = self._watcher
        if watcher is not None:
            try:
                watcher.send()
            except Exception:
                pass  # the greenlet has gone on meanwhile, or its hub has ended
