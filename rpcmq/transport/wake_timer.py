"""One timer that is only ever set earlier: fires once when the first of its times has come."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.transport.shell import Handle, Shell

__all__ = ["WakeTimer"]

#: Shortest time to wait (seconds).
_LEAST = 0.001


class WakeTimer:
    """A timer of ``shell`` that calls ``function``."""

    __slots__ = ("_function", "_handle", "_shell", "due")

    def __init__(self, shell: Shell, function: Callable[[], object]) -> None:
        self._shell = shell
        self._function = function
        self._handle: Handle | None = None
        #: The time at which it fires (monotonic seconds); 0.0 if it does not.
        self.due = 0.0

    def fire_by(self, due: float, now: float) -> None:
        """Fire at ``due``, unless it fires before that anyway."""
        if self.due and self.due <= due:
            return
        self.stop()
        # In this order: a signal's handler can raise in between, and one that is due must fire.
        self._handle = self._shell.call_later(max(_LEAST, due - now), self._fire)
        self.due = due

    def _fire(self) -> None:
        self.due = 0.0
        self._function()

    def stop(self) -> None:
        """No longer fire."""
        if self._handle is not None:
            self._handle.stop()
            self._handle.close()
        self._handle = None
        self.due = 0.0
