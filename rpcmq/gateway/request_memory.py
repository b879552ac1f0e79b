"""Memory that the requests of a connection take while they run: a short text can be a lot of values."""

from __future__ import annotations

from rpcmq.errors import Overloaded
from rpcmq.gateway.outbox import Total

__all__ = ["RequestMemory"]


class RequestMemory:
    """Counts bytes of memory, about, by the ids of requests.

    Args:
        most: bytes of this connection.
        total: of all connections.
    """

    def __init__(self, most: int, total: Total) -> None:
        self._most = most
        self._total = total
        self._sizes: dict[int, int] = {}
        self._size = 0

    def refuse(self, size: int) -> Overloaded | None:
        """Say which bound a request of ``size`` bytes would break; one that is alone breaks none, however large."""
        for held, name, most in (
            (self._size, "request_bytes", self._most),
            (self._total.size, "total_request_bytes", self._total.most),
        ):
            if held and held + size > most:
                text = f"requests that run would take more memory than limits.{name} = {most}"
                return Overloaded(text, {"held_bytes": held, "bytes": size})
        return None

    def add(self, number: int, size: int) -> None:
        """The request ``number`` begins."""
        self._sizes[number] = size
        self._count(size)

    def drop(self, number: int) -> None:
        """The request ``number`` has ended."""
        self._count(-self._sizes.pop(number))

    def clear(self) -> None:
        """All have ended."""
        self._sizes.clear()
        self._count(-self._size)

    def _count(self, change: int) -> None:
        self._size += change
        self._total.size += change
