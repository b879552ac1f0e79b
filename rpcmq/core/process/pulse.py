"""The heartbeats to a router, and since when its answers show that it counts on this process.

Each carries the time at which it was asked for, and the router returns that with its answer. So an answer shows how old
it is, also one that has lain in a buffer while this process was stopped, or on its way while a link was cut.
"""

from __future__ import annotations

from struct import Struct

from rpcmq.wire import Kind, pack, payload_of, sequence_of

__all__ = ["Pulse"]

_TIME = Struct(">d")


class Pulse:
    """The heartbeats of one link.

    Attributes:
        pace: seconds between two of them, as the router wants it.
        counted_on: the router counted on this process at this time, or later (monotonic seconds).
        counted_on_before: the same of the router's former life, or of the former router, when the last welcome came.
    """

    __slots__ = ("_asked", "_hurry", "_returns_times", "counted_on", "counted_on_before", "pace")

    def __init__(self) -> None:
        self.pace = 5.0
        self._hurry = 1e9
        self._asked = self.counted_on = self.counted_on_before = 0.0
        self._returns_times = False

    @property
    def next(self) -> float:
        """The time of the next heartbeat."""
        return self._asked + min(self.pace, self._hurry)

    def at_most(self, seconds: float) -> bool:
        """Have no more than so many seconds between two heartbeats from now on; whether that is news."""
        is_news = seconds < min(self.pace, self._hurry)
        self._hurry = min(self._hurry, seconds)
        return is_news

    def greets(self, now: float) -> None:
        """The greeting is sent, whose answer is a welcome."""
        self._asked = now
        self._returns_times = False

    def welcomed(self, now: float, pace: float) -> None:
        """The router has taken this process."""
        self.counted_on_before = self.counted_on
        self.counted_on = max(self.counted_on, self._asked)
        self.pace = pace
        self._asked = now

    def beats(self, now: float) -> None:
        """It is time for another one."""
        self._asked = now

    def question(self, received: int) -> bytes:
        """The next heartbeat, which says how much was received."""
        return pack(Kind.HEARTBEAT, _TIME.pack(self._asked), sequence=received)

    def answered(self, now: float, message: bytes) -> None:
        """A heartbeat of the router has come."""
        returned = payload_of(message)
        if len(returned) == _TIME.size:
            asked = _TIME.unpack(returned)[0]
            self._returns_times = True
        elif self._returns_times or not sequence_of(message):
            return  # it is no answer
        else:
            asked = now  # of a router that returns no times
        if self.counted_on < asked <= now:
            self.counted_on = asked
