"""The rows of each table of a store: those that are as they were written, and the kind of table that one is of."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.store.salvage.cells import Row
from rpcmq.store.sqlite_file import is_whole

__all__ = ["is_right", "kind_of", "kind_of_row"]


def _item(row: Row) -> bool:
    none, at, due, id, producer, counter, body, digest, crc = row.values
    return none is None and is_whole(crc, (row.key, at, due, producer, counter), id, body, digest)  # type: ignore[arg-type]


def _ended(row: Row) -> bool:
    none, numbers, size, crc = row.values
    return none is None and is_whole(crc, (size,), numbers) and len(numbers) % 4 == 0  # type: ignore[arg-type]


def _dead(row: Row) -> bool:
    none, queue, priority, number, died, at, id, producer, counter, body, digest, state, crc = row.values
    numbers = (number, died, at, producer, counter)
    is_placed = none is None and isinstance(queue, str) and isinstance(priority, int)
    return is_placed and is_whole(crc, numbers, id, body, digest, state)  # type: ignore[arg-type]


def _postponed(row: Row) -> bool:
    segment, number, due, state, crc = row.values
    return is_whole(crc, (segment, number, due), state)  # type: ignore[arg-type]


def _result(row: Row) -> bool:
    queue, priority, number, until, value, crc = row.values
    return isinstance(queue, str) and is_whole(crc, (priority, number, until), value)  # type: ignore[arg-type]


def _of(*types: type) -> Callable[[Row], bool]:
    return lambda row: all(isinstance(value, each) for value, each in zip(row.values, types, strict=True))


_NONE = type(None)
#: Of each kind of table the number of its columns, and whether a row is one of it.
_KINDS: dict[str, tuple[int, Callable[[Row], bool]]] = {
    "items": (9, _item),
    "ended": (4, _ended),
    "dead": (13, _dead),
    "postponed": (5, _postponed),
    "results": (6, _result),
    "segments": (5, lambda row: _of(_NONE, str, int, int)(Row(row.key, row.values[:4]))),
    "periods": (2, _of(_NONE, int)),
    "uniques": (4, _of(str, bytes, int, int)),
    "notes": (2, _of(str, bytes)),
    "ids": (2, _of(bytes, bytes)),
}


def kind_of(table: str) -> str:
    """The kind of a table: there are many of items, of what has ended, and of ids."""
    return table.rpartition("_")[0] or table


def is_right(kind: str, row: Row) -> bool:
    """Return whether a row is one of that kind of table, and as it was written."""
    if kind not in _KINDS:
        return False
    columns, is_one = _KINDS[kind]
    return len(row.values) == columns and is_one(row)


def kind_of_row(row: Row) -> str:
    """The kind of table that a row is of; empty: of none, or it is not as it was written."""
    return next((kind for kind in _KINDS if is_right(kind, row)), "")
