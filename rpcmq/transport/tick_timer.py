"""The timer of a router's ticks, which tells a deadline that has passed from a process that was stopped."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

__all__ = ["TickTimer"]

#: Lateness of a timer (seconds) that indicates a stopped process; then unread messages are read for so long first.
_LATE = 0.5
_CATCH_UP = 0.25
#: Shortest time to wait (seconds).
_LEAST = 0.001
#: Longest delay of a deadline where messages come in quick succession (seconds): their deadlines are computed together.
_SLACK = 0.005


class TickTimer:
    """One timer that is only ever set earlier.

    Args:
        loop: of the hub.
        tick: called when something is due.
        catch_up: called instead, once, when this process was stopped: reads what has come meanwhile.
        look: called instead when it fires early, see :meth:`fire_by`: computes the next deadline.

    Attributes:
        due: when it fires (monotonic seconds); 0.0 if it does not.
        has_caught_up: whether it was ``catch_up`` that was called last.
    """

    def __init__(
        self, loop: Any, tick: Callable[[float], None], catch_up: Callable[[], None], look: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._tick = tick
        self._catch_up = catch_up
        self._look = look
        self._timer = loop.timer(0.0)
        self.due = 0.0
        self._not_before = 0.0
        self._set_at = 0.0
        #: Whether nothing is due when it fires, as far as known.
        self._is_early = False
        self.has_caught_up = False

    def fires_soon(self, now: float) -> bool:
        """Return whether it fires so soon that the next deadline need not be computed before."""
        return 0.0 < self.due <= now + _SLACK

    def fire_by(self, due: float, now: float) -> None:
        """Fire at ``due``, unless it fires before that anyway.

        Where this is called again and again it fires *early*, but not at once: until then the next deadline need not be
        computed in each wake-up.
        """
        is_early = now < self._set_at + _SLACK and due > now + _SLACK
        if is_early:
            due = now + _SLACK
        self._set_at = now
        # Not before now: something long due must not look as if this process had been stopped since.
        due = max(due, self._not_before, now)
        if self.due and self.due <= due:
            return
        self.stop()
        self.due, self._is_early = due, is_early
        self._timer = self._loop.timer(max(_LEAST, due - now))
        self._timer.start(self.fire)

    def fire(self) -> None:
        """The time has come."""
        now, due, self.due = monotonic(), self.due, 0.0
        if now - due > _LATE and not self.has_caught_up:
            # This process was stopped, or had no CPU: read input before declaring anybody silent. Not twice in a row:
            # where there is never CPU enough nothing would ever be done that is due.
            self.has_caught_up = True
            self._not_before = now + _CATCH_UP
            self._catch_up()
            return
        self.has_caught_up = False
        if self._is_early:
            self._look()
        else:
            self._tick(now)

    def stop(self) -> None:
        """No longer fire."""
        self._timer.stop()
        self._timer.close()
