"""The latest casts that a process was given, by which one that is sent again is recognised."""

from __future__ import annotations

from collections import deque

from rpcmq.wire import KEY_BYTES

__all__ = ["RecentCasts"]

#: Number of the latest casts that are remembered.
_MAX_CASTS = 4096


class RecentCasts:
    """Keys of casts, each with the name of the group whose copy it was."""

    __slots__ = ("_all", "_had", "_order")

    def __init__(self) -> None:
        self._had: set[bytes] = set()
        self._order: deque[bytes] = deque()
        #: Also those had over other links. Each has its own, so that no router can fill those of the others.
        self._all = [self._had]

    def share(self, other: RecentCasts) -> None:
        """Recognise a cast also if it was had over the link of ``other``: its sender may go on at another router."""
        other._all.append(self._had)
        self._all = other._all

    def add(self, key: bytes, group: str) -> None:
        """Remember a cast."""
        had = key + group.encode() if group else key
        if had in self._had:
            return
        self._had.add(had)
        self._order.append(had)
        if len(self._order) > _MAX_CASTS:
            self._had.discard(self._order.popleft())

    def is_known(self, key: bytes, group: str) -> bool:
        """Whether the cast was had."""
        had = key + group.encode() if group else key
        return any(had in recent for recent in self._all)

    def keys_of(self, group: str) -> bytes:
        """Return the keys of those had over this link for ``group``, back to back."""
        name = group.encode()
        return b"".join(had[:KEY_BYTES] for had in self._order if had[KEY_BYTES:] == name)
