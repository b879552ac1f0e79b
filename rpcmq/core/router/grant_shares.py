"""The shares that those who grant have of the room for messages to one link.

Grants are small, and whoever has many streams may send very many of them to a link that takes none at present. As long
as little waits there nobody counts them. From then on each granter may have as many waiting as there is room left, as
switches share a buffer among their ports: one that grants without end takes half of that room, two take a third each,
and there is always some for those who have few.
"""

from __future__ import annotations

from collections import deque

__all__ = ["GrantShares"]


class GrantShares:
    """The grants that wait for a link, by granter. Positions count all messages of the link's session."""

    __slots__ = ("_counts", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._counts: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Grants that are counted."""
        return len(self._waiting)

    def take(self, granter: bytes, position: int, arrived: int, room: int) -> int:
        """Count one more grant of ``granter``, unless it has its share: then return how many of its grants wait.

        Args:
            position: of the grant.
            arrived: messages that have arrived: grants below that position wait no more.
            room: messages that may still wait.
        """
        waiting, counts = self._waiting, self._counts
        while waiting and waiting[0][0] < arrived:
            _, former = waiting.popleft()
            counts[former] -= 1
            if not counts[former]:
                del counts[former]
        count = counts.get(granter, 0)
        if count >= room:
            return count
        counts[granter] = count + 1
        waiting.append((position, granter))
        return 0
