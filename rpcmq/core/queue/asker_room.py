"""The room for those who wait for the ends of items: who has more than others makes way for them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["AskerRoom"]

SendAway = Callable[[], object]


class AskerRoom:
    """The room for those who wait. However many they are, each step takes the same time.

    Args:
        most: may wait at the same time.

    Attributes:
        count: of those who wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: By the process that waits, in the order in which they came.
        self._waits: dict[bytes, dict[SendAway, None]] = {}
        #: The processes that wait so many times, and the greatest of these numbers.
        self._by_number: dict[int, dict[bytes, None]] = {}
        self._greatest = 0
        self.count = 0

    def admits(self, origin: bytes) -> bool:
        """Return whether one more may wait; without room, in place of the oldest of the process that has most."""
        if self.count < self._most:
            return True
        if self._greatest <= len(self._waits.get(origin, ())) + 1:
            return False
        greedy = self._waits[next(iter(self._by_number[self._greatest]))]
        next(iter(greedy))()
        return self.count < self._most

    def enter(self, origin: bytes, send_away: SendAway) -> None:
        """One waits from now on; ``send_away`` has it wait no more, and leave."""
        own = self._waits.setdefault(origin, {})
        own[send_away] = None
        self.count += 1
        self._moved(origin, len(own) - 1, len(own))

    def leave(self, origin: bytes, send_away: SendAway) -> None:
        """It waits no more."""
        own = self._waits[origin]
        del own[send_away]
        if not own:
            del self._waits[origin]
        self.count -= 1
        self._moved(origin, len(own) + 1, len(own))

    def _moved(self, origin: bytes, before: int, now: int) -> None:
        """A process waits once more, or once less."""
        if now:
            self._by_number.setdefault(now, {})[origin] = None
        if before:
            del self._by_number[before][origin]
            if not self._by_number[before]:
                del self._by_number[before]
        if now > self._greatest or self._greatest not in self._by_number:
            self._greatest = now
