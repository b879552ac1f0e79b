"""The room for those who wait for the ends of items: who has more than others makes way for them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["AskerRoom"]

SendAway = Callable[[], object]


class AskerRoom:
    """The room for those who wait.

    Args:
        most: may wait at the same time.

    Attributes:
        count: of those who wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: By the process that waits, in the order in which they came.
        self._waits: dict[bytes, dict[SendAway, None]] = {}
        self.count = 0

    def admits(self, origin: bytes) -> bool:
        """Whether one more may wait; where there is no room, in place of the oldest of the process that has most."""
        if self.count < self._most:
            return True
        greedy = max(self._waits.values(), key=len)
        if len(greedy) <= len(self._waits.get(origin, ())) + 1:
            return False
        next(iter(greedy))()
        return self.count < self._most

    def enter(self, origin: bytes, send_away: SendAway) -> None:
        """One waits from now on; ``send_away`` has it wait no more, and leave."""
        self._waits.setdefault(origin, {})[send_away] = None
        self.count += 1

    def leave(self, origin: bytes, send_away: SendAway) -> None:
        """It waits no more."""
        own = self._waits[origin]
        del own[send_away]
        if not own:
            del self._waits[origin]
        self.count -= 1
