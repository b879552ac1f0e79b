"""The routers of the mesh, as each tells all others of itself.

A router counts what it tells (*sequence*) within its life (*incarnation*); of two records the later one holds. Records
are passed on by whoever hears something new, and forgotten when they were not refreshed. A connection between two
routers counts when both of them report it.

A neighbour that makes up routers pushes out no others: when there is no room, a record of the neighbour that has told
most of them gives way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from rpcmq.wire.mesh_bodies import MAX_ROUTERS, MemberBody

__all__ = ["Member", "MemberTable"]

_NONE: frozenset[int] = frozenset()


@dataclass(slots=True)
class Member:
    """A router other than this one."""

    said: MemberBody
    #: The time at which it has told that (monotonic seconds), as far as those know who have passed it on.
    heard: float
    #: Id of the router that has told it.
    source: int
    #: The routers that it reports connections to.
    reports: frozenset[int]
    #: Whether there was a link to it.
    was_linked: bool = False

    def record(self, now: float) -> MemberBody:
        """Return its words with their age, for others."""
        return replace(self.said, age=int((now - self.heard) * 1000))

    @property
    def version(self) -> tuple[int, int]:
        """Orders what it has said."""
        return self.said.incarnation, self.said.sequence


class MemberTable:
    """The other routers of the mesh, by their ids.

    Attributes:
        changes: counts the changes of anything that ways, or the dialling of routers, depend on.
        connections: the number of connections between routers of the table, as both ends report them, each twice.
    """

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}
        #: By id, those that it has connections with.
        self._connected: dict[int, set[int]] = {}
        #: By id of a router, the number of records that it has told.
        self._told: Counter[int] = Counter()
        self.changes = self.connections = 0

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, id: int) -> Member | None:
        """Return the router ``id``."""
        return self._members.get(id)

    def take(self, now: float, said: MemberBody, source: int) -> bool:
        """Take a record, which the router ``source`` has told; return whether it is news, and so to be passed on."""
        known = self._members.get(said.id)
        if known is not None and known.version >= (said.incarnation, said.sequence):
            return False
        if known is None and len(self._members) >= MAX_ROUTERS:
            return False
        reports = frozenset(said.neighbours) if not said.left else _NONE
        was_linked = known is not None and known.was_linked
        self._members[said.id] = Member(replace(said, age=0), now - said.age / 1000, source, reports, was_linked)
        self._told[source] += 1
        if known is not None:
            self._untell(known.source)
        if known is None or known.reports != reports or _place(known.said) != _place(said):
            self.changes += 1
            self._connect(said.id, known.reports if known is not None else _NONE, reports)
        return True

    def one_too_many(self, source: int, kept: Collection[int]) -> int | None:
        """Return the id of the router that gives way to one that ``source`` tells; None if there is room, or none does.

        Args:
            kept: ids of routers that do not give way.
        """
        if len(self._members) < MAX_ROUTERS:
            return None
        told = self._told
        most = max(told, key=lambda each: told[each])
        if told[most] <= told.get(source, 0) + 1:
            return None
        candidates = (id for id, each in self._members.items() if each.source == most and id not in kept)
        return next(candidates, None)

    def remove(self, id: int) -> None:
        """Forget the router ``id``."""
        member = self._members.pop(id)
        self._untell(member.source)
        self.changes += 1
        self._connect(id, member.reports, _NONE)

    def forget(self, now: float, seconds: float) -> list[Member]:
        """Forget the routers of which nothing was heard for ``seconds``; return them."""
        old = [member for member in self if now >= member.heard + seconds]
        for member in old:
            self.remove(member.said.id)
        return old

    def next_to_forget(self) -> float:
        """The time at which the oldest record was heard; infinite if there is none."""
        return min((member.heard for member in self), default=float("inf"))

    def reachable(self, neighbours: Iterable[int], own: int) -> set[int]:
        """Return the ids of the routers that a chain of connections leads to, which begins at ``neighbours``."""
        found = set(neighbours)
        unvisited = list(found)
        while unvisited:
            new = self.connected(unvisited.pop()) - found
            new.discard(own)
            found |= new
            unvisited += new
        return found

    def connected(self, id: int) -> set[int]:
        """Return the ids of the routers that the router ``id`` is linked to directly, as both of them report."""
        return self._connected.get(id, set())

    def _untell(self, source: int) -> None:
        self._told[source] -= 1
        if not self._told[source]:
            del self._told[source]

    def _connect(self, id: int, before: frozenset[int], after: frozenset[int]) -> None:
        """Note that the router ``id`` reports other connections than before."""
        own = self._connected.setdefault(id, set())
        size = len(own)
        for other in (before - after) & own:
            own.discard(other)
            self._connected[other].discard(id)
        for other in after - before:
            member = self._members.get(other)
            if member is not None and id in member.reports:
                own.add(other)
                self._connected[other].add(id)
        self.connections += 2 * (len(own) - size)
        if not own and id not in self._members:
            del self._connected[id]


def _place(said: MemberBody) -> tuple[object, ...]:
    return said.name, said.urls, said.key, said.left
