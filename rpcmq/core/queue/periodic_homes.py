"""The owner that puts each periodic item: one in a mesh, as its owners tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from rpcmq.core.common.text import shorten
from rpcmq.core.queue.periodic import PeriodicKey
from rpcmq.store.contract import Note

__all__ = ["MOST_HOMES", "Home", "PeriodicHomes"]

#: Periodic items of a mesh, those included that were removed; of these the oldest are forgotten.
MOST_HOMES = 10_000
#: The name of the note of each begins with this.
_HOME = "home of periodic "
#: Bounds of what others tell: of times (milliseconds), and of the name of an owner (bytes).
_LATEST, _LONGEST_OWNER = 1 << 53, 255


class Home(NamedTuple):
    """The owner of a periodic item; of two the greater counts.

    Attributes:
        at: the time of the declaration or the removal, milliseconds of the wall clock of who was asked.
        owner: empty: it was removed.
    """

    at: int
    owner: str

    @classmethod
    def checked(cls, at: object, owner: object) -> Self:
        """The home of which another queue server has told.

        Raises:
            ValueError: it is none.
        """
        if type(at) is not int or not 0 < at < _LATEST:
            raise ValueError(f"a periodic item was declared at a time in milliseconds, not at {shorten(repr(at))}")
        if type(owner) is not str or len(owner.encode()) > _LONGEST_OWNER:
            raise ValueError(f"an owner is a text of {_LONGEST_OWNER} bytes at the most, not {shorten(repr(owner))}")
        return cls(at, owner)


class PeriodicHomes:
    """The homes that one owner knows.

    Args:
        notes: of its store, as it was opened.
    """

    def __init__(self, notes: Mapping[str, bytes]) -> None:
        self._homes: dict[PeriodicKey, Home] = {}
        for name, raw in notes.items():
            if name.startswith(_HOME):
                key = PeriodicKey(*name[len(_HOME) :].split("\n", 1))
                self._homes[key] = _home(raw)

    def owner(self, key: PeriodicKey) -> str:
        """The owner that puts it; empty: nobody, as far as is known."""
        home = self._homes.get(key)
        return "" if home is None else home.owner

    def next(self, key: PeriodicKey, owner: str, clock: int) -> Home:
        """The home of what is declared now at ``owner``, or removed: it counts more than the one that is known."""
        before = self._homes.get(key)
        return Home(clock if before is None else max(clock, before.at + 1), owner)

    def learn(self, key: PeriodicKey, home: Home) -> bool:
        """Take over ``home`` if it counts more than the one that is known; return whether it is to be noted."""
        before = self._homes.get(key)
        if before is not None and before >= home:
            return False
        self._homes[key] = home
        return True

    @staticmethod
    def note(key: PeriodicKey, home: Home) -> Note:
        """The home of ``key`` for the store."""
        return Note(f"{_HOME}{key.queue}\n{key.name}", f"{home.at} {home.owner}".encode())

    def forget_oldest(self) -> list[Note]:
        """Forget what was removed long ago, where there is too much; return what the store is to forget."""
        removed = sorted((home.at, key) for key, home in self._homes.items() if not home.owner)
        keys = [key for _, key in removed[: max(0, len(self._homes) - MOST_HOMES)]]
        notes = [self.note(key, self._homes[key])._replace(value=b"") for key in keys]
        for key in keys:
            del self._homes[key]
        return notes

    def has_room(self, key: PeriodicKey) -> bool:
        """Return whether there is room for ``key``: it is known, or takes that of one that was removed."""
        if key in self._homes or len(self._homes) < MOST_HOMES:
            return True
        return not all(home.owner for home in self._homes.values())

    def known(self) -> list[tuple[str, str, int, str]]:
        """All of them as they are told: queue, name, time and owner."""
        return [(*key, *home) for key, home in sorted(self._homes.items())]


def _home(raw: bytes) -> Home:
    at, owner = raw.decode().split(" ", 1)
    return Home(int(at), owner)
