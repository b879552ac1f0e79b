"""The routers of the mesh, as each tells all others of itself.

A router counts what it tells (*sequence*) within its life (*incarnation*); of two records the later one holds. Records
are passed on by whoever hears something new, and forgotten when they were not refreshed. A connection between two
routers counts when both of them report it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rpcmq.wire.mesh_bodies import MAX_ROUTERS, MemberBody

__all__ = ["Member", "MemberTable"]


@dataclass(slots=True)
class Member:
    """A router other than this one."""

    said: MemberBody
    #: The time at which it has told that (monotonic seconds), as far as those know who have passed it on.
    heard: float

    def record(self, now: float) -> MemberBody:
        """Return its words with their age, for others."""
        return replace(self.said, age=int((now - self.heard) * 1000))

    @property
    def version(self) -> tuple[int, int]:
        """Orders what it has said."""
        return self.said.incarnation, self.said.sequence


class MemberTable:
    """The other routers of the mesh, by their ids."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, id: int) -> Member | None:
        """Return the router ``id``."""
        return self._members.get(id)

    def take(self, now: float, said: MemberBody) -> bool:
        """Take a record; return whether it is news, and so to be passed on."""
        known = self._members.get(said.id)
        if known is None and len(self._members) >= MAX_ROUTERS:
            return False
        if known is not None and known.version >= (said.incarnation, said.sequence):
            return False
        self._members[said.id] = Member(said, now - said.age / 1000)
        return True

    def forget(self, now: float, seconds: float) -> list[MemberBody]:
        """Forget the routers of which nothing was heard for ``seconds``; return what they have said last."""
        old = [member.said for member in self if now >= member.heard + seconds]
        for said in old:
            del self._members[said.id]
        return old

    def next_to_forget(self) -> float:
        """The time at which the oldest record was heard; infinite if there is none."""
        return min((member.heard for member in self), default=float("inf"))

    def reachable(self, neighbours: Iterable[int], own: int) -> set[int]:
        """Return the ids of the routers that a chain of connections leads to, which begins at ``neighbours``."""
        found = set(neighbours)
        unvisited = list(found)
        while unvisited:
            for other in self.connected(unvisited.pop()):
                if other != own and other not in found:
                    found.add(other)
                    unvisited.append(other)
        return found

    def connected(self, id: int) -> list[int]:
        """Return the ids of the routers that the router ``id`` is linked to directly, as both of them report."""
        member = self._members.get(id)
        if member is None or member.said.left:
            return []
        return [other for other in member.said.neighbours if self._reports(other, id)]

    def _reports(self, id: int, other: int) -> bool:
        member = self._members.get(id)
        return member is not None and not member.said.left and other in member.said.neighbours
