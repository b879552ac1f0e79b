"""The tables of a damaged file: their rows, the places where pages of them are missing, and pages that no table has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from rpcmq.store.salvage.cells import Page, Row
from rpcmq.store.salvage.pages import Pages

__all__ = ["SCHEMA", "Hole", "Trees"]

#: The table that says where the others are, from the first page on.
SCHEMA = "sqlite_schema"
#: The place in the first page of the number of the first one that says which are free.
_FREE_AT = 32
#: The number of a page; and the head of a page that says which are free: the next such page, and how many it names.
_NUMBER, _FREE = Struct(">I"), Struct(">II")


class Hole(NamedTuple):
    """A part of a table that cannot be read.

    Attributes:
        above: row ids in it are greater than this one; 0: it has none, or there is no bound.
        last: the greatest one that may be in it; None: there is no bound.
    """

    above: int
    last: int | None

    def may_have(self, key: int) -> bool:
        """Return whether the row of that id may have been in it."""
        return key > self.above and (self.last is None or key <= self.last)


class Trees:
    """The tables and indexes of a file.

    Attributes:
        roots: the first page of each table, by its name.
        holes: of each table of which something cannot be read.
        is_free_known: whether it is known which pages are free: these have rows that were deleted.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.holes: dict[str, list[Hole]] = {}
        #: The table of each page as it was before, where the log is damaged.
        self._owners: dict[int, str] = {}
        if pages.lost_frames:
            self._learn_owners()
        #: Pages that are part of a table, or free.
        self._known = bytearray(pages.count + 1)
        self.roots: dict[str, int] = {}
        indexes: dict[str, int] = {}
        for row in self._rows(SCHEMA, 1, self._read):
            match row and row.values:
                case ("table", str(name), _, int(root), _) if root:
                    self.roots[name] = root
                case ("index", str(name), _, int(root), _) if root:
                    indexes[name] = root
                case None:
                    self._miss(SCHEMA, Hole(0, None))
        self.is_free_known = self._mark_free()
        for name, root in indexes.items():
            for _ in self._pages_of(name, root, self._read):
                pass

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table that can be read, in their order; none if there is no such table."""
        if table in self.roots:
            for row in self._rows(table, self.roots[table], self._read):
                if row is None:
                    self._miss(table, Hole(0, None))
                else:
                    yield row

    def orphans(self) -> Iterator[list[Row]]:
        """The rows of each page that is part of no table that was read, and not known to be free.

        Where the log is damaged, of those that it has since.
        """
        pages = self._pages
        for number in sorted(pages.changed_since) if pages.lost_frames else range(2, pages.count + 1):
            page = None if self._known[number] else self._page(number, pages.read(number))
            rows = [row for row in page.rows() if row is not None] if page else []
            if rows:
                yield rows

    def _rows(self, table: str, root: int, read: Callable[[int, str], bytes]) -> Iterator[Row | None]:
        for page, above, last in self._pages_of(table, root, read):
            for row in page.rows():
                is_here = row is not None and (not page.has_keys or Hole(above, last).may_have(row.key))
                yield row if is_here else None

    def _pages_of(
        self, table: str, root: int, read: Callable[[int, str], bytes]
    ) -> Iterator[tuple[Page, int, int | None]]:
        """The pages of a table that have rows, in the order of these, each with the bounds of its row ids."""
        waiting: list[tuple[int, int, int | None]] = [(root, 0, None)]
        while waiting:
            number, above, last = waiting.pop()
            page = None
            if 0 < number < len(self._known) and not self._known[number]:
                page = self._page(number, read(number, table))
            if page is None:
                self._miss(table, Hole(above, last))
                continue
            self._known[number] = True
            below = []
            for child in page.children():
                below.append((child.number, above, last if child.last is None else child.last))
                above = child.last or above
            waiting += reversed(below)
            if page.is_leaf or not page.has_keys:
                yield page, above, last

    def _page(self, number: int, raw: bytes) -> Page | None:
        try:
            page = Page(raw, number, self._pages.usable, self._pages.read) if raw else None
            for _ in page.children() if page else ():
                pass
        except (ValueError, IndexError, StructError):
            return None
        return page

    def _miss(self, table: str, hole: Hole) -> None:
        self.holes.setdefault(table, []).append(hole)

    def _read(self, number: int, table: str) -> bytes:
        """A page of a table.

        One that the damaged part of the log may have had is from before that. It is of the table if it was then, and
        has all that it had.
        """
        if self._pages.lost_frames and number not in self._pages.changed_since and self._owners.get(number) != table:
            return b""
        return self._pages.read(number)

    def _learn_owners(self) -> None:
        self._known = bytearray(self._pages.count + 1)
        roots = {SCHEMA: 1}

        def read(number: int, table: str) -> bytes:
            self._owners[number] = table
            return self._pages.read(number, is_before=True)

        for row in self._rows(SCHEMA, 1, read):
            match row and row.values:
                case (_, str(name), _, int(root), _) if root:
                    roots[name] = root
        del roots[SCHEMA]
        for name, root in roots.items():
            for _ in self._pages_of(name, root, read):
                pass
        self.holes.clear()

    def _mark_free(self) -> bool:
        first = self._pages.read(1)
        if not first or self._pages.lost_frames:
            return False
        (number,) = _NUMBER.unpack_from(first, _FREE_AT)
        while number:
            raw = self._pages.read(number) if number < len(self._known) and not self._known[number] else b""
            if not raw:
                return False
            self._known[number] = True
            following, count = _FREE.unpack_from(raw)
            if _FREE.size + _NUMBER.size * count > self._pages.usable:
                return False
            for at in range(count):
                (free,) = _NUMBER.unpack_from(raw, _FREE.size + _NUMBER.size * at)
                if free >= len(self._known):
                    return False
                self._known[free] = True
            number = following
        return True
