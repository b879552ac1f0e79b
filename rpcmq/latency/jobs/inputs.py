"""What the questions of an operator are answered from: cells of a log or stored ones, as series.

Each question to Spark takes some tenths of a second however little there is to read, so there are few: one that makes
the cells and outlines them, then one for all figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.series import METHOD, Key, Series
from rpcmq.latency.jobs.batch import ERROR_CLASSES, METHODS, coarser, in_detail, window_for
from rpcmq.latency.jobs.collect import series, series_of
from rpcmq.latency.jobs.runs import joined
from rpcmq.latency.jobs.source import TRIES, Changed, Log, Reader
from rpcmq.latency.jobs.store import read_cells
from rpcmq.latency.jobs.tasks import tasks
from rpcmq.latency.jobs.transforms import Level, cells, error_counts, of_trace, rollup, rollups, selected, unknown
from rpcmq.latency.selection import Selection

__all__ = ["Figures", "Input", "opened", "trace_rows"]

Found = TypeVar("Found")

#: Windows of a method that are collected, about: longer ranges of time have longer windows.
_WINDOWS = 60


@dataclass(frozen=True, slots=True)
class Figures:
    """Which figures are asked for.

    Attributes:
        by: the dimensions to keep.
        window_seconds: length of the windows; None: no windows.
        methods: of these only; None: of all.
    """

    by: Sequence[str]
    window_seconds: int | None = None
    methods: Iterable[Key] | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """Cells that can be asked.

    Attributes:
        log, reader: what was read; None: the cells were stored.
        account: of the log.
        window_seconds: length of the cells' windows.
        methods: exchange, topic and method, those that take the most time first.
        begin, end: of the first and the last window with records, seconds since 1970; 0: there are none.
    """

    cells: DataFrame
    log: Log | None
    reader: Reader | None
    account: Account
    window_seconds: int
    methods: list[Key]
    begin: int
    end: int

    @property
    def coarse_window(self) -> int:
        """Length of windows (seconds) of which there are about 60, a multiple of ``window_seconds``."""
        return self.window_seconds * max(1, -(-(self.end - self.begin) // (self.window_seconds * _WINDOWS)))

    def for_findings(self) -> dict[str, Figures]:
        """What a report's findings are made from: the same windows and methods, so that the same is found."""
        length = max(1, self.end - self.begin)
        window = coarser(self.window_seconds, length)
        served = self.methods[:METHODS] if len(self.methods) > METHODS else None
        return {
            "methods": Figures(METHOD),
            "windows": Figures((), window),
            "method windows": Figures(METHOD, window, self.methods[:METHODS][: in_detail(window, length)]),
            "servers": Figures((*METHOD, "server"), methods=served),
        }

    def series(self, wanted: Mapping[str, Figures]) -> dict[str, list[Series]]:
        """All that is wanted, by its name, at once; windows in the order of time."""
        levels = {
            name: Level(each.by, each.window_seconds, None if each.methods is None else _is_one_of(each.methods))
            for name, each in wanted.items()
        }
        rolled = rollups(self.cells, levels).toArrow()
        found = {}
        for name, each in wanted.items():
            rows = rolled.filter(pc.equal(rolled["level"], name))
            if each.window_seconds is None:
                rows = rows.drop_columns(["window"])
            found[name] = sorted(series_of(rows, each.by), key=lambda one: one.window or 0)
        return found

    def raised(self) -> list[ErrorCount]:
        """What methods raised, the most frequent."""
        rows = error_counts(self.cells, ERROR_CLASSES).collect()
        return [ErrorCount(tuple(names[:3]), names[3], names[4], number) for names, number in rows]

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, str, str], float]]:
        """Calls that ended ok, by method; and when the last window with one ended, by exchange, topic and method."""
        chosen = self.cells.where((F.col("kind") == "call") & (F.col("outcome") == "ok"))
        newest = chosen.groupBy(*METHOD).agg(F.max("window")).collect()
        ends = {(row[0], row[1], row[2]): float(row[3] + self.window_seconds) for row in newest}
        return series(rollup(chosen, METHOD), METHOD), ends

    def unknown(self, count: int) -> list[dict[str, Any]]:
        """At most ``count`` records whose end nobody knows, the newest first; none where only cells are known.

        Raises:
            Changed: the log was changed meanwhile.
        """
        if self.log is None or self.reader is None:
            return []
        with self.reader.watch():
            return _rows(unknown(self.log.records, count))


@contextmanager
def opened(spark: SparkSession, selection: Selection) -> Iterator[Input]:
    """The cells of what was selected, kept in memory (or on the local disk) until the end of the block.

    Raises:
        UsageError: there are no cells.
        RpcError: they are damaged, or the log is.
    """
    with tasks(spark) as fit:
        found = _of_log(spark, selection, fit) if selection.is_log else _of_cells(spark, selection)
        try:
            yield found
        finally:
            found.cells.unpersist()


def trace_rows(spark: SparkSession, selection: Selection, id: str, count: int) -> tuple[list[dict[str, Any]], Account]:
    """The first ``count`` records of a trace or of a correlation id, with ``recv_at`` in microseconds since 1970.

    Raises:
        UsageError: ``id`` is neither.
        RpcError: the log is damaged.
    """
    reader = _reader(spark, selection)

    def read() -> tuple[list[dict[str, Any]], Account]:
        log = reader.open()
        with reader.watch():
            return _rows(of_trace(log.records, id).limit(count)), log.account

    return _again(read)


def _of_log(spark: SparkSession, selection: Selection, fit: Callable[[int], None]) -> Input:
    reader = _reader(spark, selection)

    def read() -> Input:
        log = reader.open()
        fit(log.account.in_range)
        window = window_for(((log.last_us or 0) - (log.first_us or 0)) / 1e6)
        with reader.watch():
            return _outlined(cells(log.records, window), log, reader, log.account, window)

    return _again(read)


def _of_cells(spark: SparkSession, selection: Selection) -> Input:
    run = joined([selection.path])
    chosen = selected(read_cells(spark, selection.path), selection.since, selection.until, selection.where)
    return _outlined(chosen, None, None, run.account, run.window_seconds)


def _outlined(found: DataFrame, log: Log | None, reader: Reader | None, account: Account, window: int) -> Input:
    """All of it is read here, and then it is kept: the log may change."""
    found = found.persist()
    try:
        rows = found.groupBy(*METHOD).agg(F.sum("total.sum"), F.min("window"), F.max("window")).collect()
    except BaseException:
        found.unpersist()
        raise
    rows.sort(key=lambda row: (-row[3], row[:3]))
    methods: list[Key] = [{name: row[name] for name in METHOD} for row in rows]
    begin = min((row[4] for row in rows), default=0)
    end = max((row[5] + window for row in rows), default=0)
    return Input(found, log, reader, account, window, methods, begin, end)


def _is_one_of(methods: Iterable[Key]) -> Any:
    # One too many would be one more series.
    names = [F.xxhash64(*(F.lit(key[name]) for name in METHOD)) for key in methods]
    return F.xxhash64(*METHOD).isin(names) if names else F.lit(False)


def _reader(spark: SparkSession, selection: Selection) -> Reader:
    return Reader(spark, selection.path, selection.since, selection.until, selection.where)


def _again(read: Callable[[], Found]) -> Found:
    """What ``read`` returns; once more if the log changed meanwhile."""
    return Retrying(retry=retry_if_exception_type(Changed), stop=stop_after_attempt(TRIES), reraise=True)(read)


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in found.withColumn("recv_at", F.unix_micros("recv_at")).collect()]
