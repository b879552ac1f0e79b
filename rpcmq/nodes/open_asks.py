"""The asks of one plugged-in node that are still to be answered, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from rpcmq.core.router.model import Link
from rpcmq.errors import Outcome
from rpcmq.nodes.ask import Ask
from rpcmq.nodes.peer import Peer
from rpcmq.wire import NO_TTL, ttl_of

__all__ = ["MAX_OF_LINK", "MAX_OPEN", "OpenAsks"]

#: Asks of one process, and of all, that a node owes an answer.
MAX_OF_LINK, MAX_OPEN = 1_000, 10_000
#: Seconds between two looks at which have expired.
_SWEEP = 1.0


class OpenAsks:
    """Keeps asks until they end.

    Args:
        default_seconds: for which one is kept that says nothing of it, at the time.
        most: bytes of an answer, at the time.
    """

    def __init__(self, default_seconds: Callable[[], float], most: Callable[[], int]) -> None:
        self._default_seconds = default_seconds
        self._most = most
        self._of_link: dict[Link, dict[Ask, None]] = {}
        self._count = 0
        self._sweep_at = inf

    def __len__(self) -> int:
        return self._count

    def open(self, now: float, link: Link, peer: Peer, message: bytes, right: str) -> Ask | None:
        """Take an ask in; None: there are too many, and its sender was told."""
        ttl = ttl_of(message)
        seconds = self._default_seconds() if ttl == NO_TTL else ttl / 1000
        ask = Ask(link, peer, message, now + seconds, right, self._most(), self._closed)
        asks = self._of_link.get(link, {})
        for count, most, whose in ((len(asks), MAX_OF_LINK, "of this process"), (self._count, MAX_OPEN, "in all")):
            if count >= most:
                self._count += 1  # `refuse` counts it off
                self._of_link.setdefault(link, {})[ask] = None
                ask.refuse(f"{count} asks {whose} wait for their answers; {most} may", Outcome.OVERLOADED)
                return None
        self._of_link.setdefault(link, {})[ask] = None
        self._count += 1
        self._sweep_at = min(self._sweep_at, now + _SWEEP)
        return ask

    def _closed(self, ask: Ask) -> None:
        link = ask.link
        asks = self._of_link.get(link)
        if asks is not None and ask in asks:
            del asks[ask]
            self._count -= 1
            if not asks:
                del self._of_link[link]

    def of(self, link: Link) -> list[Ask]:
        """The asks of ``link``."""
        return list(self._of_link.get(link, ()))

    def all(self) -> Iterator[Ask]:
        """All of them, which may end meanwhile."""
        for asks in list(self._of_link.values()):
            yield from list(asks)

    def next_deadline(self) -> float:
        """The time of the next :meth:`expired` (monotonic seconds)."""
        return self._sweep_at

    def expired(self, now: float) -> list[Ask]:
        """The asks for which nobody waits any more."""
        if now < self._sweep_at:
            return []
        self._sweep_at = now + _SWEEP if self._count else inf
        return [ask for ask in self.all() if ask.expires_at <= now]
