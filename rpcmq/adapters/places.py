"""Counts of what is open, by whom: connections of an address, of a token."""

from __future__ import annotations

from collections import Counter

__all__ = ["Places"]


class Places:
    """Places that are taken and given back.

    Args:
        most: of one owner.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: Counter[str] = Counter()

    def take(self, owner: str) -> bool:
        """Take a place, if ``owner`` has not as many as it may; return whether it did."""
        if self._taken[owner] >= self.most:
            return False
        self._taken[owner] += 1
        return True

    def give_back(self, owner: str) -> None:
        """Give a place back."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]

    def __len__(self) -> int:
        return self._taken.total()
