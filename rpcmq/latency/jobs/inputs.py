"""Input of the operator's questions: cells of a log or stored ones, as series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.series import METHOD, Key, Series
from rpcmq.latency.jobs.batch import ERROR_CLASSES, METHODS, coarser, in_detail, window_for
from rpcmq.latency.jobs.engine import Cells, Engine, Level, Records, of_methods
from rpcmq.latency.jobs.runs import joined
from rpcmq.latency.schema import UNKNOWN
from rpcmq.latency.selection import Selection

__all__ = ["Input", "opened"]

#: Windows of a method that are collected, about: longer ranges of time have longer windows.
_WINDOWS = 60


@dataclass(frozen=True, slots=True)
class Input:
    """Cells that can be asked.

    Attributes:
        records: of the log; None: the cells were stored.
        window_seconds: length of the cells' windows.
        methods: exchange, topic and method, those that take the most time first.
        begin, end: of the first and the last window with records, seconds since 1970; 0: there are none.
    """

    cells: Cells
    records: Records | None
    stored: Account
    window_seconds: int
    methods: list[Key]
    begin: int
    end: int

    def account(self, selected: Iterable[Series]) -> Account:
        """Return the account of the log.

        Args:
            selected: series that together have all of what was asked for, each record once. Stored cells have the
                account of all of them, whatever the range.
        """
        if self.records:
            return self.records.account
        every = list(selected)
        unknown = sum(each.outcomes.get(UNKNOWN, 0) for each in every)
        return replace(self.stored, in_range=sum(each.records for each in every), unknown=unknown)

    @property
    def coarse_window(self) -> int:
        """Length of windows (seconds) of which there are about 60, a multiple of ``window_seconds``."""
        return self.window_seconds * max(1, -(-(self.end - self.begin) // (self.window_seconds * _WINDOWS)))

    def for_findings(self) -> dict[str, Level]:
        """Return what a report's findings are made of: the same windows and methods, so that the same is found."""
        length = max(1, self.end - self.begin)
        window = coarser(self.window_seconds, length)
        detailed = of_methods(self.methods[:METHODS][: in_detail(window, length)])
        return {
            "methods": Level(METHOD),
            "windows": Level((), window),
            "method windows": Level(METHOD, window, detailed, ("total",)),
            "servers": Level(
                (*METHOD, "server"), None, of_methods(self.methods[:METHODS]) if len(self.methods) > METHODS else None
            ),
        }

    def raised(self) -> list[ErrorCount]:
        """Return the most frequent errors that methods raised."""
        return self.cells.outline(raised=ERROR_CLASSES).raised

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, str, str], float]]:
        """Calls that ended ok, by method; and when the last window with one ended, by exchange, topic and method."""
        calls, newest = self.cells.answered_calls()
        ends = {(name[0], name[1], name[2]): float(window + self.window_seconds) for name, window in newest.items()}
        return calls, ends

    def unknown(self, count: int) -> list[dict[str, Any]]:
        """Return at most ``count`` records with unknown outcome, the newest first; none if there are only cells."""
        return self.records.unknown(count) if self.records else []


@contextmanager
def opened(engine: Engine, selection: Selection) -> Iterator[Input]:
    """The cells of what was selected, until the end of the block.

    Raises:
        UsageError: there are no cells.
        RpcError: they are damaged, or the log is.
    """
    if not selection.is_log:
        run = joined([selection.path])
        with engine.cells(selection) as stored:
            yield _outlined(stored, None, run.account, run.window_seconds)
        return
    with engine.log(selection) as records:
        window = window_for(((records.last_us or 0) - (records.first_us or 0)) / 1e6)
        records.make_cells(window)
        yield _outlined(records, records, records.account, window)


def _outlined(cells: Cells, records: Records | None, account: Account, window: int) -> Input:
    found = cells.outline(methods=None)
    methods: list[Key] = [dict(zip(METHOD, names, strict=True)) for names in found.methods]
    end = 0 if found.last is None else found.last + window
    return Input(cells, records, account, window, methods, found.first or 0, end)
