"""The latest casts that a process was given, by which one that is sent again is recognised."""

from __future__ import annotations

from collections import deque

from rpcmq.wire import KEY_BYTES

__all__ = ["RecentCasts"]

#: Number of the latest casts that are remembered.
_MAX_CASTS = 4096


class RecentCasts:
    """Keys of casts, each with the name of the group whose copy it was."""

    __slots__ = ("_all", "_had", "_index")

    def __init__(self) -> None:
        self._had: deque[bytes] = deque(maxlen=_MAX_CASTS)
        #: Also those had over other links. Each has its own, so that no router can fill those of the others.
        self._all = [self]
        #: The same as ``_had``, for a process that looks each cast up; None: it looks up few.
        self._index: set[bytes] | None = None

    def share(self, other: RecentCasts) -> None:
        """Recognise a cast also if it was had over the link of ``other``: its sender may go on at another router."""
        other._all.append(self)
        self._all = other._all

    def look_up_often(self) -> None:
        """Make :meth:`is_known` quick for as long as this lives."""
        if self._index is None:
            self._index = set(self._had)

    def add(self, key: bytes, group: str) -> None:
        """Remember a cast."""
        had, index = self._had, self._index
        name = key + group.encode() if group else key
        if index is not None:
            if len(had) == _MAX_CASTS:
                index.discard(had[0])
            index.add(name)
        had.append(name)

    def is_known(self, key: bytes, group: str) -> bool:
        """Whether the cast was had."""
        name = key + group.encode() if group else key
        return any(name in (recent._had if recent._index is None else recent._index) for recent in self._all)

    def keys_of(self, group: str) -> bytes:
        """Return the keys of those had over this link for ``group``, back to back."""
        name = group.encode()
        return b"".join(had[:KEY_BYTES] for had in self._had if had[KEY_BYTES:] == name)
