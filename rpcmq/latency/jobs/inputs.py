"""What the questions of an operator are answered from: cells of a log or stored ones, as series."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rpcmq.latency import manifest
from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.series import METHOD, Series, merged
from rpcmq.latency.jobs.collect import series
from rpcmq.latency.jobs.source import read_log
from rpcmq.latency.jobs.store import read_cells
from rpcmq.latency.jobs.transforms import cells, of_trace, rollup, unknown
from rpcmq.latency.selection import Selection

__all__ = ["WINDOW", "Input", "opened", "trace_rows"]

#: Length of the windows of stored cells, and of those that are made here of more than half an hour (seconds).
WINDOW = 60
#: Windows of a shorter log: as many as a comparison needs, and some more. All are parts of a minute.
_SHORTER = (1, 2, 5, 10, 15, 30)
_WINDOWS_OF_SHORT_LOG = 30
#: Windows of a method that are collected at most, about: longer ranges of time have longer windows.
_WINDOWS = 60


@dataclass(frozen=True, slots=True)
class Input:
    """Cells that can be asked.

    Attributes:
        account: of the log that was read; None: the cells were stored.
        window_seconds: length of the cells' windows.
        methods: how many there are.
        begin, end: of the first and the last window with records, seconds since 1970; 0: there are none.
    """

    cells: DataFrame
    records: DataFrame | None
    account: Account | None
    window_seconds: int
    methods: int
    begin: int
    end: int

    @property
    def coarse_window(self) -> int:
        """Length of windows (seconds) of which there are about 60, a multiple of ``window_seconds``."""
        return self.window_seconds * max(1, -(-(self.end - self.begin) // (self.window_seconds * _WINDOWS)))

    def series(self, by: Sequence[str], window_seconds: int | None = None) -> list[Series]:
        """All cells, by these dimensions and by window; windows in the order of time."""
        return _ordered(series(rollup(self.cells, by, window_seconds), by))

    def of_methods(self, methods: Collection[Series], by: Sequence[str], window_seconds: int) -> list[Series]:
        """The same, of the methods of ``methods`` only."""
        if not methods:
            return []
        if len(methods) == self.methods:
            return self.series(by, window_seconds)
        names = [F.struct(*(F.lit(each.key[name]).alias(name) for name in METHOD)) for each in methods]
        chosen = self.cells.where(F.struct(*METHOD).isin(names))
        return _ordered(series(rollup(chosen, by, window_seconds), by))

    def in_windows(self, most: int, like: Collection[Series] = ()) -> tuple[list[Series], list[Series]]:
        """By method; and by method and window, at most ``most`` methods, those that take the most time.

        Args:
            like: by method: these instead.
        """
        if self.methods <= most:
            # Each query takes its time, however few cells there are.
            windows = self.series(METHOD, self.coarse_window)
            return merged(windows, METHOD), windows
        methods = self.series(METHOD)
        chosen = like or sorted(methods, key=lambda each: -each.total.sum)[:most]
        return methods, self.of_methods(chosen, METHOD, self.coarse_window)

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, str, str], float]]:
        """Calls that ended ok, by method; and when the last window with one ended, by exchange, topic and method."""
        chosen = self.cells.where((F.col("kind") == "call") & (F.col("outcome") == "ok"))
        newest = chosen.groupBy(*METHOD).agg(F.max("window")).collect()
        ends = {(row[0], row[1], row[2]): float(row[3] + self.window_seconds) for row in newest}
        return series(rollup(chosen, METHOD), METHOD), ends

    def unknown(self, count: int) -> list[dict[str, Any]]:
        """At most ``count`` records whose end nobody knows, the newest first; none where only cells are known."""
        return [] if self.records is None else _rows(unknown(self.records, count))


@contextmanager
def opened(spark: SparkSession, selection: Selection) -> Iterator[Input]:
    """The cells of what was selected, kept in memory (or on the local disk) until the end of the block."""
    window = WINDOW
    if selection.is_log:
        records, account = read_log(
            spark, selection.path, selection.since, selection.until, dict(selection.where) or None
        )
        window = _window(selection)
        found: DataFrame = cells(records, window)
    else:
        records, account = None, None
        found = _chosen(read_cells(spark, selection.path), selection)
    found = found.persist()
    try:
        [row] = found.agg(F.count_distinct(F.struct(*METHOD)), F.min("window"), F.max("window")).collect()
        methods, first, last = row
        yield Input(found, records, account, window, methods, first or 0, 0 if last is None else last + window)
    finally:
        found.unpersist()


def trace_rows(spark: SparkSession, selection: Selection, id: str, count: int) -> tuple[list[dict[str, Any]], Account]:
    """The first ``count`` records of a trace or of a correlation id, with ``recv_at`` in microseconds since 1970.

    Raises:
        UsageError: ``id`` is neither.
    """
    records, account = read_log(spark, selection.path, selection.since, selection.until, dict(selection.where) or None)
    return _rows(of_trace(records, id).limit(count)), account


def _window(selection: Selection) -> int:
    """Length of the windows for a log (seconds): shorter ones for a short range of time."""
    files = manifest.read(selection.path).live.values()
    first = max(min((file.first_us for file in files), default=0) / 1e6, selection.since or 0)
    last = min(max((file.last_us for file in files), default=0) / 1e6, selection.until or inf)
    fitting = [seconds for seconds in _SHORTER if seconds * _WINDOWS_OF_SHORT_LOG >= last - first]
    return fitting[0] if fitting else WINDOW


def _chosen(stored: DataFrame, selection: Selection) -> DataFrame:
    """A window belongs to a range of time if it begins in it."""
    if selection.since is not None:
        stored = stored.where(F.col("window") >= selection.since)
    if selection.until is not None:
        stored = stored.where(F.col("window") < selection.until)
    for name, value in selection.where.items():
        stored = stored.where(F.col(name) == value)
    return stored


def _ordered(found: list[Series]) -> list[Series]:
    return sorted(found, key=lambda each: each.window or 0)


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in found.withColumn("recv_at", F.unix_micros("recv_at")).collect()]
