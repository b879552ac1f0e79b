"""Queries for rows that are bounded in bytes, too: the database sends no more than are wanted."""

from __future__ import annotations

__all__ = ["bounded"]


def bounded(columns: str, source: str, order: str, size: str) -> str:
    """A query whose last two values are the most rows, and the bytes after which there are no more of them.

    Args:
        source: the table, and the condition of its rows.
        order: of the rows: some of ``columns``.
        size: the column whose bytes count.
    """
    # The length of a value is known without reading it where it lies beside its row.
    upto = f"sum(octet_length({size})) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING)"
    first = f"SELECT {columns}, {upto} AS upto FROM {source} ORDER BY {order} LIMIT %s"
    return f"SELECT {columns} FROM ({first}) AS first WHERE upto - octet_length({size}) < %s ORDER BY {order}"
