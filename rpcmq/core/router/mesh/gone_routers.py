"""Routers that are gone, and the addresses that they had told last: their consumers may live, and come elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from rpcmq.core.router.mesh.interest_table import Holding
from rpcmq.core.router.settings import Settings

__all__ = ["GoneRouters"]

#: A router that is gone is remembered for so long (seconds), or for three times ``mesh.recovery_seconds`` if that is
#: more.
_REMEMBERED, _REMEMBERED_WINDOWS = 60.0, 3
#: Most routers that are remembered; all together take ``mesh.max_address_bytes`` at most, or one alone.
_MOST = 100


class GoneRouters:
    """One holding of each router that is gone: the latest in which it had told all it knew.

    Args:
        settings: bounds and times.
        close: is given each holding that is forgotten.
    """

    def __init__(self, settings: Settings, close: Callable[[Holding], None]) -> None:
        self._settings = settings
        self._close = close
        #: By name; the latest is last.
        self._routers: dict[str, _Gone] = {}

    @property
    def size_bytes(self) -> int:
        """Memory that they take, about."""
        return sum(gone.holding.size_bytes for gone in self._routers.values())

    def __len__(self) -> int:
        return len(self._routers)

    def add(self, now: float, name: str, holding: Holding, is_complete: bool) -> None:
        """Remember ``holding`` of the router ``name``, unless an earlier one says more.

        Args:
            is_complete: whether it is all that the router knew.
        """
        before = self._routers.get(name)
        if before is not None and not is_complete:
            self._close(holding)
            return
        if before is not None:
            self._close(self._routers.pop(name).holding)
        until = now + max(_REMEMBERED, _REMEMBERED_WINDOWS * self._settings.mesh_recovery_seconds)
        self._routers[name] = _Gone(holding, now, until)
        size_bytes, most = self.size_bytes, self._settings.mesh_max_address_bytes
        while len(self) > _MOST or (size_bytes > most and len(self) > 1):
            oldest = self._routers.pop(next(iter(self._routers))).holding
            size_bytes -= oldest.size_bytes
            self._close(oldest)

    def since(self, time: float) -> list[Holding]:
        """Return the holdings of those that went after ``time`` (monotonic seconds)."""
        return [gone.holding for gone in self._routers.values() if gone.at > time]

    def expire(self, now: float) -> float:
        """Forget those whose time is over; return when the next one's is (monotonic seconds)."""
        for name, gone in list(self._routers.items()):
            if now >= gone.until:
                self._close(self._routers.pop(name).holding)
        return min((gone.until for gone in self._routers.values()), default=inf)


class _Gone(NamedTuple):
    """A router that is gone: what it had told, when it went, and until when that is remembered (monotonic seconds)."""

    holding: Holding
    at: float
    until: float
