"""Views: the state of a router as plain data, made in small steps and bounded in rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rpcmq.core.router.steps import Steps

__all__ = ["MAX_ROWS", "SMALL", "View", "made", "rows_of"]

#: The steps that make a view.
View = Steps[dict[str, Any]]

#: Most rows of a view; ``truncated`` has the number of further ones.
MAX_ROWS = 2000
#: Rows, or smaller things, that are made or looked at in one step.
_ROWS_IN_ONE_STEP, SMALL = 5, 50


def rows_of(name: str, rows: list[dict[str, Any]], total: int | None = None) -> dict[str, Any]:
    """Return the first of ``rows``; ``total`` counts rows that were not made at all."""
    return {name: rows[:MAX_ROWS], "truncated": max(0, (len(rows) if total is None else total) - MAX_ROWS)}


def made(name: str, rows: Iterable[dict[str, Any]], total: int, in_one_step: int = _ROWS_IN_ONE_STEP) -> View:
    """A view of ``rows``, which are made as they are asked for, so many in one step."""
    done: list[dict[str, Any]] = []
    for row in rows:
        done.append(row)
        if not len(done) % in_one_step:
            yield
    return rows_of(name, done, total)
