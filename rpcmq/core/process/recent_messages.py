"""The latest casts, or events, that a process was given, by which one that comes again is recognised."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from itertools import islice

from rpcmq.wire import KEY_BYTES

__all__ = ["RecentMessages"]

#: Number of messages that are remembered.
_MAX_MESSAGES = 4096


class RecentMessages:
    """Keys of messages, each with the name of the group whose copy it was."""

    __slots__ = ("_all", "_former", "_had", "_index")

    def __init__(self) -> None:
        self._had: deque[bytes] = deque(maxlen=_MAX_MESSAGES)
        #: Also those had over other links. Each has its own, so that no router can fill those of the others.
        self._all = [self]
        #: Messages of the links in whose place this one is used.
        self._former: Sequence[RecentMessages] = ()
        #: The same as ``_had``, for a process that looks up each message; None: it looks up few.
        self._index: set[bytes] | None = None

    def share(self, other: RecentMessages) -> None:
        """Recognise a message also if it was had over the link of ``other``: its sender may go on at another router."""
        other._all.append(self)
        self._all = other._all

    def replace(self, former: Sequence[RecentMessages]) -> None:
        """Recognise, and tell the router, also what was had over the links of ``former``, which are given up."""
        self.share(former[0])
        self._former = former
        for each in self._all:
            each.look_up_often()

    def look_up_often(self) -> None:
        """Make :meth:`is_known` quick for as long as this lives."""
        if self._index is None:
            self._index = set(self._had)

    def add(self, key: bytes, group: str = "") -> None:
        """Remember a message."""
        had, index = self._had, self._index
        name = key + group.encode() if group else key
        if index is not None:
            index.add(name)
            if len(had) >= _MAX_MESSAGES:
                index.discard(had.popleft())
        elif len(had) >= _MAX_MESSAGES:
            had.popleft()
        had.append(name)

    def is_known(self, key: bytes, group: str = "") -> bool:
        """Return whether the message was had."""
        name = key + group.encode() if group else key
        return any(name in (recent._had if recent._index is None else recent._index) for recent in self._all)

    def forget(self, key: bytes, group: str = "") -> None:
        """``key`` was given back: it may come again."""
        name = key + group.encode()
        for recent in self._all:
            if recent._index is not None:
                recent._index.discard(name)
            if name in recent._had:
                recent._had.remove(name)

    def keys_of(self, group: str, but: Container[bytes] = ()) -> bytes:
        """Return the keys of those had over this link for ``group``, back to back, but for those in ``but``.

        Before them come those of the links that it has replaced, the latest of each, as many as there is room for.
        """
        name, had = group.encode(), list(self._had)
        if self._former and (room := (_MAX_MESSAGES - len(had)) // len(self._former)):
            had[:0] = [each for former in self._former for each in islice(reversed(former._had), room)]
        return b"".join(each[:KEY_BYTES] for each in had if each[KEY_BYTES:] == name and each[:KEY_BYTES] not in but)
