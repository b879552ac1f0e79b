"""The fetchers that are there, and the one that is asked for a URL."""

from __future__ import annotations

from hashlib import blake2b
from time import monotonic
from typing import Any

from gevent.event import Event

__all__ = ["KnownFetchers"]

#: Seconds without a sign of life after which a fetcher is not chosen any more.
_SILENCE = 4.0
_MOST = 1000


class KnownFetchers:
    """Names of fetchers that have shown signs of life lately.

    All front ends choose the same fetcher for the same key (rendezvous hashing), so that their requests meet there.
    """

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._came = Event()

    def note(self, name: str, *, is_alive: bool) -> None:
        """Take a sign of life, or of its end."""
        if is_alive and (name in self._seen or len(self._seen) < _MOST):
            self._seen[name] = monotonic()
            self._came.set()
        elif not is_alive:
            self._seen.pop(name, None)

    def names(self) -> list[str]:
        """Names of those that are there, in order."""
        oldest = monotonic() - _SILENCE
        for name in [name for name, at in self._seen.items() if at < oldest]:
            del self._seen[name]
        return sorted(self._seen)

    def choose(self, key: str) -> str:
        """Return the name of the one for ``key``; empty: none is known."""
        names = self.names()
        if len(names) < 2:
            return names[0] if names else ""
        return max(names, key=lambda name: blake2b(f"{name}\0{key}".encode(), digest_size=8).digest())

    def wait(self, seconds: float) -> bool:
        """Wait for a sign of life of any of them, for so long; return whether one came."""
        self._came.clear()
        return self._came.wait(seconds)

    def take(self, payload: Any) -> None:
        """Take an event of a fetcher; anything else is passed over."""
        if isinstance(payload, dict) and isinstance(payload.get("name"), str):
            self.note(payload["name"], is_alive=payload.get("is_alive") is True)
