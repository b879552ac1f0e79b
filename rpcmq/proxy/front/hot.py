"""Whole responses, ready to be sent once more within the same second."""

from __future__ import annotations

from time import time

from rpcmq.proxy.http.requests import Request

__all__ = ["HotResponses"]

Key = tuple[str, bytes, bytes]
#: Bytes of memory that one takes beside its texts, about.
_OVERHEAD = 400


class HotResponses:
    """Responses to plain requests as bytes.

    Age and all else that goes on with time has whole seconds, so that the same bytes are right for one second of the
    wall clock. Then all are forgotten.

    Args:
        max_bytes: of all of them.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._second = 0
        self._purged_at = 0.0
        self._size = 0
        self._found: dict[Key, tuple[bytes, int, int]] = {}
        self._by_cache_key: dict[str, list[Key]] = {}

    def find(self, scheme: str, request: Request) -> tuple[bytes, int, int] | None:
        """Return the response to a plain request, its status, and the bytes of its body."""
        if int(time()) != self._second:
            self.clear()
            return None
        return self._found.get((scheme, request.host, request.target))

    def add(self, scheme: str, request: Request, cache_key: str, made_at: float, found: tuple[bytes, int, int]) -> None:
        """Keep a response that was made at ``made_at``, of the stored response of ``cache_key``."""
        if made_at <= self._purged_at:
            return  # it was looked up before a purge, which may have been about it
        if int(made_at) != self._second:
            self.clear()
            if int(made_at) != self._second:
                return
        key = (scheme, request.host, request.target)
        # One stored response has many spellings of its target.
        size = len(found[0]) + len(request.host) + len(request.target) + _OVERHEAD
        if self._size + size > self._max_bytes:
            return
        if key not in self._found:
            self._size += size
            self._found[key] = found
            self._by_cache_key.setdefault(cache_key, []).append(key)

    def forget(self, cache_key: str) -> None:
        """Drop those of a stored response that has changed."""
        for key in self._by_cache_key.pop(cache_key, ()):
            self._found.pop(key, None)

    def purge(self) -> None:
        """Drop all, and keep none that was made before."""
        self.clear()
        self._purged_at = time()

    def clear(self) -> None:
        """Drop all."""
        self._found.clear()
        self._by_cache_key.clear()
        self._size = 0
        self._second, self._purged_at = int(time()), 0.0
