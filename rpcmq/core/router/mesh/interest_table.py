"""The addresses that other routers have consumers for, packed: some 80 bytes for one, whatever the number of routers.

One table has the rows of all of them, by the key of the address as it came. The value of a row is one entry for each
router that told it: its index (two bytes) and the state as it came. An object for each address would not fit.

All that one router has told since it began is a *holding*. A holding that is void is not looked at any more, and taken
out of the table in pieces (:meth:`InterestTable.sweep`).
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from rpcmq.core.router.mesh.packed_rows import ROW_OVERHEAD, PackedRows
from rpcmq.core.router.model import Link
from rpcmq.wire.consumer_name import ORIGIN_BYTES, ConsumerName
from rpcmq.wire.interest import (
    PART_SIZE,
    PlaceState,
    address_key,
    is_address,
    numbers_of,
    part_of_key,
    row_digest,
    size_of_state,
    topic_key,
)

__all__ = ["Holding", "InterestTable"]

_MASK = (1 << 64) - 1
_INDEX_BYTES, _MAX_INDEX = 2, 1 << 16
_PART_BYTES = PART_SIZE // 8
#: Bytes of forgotten names beyond which the names are written anew.
_MOST_WASTE = 1 << 16


@dataclass(slots=True, eq=False)
class Holding:
    """All that one router has told since it began to tell.

    Attributes:
        link: to that router.
        router: its name.
        count: the number of rows, of identities too.
        size_bytes: memory that they take, about.
        digest: of them, as in INTEREST.
        is_live: whether it is true, as far as known.
    """

    link: Link
    router: str
    prefix: bytes
    names: _Names
    count: int = 0
    size_bytes: int = 0
    digest: int = 0
    is_live: bool = True

    def changes(self, key: bytes, before: bytes, after: bytes) -> None:
        """Count that the state of ``key`` becomes ``after``."""
        self.count += bool(after) - bool(before)
        self.size_bytes += len(after) - len(before) + (bool(after) - bool(before)) * (len(key) + ROW_OVERHEAD)
        self.digest = self.digest - row_digest(key, before) + row_digest(key, after) & _MASK


class InterestTable:
    """The rows of all other routers."""

    __slots__ = ("_groups", "_holdings", "_parts", "_rows", "_sweep_at", "_swept", "_void")

    def __init__(self) -> None:
        self._rows = PackedRows()
        #: Key of a topic -> keys of its groups.
        self._groups: dict[bytes, dict[bytes, None]] = {}
        #: Key of an address with many consumers -> keys of the rows of parts.
        self._parts: dict[bytes, dict[bytes, None]] = {}
        self._holdings: dict[bytes, Holding] = {}
        #: Void holdings that the next sweep takes out; those that this one does, and the bucket that is its next.
        self._void: list[Holding] = []
        self._swept: dict[bytes, Holding] = {}
        self._sweep_at = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    # --- holdings ----------------------------------------------------------------------------

    def open(self, link: Link, router: str) -> Holding:
        """An empty holding for the router ``router`` at ``link``."""
        prefix = next(
            prefix
            for prefix in (index.to_bytes(_INDEX_BYTES) for index in range(_MAX_INDEX))
            if prefix not in self._holdings
        )
        holding = self._holdings[prefix] = Holding(link, router, prefix, _Names())
        return holding

    def close(self, holding: Holding) -> None:
        """Nothing of ``holding`` is true any more."""
        holding.is_live = False
        self._void.append(holding)

    @property
    def is_sweeping(self) -> bool:
        """Whether :meth:`sweep` has something to do."""
        return bool(self._swept or self._void)

    def unswept(self, link: Link) -> int:
        """The number of void holdings of the router at ``link`` that have not been taken out yet."""
        return sum(holding.link is link for holding in (*self._void, *self._swept.values()))

    def sweep(self, limit: int) -> list[tuple[Holding, bytes]]:
        """Look at some ``limit`` rows, and return those that were taken out, with the void holding that had each."""
        if not self._swept:
            if not self._void:
                return []
            # All that are void by now together: one pass, however many these are.
            self._swept = {holding.prefix: holding for holding in self._void}
            self._void = []
            self._sweep_at = 0
        keys: list[bytes] = []
        while len(keys) < limit and (more := self._rows.keys_of(self._sweep_at)) is not None:
            keys += more
            self._sweep_at += 1
        gone = [(holding, key) for key in sorted(keys) for holding in self._swept_in(key)]
        for holding, key in gone:
            self._put(holding, key, b"")
        if self._rows.keys_of(self._sweep_at) is None:
            for prefix in self._swept:
                del self._holdings[prefix]
            self._swept = {}
        return gone

    def _swept_in(self, key: bytes) -> list[Holding]:
        return [holding for holding, _ in self._entries(key) if holding.prefix in self._swept]

    # --- rows --------------------------------------------------------------------------------

    def put(self, holding: Holding, key: bytes, state: bytes) -> None:
        """The state of ``key``, which is well-formed and not that of an identity, at the router of ``holding``."""
        holding.changes(key, self._put(holding, key, state), state)

    def put_name(self, holding: Holding, key: bytes, number: int, name: bytes) -> None:
        """The identity with ``number`` at the router of ``holding``; forgotten if it is empty."""
        before = holding.names.get(number)
        holding.names.put(number, name)
        holding.changes(key, before, name)

    def states(self, key: bytes) -> dict[Link, bytes]:
        """The states of ``key`` at the routers that are linked now."""
        return {holding.link: state for holding, state in self._entries(key) if holding.is_live}

    def had_consumers(self, key: bytes, holdings: Collection[Holding]) -> bool:
        """Return whether one of ``holdings``, which may be void, says that the address with ``key`` had consumers."""
        return any(holding in holdings and PlaceState.read(state).consumers for holding, state in self._entries(key))

    def groups(self, key: bytes) -> Iterable[bytes]:
        """The keys of the groups of the topic with ``key``."""
        return self._groups.get(key, ())

    def names(self, key: bytes) -> Iterator[tuple[Holding, ConsumerName]]:
        """The consumers of the address with ``key``, with the holding that names them, which may be void."""
        for holding, state in list(self._entries(key)):
            row = PlaceState.read(state)
            numbers = self._in_parts(key, holding) if row.in_parts else iter(row.identities)
            for number in numbers:
                if name := holding.names.get(number):
                    yield holding, ConsumerName.decode(name)

    def _in_parts(self, key: bytes, holding: Holding) -> Iterator[int]:
        for each in list(self._parts.get(key, ())):
            for other, bits in self._entries(each):
                if other is holding:
                    yield from numbers_of(part_of_key(each), bits)

    def _entries(self, key: bytes) -> Iterator[tuple[Holding, bytes]]:
        """The entries of ``key``; of two of one router the later is last."""
        entries = self._rows.get(key)
        at = 0
        while at < len(entries):
            start = at + _INDEX_BYTES
            end = start + _size_of(key, entries, start)
            yield self._holdings[entries[at:start]], entries[start:end]
            at = end

    def _put(self, holding: Holding, key: bytes, state: bytes) -> bytes:
        """Put in or take out an entry; return the state before."""
        entries = former = self._rows.get(key)
        before = b""
        at = 0
        while at < len(entries):
            start = at + _INDEX_BYTES
            end = start + _size_of(key, entries, start)
            if entries.startswith(holding.prefix, at):
                before = entries[start:end]
                entries = entries[:at] + entries[end:]
                break
            at = end
        if state:
            entries += holding.prefix + state
        if entries != former:
            self._rows.put(key, entries)
            if not (entries and former):
                self._note_row(key, bool(entries))
        return before

    def _note_row(self, key: bytes, is_there: bool) -> None:
        """Enter the row ``key`` where it is looked for by another key, or take it out there."""
        whole, table = topic_key(key), self._groups
        if whole is None:
            whole, table = address_key(key), self._parts
        if whole is None:
            return
        rows = table.setdefault(whole, {})
        if is_there:
            rows[key] = None
            return
        del rows[key]
        if not rows:
            del table[whole]


class _Names:
    """Names by small numbers, back to back: an object for each would take as much memory as the row that names it.

    Each is that of a consumer, as in its row; what it begins with has a fixed length.
    """

    __slots__ = ("_at", "_names", "_waste", "count")

    def __init__(self) -> None:
        #: Offset of each name, after the length of its identity; 0: no name has that number.
        self._at = array("I")
        self._names = bytearray(1)
        self._waste = self.count = 0

    def __len__(self) -> int:
        return len(self._at)

    def get(self, number: int) -> bytes:
        """The name with ``number``; empty if there is none."""
        at = self._at[number] if number < len(self._at) else 0
        return bytes(self._names[at + 1 : at + self._size(at)]) if at else b""

    def put(self, number: int, name: bytes) -> None:
        """Give ``number`` the name ``name``; none if that is empty."""
        if number >= len(self._at):
            if not name:
                return
            self._at.extend([0] * (number + 1 - len(self._at)))
        before = self._at[number]
        if before:
            self._waste += self._size(before)
            self.count -= 1
        self._at[number] = 0
        if name:
            if self._waste > max(_MOST_WASTE, len(self._names) // 2):
                self._pack()
            self._at[number] = len(self._names)
            self._names.append(len(name) - ORIGIN_BYTES)
            self._names += name
            self.count += 1

    def _pack(self) -> None:
        before, self._names, self._waste = self._names, bytearray(1), 0
        for number, at in enumerate(self._at):
            if at:
                self._at[number] = len(self._names)
                self._names += before[at : at + 1 + ORIGIN_BYTES + before[at]]

    def _size(self, at: int) -> int:
        """Bytes of the name at ``at``, and of its length."""
        return 1 + ORIGIN_BYTES + self._names[at]


def _size_of(key: bytes, entries: bytes, at: int) -> int:
    return size_of_state(entries, at) if is_address(key) else _PART_BYTES
