"""The routers that a process may use: which one is next, how long each is left alone, why each was left.

They are used one at a time, in a ring: whichever is left, the one after it is next. So none is dialled twice before
each of the others was dialled once, and each has pauses of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["RouterChoice"]

#: The mean pause of a router doubles with each failed attempt, from half of this (seconds).
_FIRST_PAUSE = 0.02


class RouterChoice:
    """The routers at ``urls``, one of which is the present one.

    Args:
        urls: in the order of the ring; at least one.
        first: index of the one to begin with; any integer.

    Raises:
        ValueError: there is no url.
    """

    def __init__(self, urls: Sequence[str], first: int = 0) -> None:
        if not urls:
            raise ValueError("no router is named")
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
        """Each url of the ring, in the order given, with the reason why it was left since the last welcome, or ''."""
        return [(router.url, router.problem) for router in self._routers]

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
