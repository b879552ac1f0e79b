"""The rows and children of a page of a SQLite file.

`The file format of SQLite <https://www.sqlite.org/fileformat.html>`_, sections 1.5, 1.6 and 2.1. A page
without a checksum may have anything in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct, unpack_from
from struct import error as StructError
from typing import NamedTuple

__all__ = ["Child", "Page", "Row", "Value"]

Value = int | float | str | bytes | None
#: The first byte of a page: an inner one or a leaf, of a table with row ids or of one without.
_INNER_INDEX, _INNER_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
#: The first page has the head of the file before its own.
_FILE_HEAD = 100
#: The head of a page: its kind and the number of rows; an inner one ends with its last child.
_PAGE_HEAD, _LAST_CHILD_AT = Struct(">B2xH"), 8
#: The number of a page. Each page with the rest of a row begins with that of the next one.
_NUMBER = Struct(">I")


class Child(NamedTuple):
    """A page below another one.

    Attributes:
        last: the greatest row id there; None: there is no bound, or it has no row ids.
    """

    number: int
    last: int | None


class Row(NamedTuple):
    """A row.

    Attributes:
        key: its row id; 0: it has none.
    """

    key: int
    values: tuple[Value, ...]


class Page:
    """A page of a table.

    Args:
        raw: its bytes.
        number: of it.
        usable: bytes of a page that SQLite uses.
        overflow: gives the bytes of a page with the rest of a row; empty: it cannot be read.

    Raises:
        ValueError: it is no page of a table.
    """

    def __init__(self, raw: bytes, number: int, usable: int, overflow: Callable[[int], bytes]) -> None:
        self._raw, self._usable, self._overflow = raw, usable, overflow
        begin = _FILE_HEAD if number == 1 else 0
        self._kind, count = _PAGE_HEAD.unpack_from(raw, begin)
        if self._kind not in (_INNER_INDEX, _INNER_TABLE, _LEAF_INDEX, _LEAF_TABLE):
            raise ValueError("it is no page of a table")
        self._head = begin
        pointers = begin + (8 if self.is_leaf else 12)
        if pointers + 2 * count > usable:
            raise ValueError(f"it has {count} rows")
        self._cells: tuple[int, ...] = unpack_from(f">{count}H", raw, pointers)

    @property
    def is_leaf(self) -> bool:
        """Whether it has rows only."""
        return self._kind in (_LEAF_INDEX, _LEAF_TABLE)

    @property
    def has_keys(self) -> bool:
        """Whether its rows have ids."""
        return self._kind in (_INNER_TABLE, _LEAF_TABLE)

    def children(self) -> Iterator[Child]:
        """The pages below an inner one, in their order.

        Raises:
            ValueError, IndexError, struct.error: one of them cannot be.
        """
        if self.is_leaf:
            return
        for at in self._cells:
            last = self._varint(at + _NUMBER.size)[0] if self.has_keys else None
            yield Child(_NUMBER.unpack_from(self._raw, at)[0], last)
        yield Child(_NUMBER.unpack_from(self._raw, self._head + _LAST_CHILD_AT)[0], None)

    def rows(self) -> Iterator[Row | None]:
        """The rows, in their order; None: one that cannot be read."""
        if self._kind == _INNER_TABLE:
            return
        for at in self._cells:
            try:
                yield self._row(at)
            except (ValueError, IndexError, StructError):
                yield None

    def _row(self, at: int) -> Row:
        if self._kind == _INNER_INDEX:
            at += _NUMBER.size
        size, at = self._varint(at)
        key = 0
        if self.has_keys:
            key, at = self._varint(at)
        return Row(key, _values(self._payload(size, at)))

    def _payload(self, size: int, at: int) -> bytes:
        """The bytes of a row, of which what does not fit stands on pages of their own."""
        usable = self._usable
        most = usable - 35 if self.has_keys else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return self._piece(at, size)
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - _NUMBER.size)
        here = here if here <= most else least
        pieces = [self._piece(at, here)]
        missing = size - here
        (next_page,) = _NUMBER.unpack(self._piece(at + here, _NUMBER.size))
        while missing > 0:
            raw = self._overflow(next_page) if next_page else b""
            if not raw:
                raise ValueError("the rest of a row cannot be read")
            piece = raw[_NUMBER.size : usable][:missing]
            pieces.append(piece)
            missing -= len(piece)
            (next_page,) = _NUMBER.unpack_from(raw)
        return b"".join(pieces)

    def _piece(self, at: int, size: int) -> bytes:
        if at + size > self._usable:
            raise ValueError("a row goes over the end of its page")
        return self._raw[at : at + size]

    def _varint(self, at: int) -> tuple[int, int]:
        return _varint(self._raw, at)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """An integer, whose bytes but for the ninth have 7 bits each, and the place behind it."""
    value = 0
    for last in range(at, at + 8):
        byte = raw[last]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, last + 1
    at += 8
    value = value << 8 | raw[at]
    return value - (1 << 64) if value >> 63 else value, at + 1


#: Bytes of an integer, by its type.
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_NULL, _REAL, _ZERO, _ONE, _FIRST_BLOB = 0, 7, 8, 9, 12


def _values(payload: bytes) -> tuple[Value, ...]:
    """The values of a row."""
    end, at = _varint(payload, 0)
    types = []
    while at < end:
        each, at = _varint(payload, at)
        types.append(each)
    if at != end:
        raise ValueError("the head of a row is wrong")
    values: list[Value] = []
    for each in types:
        if each in (_NULL, _ZERO, _ONE):
            values.append(None if each == _NULL else each - _ZERO)
            continue
        size = _INTEGERS.get(each) or (8 if each == _REAL else each - _FIRST_BLOB >> 1)
        piece = payload[at : at + size]
        if len(piece) != size or each in (10, 11) or each < 0:
            raise ValueError("a row is too short")
        at += size
        if each in _INTEGERS:
            values.append(int.from_bytes(piece, signed=True))
        elif each == _REAL:
            values.append(float(unpack_from(">d", piece)[0]))
        else:
            values.append(str(piece, "utf-8") if each & 1 else piece)
    if at != len(payload):
        raise ValueError("a row is too long")
    return tuple(values)
