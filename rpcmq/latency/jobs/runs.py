"""Cells of several runs as one: that no record is in two of them, their windows, and one account."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import inf, lcm
from pathlib import Path
from typing import NamedTuple

from rpcmq.errors import UsageError
from rpcmq.latency.analysis.account import Account
from rpcmq.latency.jobs import journal
from rpcmq.latency.jobs.cells import About, about, datasets

__all__ = ["Run", "joined"]


class Run(NamedTuple):
    """The common properties of several directories of cells.

    Attributes:
        window_seconds: a length of windows that all of theirs fit into.
        account: of all; nothing is known of a log that was not read for it.
    """

    window_seconds: int
    account: Account


def joined(directories: Sequence[Path], window_seconds: int | None = None) -> Run:
    """The cells in ``directories`` as one run.

    Args:
        directories: as ``store.read_cells`` takes them.
        window_seconds: the length of windows that is wanted.

    Raises:
        UsageError: records would count twice, or the windows do not fit.
        CellsDamaged: the cells are of a version that is not known.
    """
    found = [(path, about(path)) for directory in directories for path in datasets(directory)]
    for (first, one), (second, other) in combinations(found, 2):
        if first.resolve() == second.resolve() or _overlap(one, other):
            raise UsageError(f"{first} and {second} are of the same log and time: records would count twice")
    shortest = lcm(*(each.window_seconds for _, each in found))
    if window_seconds is not None and window_seconds % shortest:
        raise UsageError(f"--window {window_seconds}: the stored windows are {shortest} s, expected a multiple of that")
    accounts = [each.account for _, each in found if each.account is not None]
    accounts += [journal.read(each).account() for each in directories if (each / journal.NAME).exists()]
    return Run(window_seconds or shortest, _sum(accounts))


def _overlap(one: About, other: About) -> bool:
    """Return whether a record could be in both; of what a stream wrote, its journal takes care."""
    if not one.log or one.log != other.log:
        return False
    if any(other.where.get(name, value) != value for name, value in one.where.items()):
        return False
    begin = max(-inf if each.since is None else each.since for each in (one, other))
    end = min(inf if each.until is None else each.until for each in (one, other))
    return begin < end


def _sum(accounts: Sequence[Account]) -> Account:
    made = Account()
    aside = {each.path: each for account in accounts for each in account.set_aside}
    made.set_aside = list(aside.values())
    made.files = sum(each.files for each in accounts)
    made.counted = sum(each.counted for each in accounts)
    made.shipped = made.counted + sum(each.rows or 0 for each in made.set_aside)
    # Runs over one log each tell of the whole log.
    made.holes = max((each.holes for each in accounts), default=0)
    made.dropped = max((each.dropped for each in accounts), default=0)
    made.missing_segments = max((each.missing_segments for each in accounts), default=0)
    made.open = max((each.open for each in accounts), default=0)
    made.waiting = max((each.waiting for each in accounts), default=0)
    made.unsealed = list({(life.router, life.boot): life for each in accounts for life in each.unsealed}.values())
    return made
