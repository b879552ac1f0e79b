"""The keys under which addresses are served: who is one party may not speak for all that serve."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Set

from rpcmq.nodes.poison.facts import Address

__all__ = ["ServingKeys"]

#: Addresses that are remembered, and keys of each: any other one is enough to know that there are several.
_MAX_ADDRESSES, _MAX_KEYS = 1_000, 8


class ServingKeys:
    """The keys of the processes that serve an address, or did lately, at any router of the mesh.

    Args:
        memory: seconds for which a key is remembered.
    """

    def __init__(self, memory: float) -> None:
        self._memory = memory
        #: The time at which each key was seen last (monotonic seconds); the address that was seen last is the last one.
        self._seen: OrderedDict[Address, dict[str, float]] = OrderedDict()
        #: The keys that other routers were told, and when.
        self._told: OrderedDict[Address, tuple[frozenset[str], float]] = OrderedDict()

    def note(self, now: float, address: Address, keys: Iterable[str]) -> None:
        """Processes of ``keys`` serve ``address``."""
        keys = list(keys)
        if not keys:
            return
        seen = self._seen.setdefault(address, {})
        self._seen.move_to_end(address)
        for key in [each for each, at in seen.items() if each in keys or at + self._memory <= now]:
            del seen[key]
        seen.update(dict.fromkeys(keys, now))
        while len(seen) > _MAX_KEYS:
            del seen[next(iter(seen))]
        while len(self._seen) > _MAX_ADDRESSES:
            self._seen.popitem(last=False)

    def of(self, address: Address) -> Set[str]:
        """The keys under which ``address`` is served, or was, as far as it is known."""
        return self._seen.get(address, {}).keys()

    def is_news(self, now: float, address: Address, keys: frozenset[str]) -> bool:
        """Return whether other routers are to be told that ``keys`` serve ``address`` here, and note that they are."""
        told, told_at = self._told.get(address, (frozenset(), -self._memory))
        if not keys or (keys == told and now < told_at + self._memory / 2):
            return False
        self._told[address] = keys, now
        self._told.move_to_end(address)
        while len(self._told) > _MAX_ADDRESSES:
            self._told.popitem(last=False)
        return True

    def forget_told(self) -> None:
        """A router has joined that was told nothing."""
        self._told.clear()

    def forget_old(self, now: float) -> None:
        """Forget addresses that nobody has served for long."""
        while self._seen and max(next(iter(self._seen.values())).values()) + self._memory <= now:
            self._seen.popitem(last=False)
