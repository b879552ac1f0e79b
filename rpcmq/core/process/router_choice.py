"""The routers that a process may use: which one is next, how long each is left alone, why each was left.

They are used one at a time, in a ring: whichever is left, the one after it is next. So none is dialled twice before
each of the others was dialled once, and each has pauses of its own.

**In a mesh** the routers tell the urls of each other. These come behind those of the configuration, in an order of the
process's own, and so do the configured ones then: the processes of a router that is gone spread over the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from urllib.parse import urlsplit
from zlib import crc32

__all__ = ["RouterChoice"]

#: The mean pause of a router doubles with each failed attempt, from half of this (seconds).
_FIRST_PAUSE = 0.02
#: Hosts of urls at which a router listens, and nobody can dial it.
_ANY_HOST = ("*", "0.0.0.0", "::")


class RouterChoice:
    """The routers at ``urls``, one of which is the present one.

    Args:
        urls: in the order of the ring; at least one.
        first: index of the one to begin with, and what the order in a mesh depends on; any integer.

    Raises:
        ValueError: there is no url.
    """

    def __init__(self, urls: Sequence[str], first: int = 0) -> None:
        if not urls:
            raise ValueError("no router is named")
        self._configured = tuple(urls)
        self._first = first
        self._routers = [_Router(url) for url in urls]
        self._index = first % len(urls)
        self._present = self._routers[self._index]

    def __len__(self) -> int:
        return len(self._routers)

    @property
    def url(self) -> str:
        """The url of the present router."""
        return self._present.url

    @property
    def not_before(self) -> float:
        """The end of the present router's pause (monotonic seconds)."""
        return self._present.not_before

    @property
    def stalled(self) -> int:
        """Consecutive attempts that reached the present router's host, and led to no welcome."""
        return self._present.stalled

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Each url of the ring, in its order, with the reason why it was left since the last welcome, or ''."""
        return [(router.url, router.problem) for router in self._routers]

    def learn(self, routers: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Take the routers of a mesh for those that may be used beside the configured ones, in place of former ones.

        Args:
            routers: name and urls of each; none: there is no mesh.
        """
        known = {router.url: router for router in self._routers}
        ring, others = list(self._configured), self._dialable(routers)
        if others is not None:
            ring = [*sorted(ring, key=self._order), *others]
        self._routers = [known.get(url) or _Router(url) for url in dict.fromkeys(ring)]
        # The present one may have left the mesh: it is used as long as it is there.
        self._index = self._routers.index(self._present) if self._present in self._routers else -1

    def _dialable(self, routers: Iterable[tuple[str, Sequence[str]]]) -> list[str] | None:
        """Return the urls of routers that are not configured; None if ``routers`` is empty.

        One url of each comes before the second one of any: whoever cannot be reached is given up sooner.
        """
        listed = [[url for url in urls if _can_be_dialed(url)] for _, urls in routers]
        if not listed:
            return None
        others = [urls for urls in listed if urls and not any(url in self._configured for url in urls)]
        others.sort(key=lambda urls: self._order(urls[0]))
        return [url for rank in zip_longest(*others) for url in rank if url is not None]

    def _order(self, url: str) -> int:
        return crc32(f"{self._first}:{url}".encode())

    def note_stalled(self) -> None:
        """Count an attempt that reached the present router's host, and led to no welcome."""
        self._present.stalled += 1

    def note_failed(self, now: float, jitter: float, longest_pause: float, problem: str) -> None:
        """Record an attempt that led to no welcome: the present router is left alone for longer each time.

        Args:
            jitter: from 0 to 1, where in its range the pause is.
        """
        router = self._present
        router.problem = problem
        router.not_before = now + jitter * min(longest_pause, _FIRST_PAUSE * 2.0 ** min(router.failures, 30))
        router.failures += 1

    def note_ended(self, not_before: float, problem: str) -> None:
        """Record the end of a connection on which the present router had welcomed us.

        Args:
            not_before: it may be dialled again then (monotonic seconds).
        """
        self._present.problem = problem
        self._present.not_before = not_before

    def note_welcomed(self) -> None:
        """Forget what came before: the present router has welcomed us."""
        for router in self._routers:
            router.forget()

    def other(self, urls: Iterable[str]) -> str:
        """The first of ``urls`` that is in the ring; empty if none is, or the present router has one of them."""
        ring = {router.url for router in self._routers}
        found = [url for url in urls if url in ring]
        return found[0] if found and self.url not in found else ""

    def may_go_to(self, url: str) -> bool:
        """Return whether the router at ``url`` is as good as the present one: those of the configuration are better."""
        return url in self._configured or self.url not in self._configured

    def move_to(self, url: str) -> None:
        """Make the router at ``url``, which is in the ring, the present one."""
        self._index = [router.url for router in self._routers].index(url)
        self._present = self._routers[self._index]

    def move_on(self) -> None:
        """Make the next router of the ring the present one."""
        self._index = (self._index + 1) % len(self._routers)
        self._present = self._routers[self._index]


class _Router:
    """A router of the list, as the attempts since the last welcome have shown it."""

    __slots__ = ("failures", "not_before", "problem", "stalled", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.not_before = 0.0
        self.forget()

    def forget(self) -> None:
        """Forget all attempts. A pause goes on."""
        self.failures = self.stalled = 0
        self.problem = ""


def _can_be_dialed(url: str) -> bool:
    """Return whether ``url`` may lead to a router: it names a host, and not just any."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "tcp" and bool(parts.hostname) and parts.hostname not in _ANY_HOST
    except ValueError:
        return False
