"""Memory accounting: bytes held for each link, each key and in all, and who must give way at a limit.

A message is charged to the link that sent it from when it is accepted until it has ended, wherever it is meanwhile:
in a queue, in flight, or in both as copies. What is sent to a link, or waits to be, is that link's. Accepting and
ending a message changes one number of its link; the sums over keys and over the router are counted only when what has
come since the last count could have reached a limit, and now and then while anything moves.

Whoever is over a limit is *overdrawn*: its calls and casts are refused (Overloaded) until it holds less. When that does
not help, because it does not take what it is sent, its links end, the one that holds most first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

from rpcmq.core.router.actions import Action
from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link
from rpcmq.core.router.protocol_errors import refuse_connection
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.usage import Usage

__all__ = ["Memory"]

#: Bytes received, or seconds passed, before the sums are computed again.
_LEAST_BYTES = 8 << 20
_PERIOD = 1.0
#: Counting may take a fiftieth of the time; its cost for one link (seconds).
_SECONDS_PER_LINK = 50e-6
#: Share of the limit to which an owner must come down before its links are accepted again.
_LOW = 0.75
#: Multiple of the router's limit at which links are ended.
_HIGH = 1.25


class Memory:
    """Accounts for memory, and decides whose messages are refused and whose links must end.

    Args:
        refused: where links that had to end are counted.
        act: tells their processes.
    """

    def __init__(
        self, settings: Settings, links: LinkTable, refused: Counter[str], act: Callable[[Action], None], now: float
    ) -> None:
        self._settings = settings
        self._links = links
        self._refused = refused
        self._act = act
        self._fresh = 0
        self._room = _LEAST_BYTES
        self._count_at = now + _PERIOD
        self._overdrawn: set[Link] = set()
        #: Usage of ended links with unfinished casts -> the key's account, None without keys.
        self._left: dict[Usage, Hashable] = {}
        #: Results of the last count: bytes held for senders, and bytes queued to be sent.
        self.held_bytes = self.outgoing_bytes = 0

    @property
    def accounted_bytes(self) -> int:
        """Bytes that the router holds, with those received since the last count."""
        return self.held_bytes + self.outgoing_bytes + self._fresh

    @property
    def overdrawn(self) -> int:
        """Number of links whose calls and casts are refused."""
        return len(self._overdrawn)

    def received(self, size_bytes: int) -> bool:
        """Add received bytes; return whether :meth:`enforce` must be called before they are used."""
        self._fresh += size_bytes
        return self._fresh >= self._room

    def ended(self, link: Link) -> None:
        """``link`` has ended; casts of it may not have."""
        self._overdrawn.discard(link)
        if link.usage.size_bytes:
            self._left[link.usage] = _owner(link)

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`enforce` (monotonic seconds); None while nothing changes."""
        return self._count_at if self._fresh or self._overdrawn else None

    def is_due(self, now: float) -> bool:
        """Return whether :meth:`next_deadline` has come."""
        return now >= self._count_at and bool(self._fresh or self._overdrawn)

    def enforce(self, now: float) -> None:
        """Compute all sums, and end the links that must give way."""
        for link, why in self._count(now):
            route = link.route
            self._refused["out of memory"] += 1
            self._links.end_safely(now, link, why)
            if route is not None:
                refuse_connection(self._act, route, "overloaded", why)

    def _count(self, now: float) -> list[tuple[Link, str]]:
        """Compute all sums; return the links that must end, with reasons."""
        settings = self._settings
        self._fresh = 0
        self._count_at = now + max(_PERIOD, len(self._links) * _SECONDS_PER_LINK)
        self._left = {usage: owner for usage, owner in self._left.items() if usage.size_bytes}
        held: dict[Hashable, int] = {}
        of_link: dict[Link, int] = {}
        incoming = outgoing = 0
        for usage, owner in self._left.items():
            incoming += usage.size_bytes
            held[owner] = held.get(owner, 0) + usage.size_bytes
        for link in self._links:
            size = link.usage.size_bytes + link.inbox_bytes
            if link.outbox or link.sent_bytes:
                out = outgoing_bytes(link)
                outgoing += out
            elif size:
                out = 0
            else:
                continue
            incoming += size
            of_link[link] = size + out
            owner = _owner(link)
            held[owner] = held.get(owner, 0) + size + out
        self.held_bytes, self.outgoing_bytes = incoming, outgoing
        total = incoming + outgoing
        self._mark(of_link, held, total)
        closest = settings.router_max_bytes - total
        if settings.max_bytes_per_key:
            most = max((size for owner, size in held.items() if not isinstance(owner, Link)), default=0)
            closest = min(closest, settings.max_bytes_per_key - most)
        self._room = max(_LEAST_BYTES, closest)
        return self._to_end(of_link, held, total) if total > settings.router_max_bytes * _HIGH else []

    def _mark(self, of_link: dict[Link, int], held: dict[Hashable, int], total: int) -> None:
        """Mark each link over a limit with the name of that limit."""
        settings = self._settings
        before, self._overdrawn = self._overdrawn, set()
        # Above the router's limit, links holding more than an equal share must give way.
        share = settings.router_max_bytes / max(1, len(held))
        is_over = total > settings.router_max_bytes * (_LOW if before else 1.0)
        for link in of_link:
            owner = _owner(link)
            size = held[owner]
            low = _LOW if link in before else 1.0
            if owner is not link and settings.max_bytes_per_key and size > settings.max_bytes_per_key * low:
                link.overdrawn = "security.max_bytes_per_key"
            elif is_over and size > share * low:
                link.overdrawn = "router.max_bytes"
            else:
                continue
            self._overdrawn.add(link)
        for link in before - self._overdrawn:
            link.overdrawn = ""

    def _to_end(self, of_link: dict[Link, int], held: dict[Hashable, int], total: int) -> list[tuple[Link, str]]:
        ending: list[tuple[Link, str]] = []
        most = self._settings.router_max_bytes
        for link in sorted(of_link, key=lambda link: (held[_owner(link)], of_link[link]), reverse=True):
            if total <= most or not of_link[link]:
                break
            total -= of_link[link]
            ending.append(
                (link, f"{of_link[link]} bytes are held for it, and in all more than router.max_bytes = {most}")
            )
        return ending


def _owner(link: Link) -> Hashable:
    """Return who is charged: the link's key, or the link itself where there are no keys."""
    return link if link.permissions is None else link.permissions.usage
