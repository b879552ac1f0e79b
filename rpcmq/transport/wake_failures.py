"""Exceptions in the wake-ups of a loop: each is printed, and a pause follows that doubles while they go on."""

from __future__ import annotations

from rpcmq.transport.shell import Shell

__all__ = ["WakeFailures"]

#: First pause, and the longest (seconds).
_RETRY = 0.005
_RETRY_MOST = 1.0


class WakeFailures:
    """Counts the wake-ups of ``owner`` in a row that have had an exception.

    Attributes:
        in_this_wake: whether there was one in this wake-up.
    """

    __slots__ = ("_in_a_row", "_owner", "_shell", "in_this_wake")

    def __init__(self, shell: Shell, owner: object) -> None:
        self._shell = shell
        self._owner = owner
        self.in_this_wake = False
        self._in_a_row = 0

    def show(self, error: Exception) -> None:
        """Print an exception after which nothing has to be tried again."""
        self._shell.print_exception(self._owner, error)

    def note(self, error: Exception) -> None:
        """Print an exception; the interrupted step is tried again after a pause."""
        self.in_this_wake = True
        self.show(error)

    def wake_is_over(self) -> None:
        """Count this wake-up, and begin the next."""
        self._in_a_row = self._in_a_row + 1 if self.in_this_wake else 0
        self.in_this_wake = False

    @property
    def pause(self) -> float:
        """Seconds until the next attempt; 0.0 if nothing failed in the last wake-up."""
        return min(_RETRY * 2 ** min(self._in_a_row, 10), _RETRY_MOST) if self._in_a_row else 0.0
