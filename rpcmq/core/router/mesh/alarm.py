"""The time at which a part of the mesh wants to do something, kept so that asking for it costs nothing."""

from __future__ import annotations

from math import inf

__all__ = ["Alarm"]


class Alarm:
    """One time for all that a part waits for: each router asks for it in each wake-up, in a mesh or not."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = inf

    def by(self, at: float) -> None:
        """Something is due at ``at`` (monotonic seconds)."""
        self.at = min(self.at, at)

    def next_deadline(self) -> float:
        """The time of the next tick (monotonic seconds)."""
        return self.at
