"""Shares of the fetchers' capacity, of which no client may have all."""

from __future__ import annotations

__all__ = ["AddressShares"]


class AddressShares:
    """Counts the requests for which origins are asked, by the address of their clients.

    A client that has many of them, and takes their responses slowly or asks for what takes long, would have the
    fetchers busy with nothing else.

    Args:
        most: of one address at a time; 0: no bound.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[str, int] = {}
        #: Requests that were refused.
        self.refused = 0

    def take(self, address: str) -> bool:
        """Count a request; False: there are as many as there may be, and it is not counted."""
        taken = self._taken.get(address, 0)
        if self._most and taken >= self._most:
            self.refused += 1
            return False
        self._taken[address] = taken + 1
        return True

    def give_back(self, address: str) -> None:
        """Count one less."""
        left = self._taken[address] - 1
        if left:
            self._taken[address] = left
        else:
            del self._taken[address]
