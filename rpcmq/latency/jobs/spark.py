"""Spark's engine: for logs of any size, on one machine or on a cluster.

Each question to Spark takes some tenths of a second however little there is to read, so there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.series import METHOD, Series
from rpcmq.latency.jobs.cells import About
from rpcmq.latency.jobs.collect import by_level, in_order, series
from rpcmq.latency.jobs.engine import TRIES, Changed, Level, Outline
from rpcmq.latency.jobs.runs import joined
from rpcmq.latency.jobs.source import Log, Reader
from rpcmq.latency.jobs.store import read_cells, write_cells
from rpcmq.latency.jobs.tasks import tasks
from rpcmq.latency.jobs.transforms import (
    cells,
    error_counts,
    of_trace,
    rollup,
    rollups,
    selected,
    slowest,
    unknown,
)
from rpcmq.latency.selection import Selection

__all__ = ["Spark"]

Result = TypeVar("Result")

_IDENTITY = ("router_id", "boot", "seq")


class Spark:
    """See ``Engine``.

    Args:
        spark: a session of ``session``.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def log(self, selection: Selection) -> Iterator[_Records]:
        """See ``Engine``."""
        with tasks(self._spark) as fit:
            records = _Records(self._spark, selection)
            fit(records.account.in_range)
            try:
                yield records
            finally:
                records.close()

    @contextmanager
    def cells(self, selection: Selection, *more: Path) -> Iterator[_Cells]:
        """See ``Engine``."""
        with tasks(self._spark) as fit:
            fit(joined((selection.path, *more)).account.counted)
            stored = read_cells(self._spark, selection.path, *more)
            yield _Cells(selected(stored, selection.since, selection.until, selection.where))

    def trace(self, selection: Selection, id: str, count: int) -> tuple[list[dict[str, Any]], Account]:
        """See ``Engine``."""
        records = _Records(self._spark, selection)
        return records.of_trace(id, count), records.account


class _Cells:
    """See ``Cells``."""

    def __init__(self, found: DataFrame) -> None:
        self._cells = found

    def _persistently(self, ask: Callable[[], Result]) -> Result:
        return ask()

    def outline(self, methods: int | None = 0, callers: int = 0, raised: int = 0) -> Outline:
        return self._persistently(lambda: _outlined(self._cells, methods, callers, raised))

    def series(self, levels: Mapping[str, Level]) -> dict[str, list[Series]]:
        return by_level(self._persistently(lambda: rollups(self._cells, levels).toArrow()), levels)

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, ...], int]]:
        return self._persistently(self._answered_calls)

    def _answered_calls(self) -> tuple[list[Series], dict[tuple[str, ...], int]]:
        chosen = self._cells.where((F.col("kind") == "call") & (F.col("outcome") == "ok"))
        newest = chosen.groupBy(*METHOD).agg(F.max("window")).collect()
        return in_order(series(rollup(chosen, METHOD), METHOD)), {tuple(names): window for *names, window in newest}


class _Records(_Cells):
    """See ``Records``. What is asked is asked again if the log changes meanwhile."""

    def __init__(self, spark: SparkSession, selection: Selection) -> None:
        self._spark = spark
        self._selection = selection
        self._reader = Reader(spark, selection.path, selection.since, selection.until, selection.where)
        self._log = self._reader.open()
        self._window: int | None = None
        self.account = self._log.account
        self.first_us, self.last_us = self._log.first_us, self._log.last_us
        super().__init__(self._log.records)

    def make_cells(self, window_seconds: int, directory: Path | None = None) -> None:
        if directory is None:
            # Made when they are asked first, and kept: in memory or on the local disk.
            self._window = window_seconds
            self._cells = cells(self._log.records, window_seconds).persist()
            return

        def store() -> None:
            chosen = self._selection
            made_from = About(
                window_seconds, str(chosen.path.resolve()), chosen.since, chosen.until, chosen.where, self.account
            )
            write_cells(cells(self._log.records, window_seconds), directory, made_from)

        self._persistently(store)
        self._cells = read_cells(self._spark, directory)

    def slowest(self, count: int, most: int) -> list[dict[str, Any]]:
        return self._persistently(lambda: _rows(_slowest(self._log, count, most)))

    def unknown(self, count: int) -> list[dict[str, Any]]:
        return self._persistently(lambda: _rows(unknown(self._log.records, count)))

    def of_trace(self, id: str, count: int) -> list[dict[str, Any]]:
        return self._persistently(lambda: _rows(of_trace(self._log.records, id).limit(count)))

    def close(self) -> None:
        if self._window is not None:
            self._cells.unpersist()

    def _persistently(self, ask: Callable[[], Result]) -> Result:
        for attempt in Retrying(retry=retry_if_exception_type(Changed), stop=stop_after_attempt(TRIES), reraise=True):
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    self._open_again()
                with self._reader.watch():
                    return ask()
        raise AssertionError("tenacity raises what was raised")

    def _open_again(self) -> None:
        self._log = self._reader.open()
        self.account = self._log.account
        if self._window is not None:
            self._cells.unpersist()
            self._cells = cells(self._log.records, self._window).persist()


def _outlined(stored: DataFrame, methods: int | None, callers: int, raised: int) -> Outline:
    """All of it by one question."""
    asked = [stored.agg(F.min("window"), F.max("window"), F.array_distinct(F.array(F.min("router"), F.max("router"))))]
    asked[0] = asked[0].toDF("first", "last", "routers")
    if methods != 0:
        by_time = stored.groupBy(*METHOD).agg(F.sum("total.sum").alias("weight"))
        asked.append(_named(by_time.orderBy(F.desc("weight"), *METHOD), METHOD, methods))
    if callers:
        by_number = stored.groupBy("client").agg(F.sum("records").alias("weight"))
        asked.append(_named(by_number.orderBy(F.desc("weight"), "client"), ("client",), callers))
    if raised:
        asked.append(error_counts(stored, raised))
    made = asked[0]
    for each in asked[1:]:
        made = made.unionByName(each, allowMissingColumns=True)
    found = [row.asDict() for row in made.collect()]
    [ends] = [row for row in found if row.get("names") is None]
    named = [(tuple(row["names"]), row["weight"]) for row in found if row.get("names") is not None]
    named.sort(key=lambda each: (-each[1], each[0]))
    return Outline(
        methods=[names for names, _ in named if len(names) == len(METHOD)],
        callers=[names[0] for names, _ in named if len(names) == 1],
        raised=[
            ErrorCount(names[:3], names[3], names[4], weight) for names, weight in named if len(names) > len(METHOD)
        ],
        routers=[] if ends["first"] is None else ends["routers"],
        first=ends["first"],
        last=ends["last"],
    )


def _named(ordered: DataFrame, names: tuple[str, ...], most: int | None) -> DataFrame:
    limited = ordered if most is None else ordered.limit(most)
    return limited.select(F.array(*names).alias("names"), "weight")


def _slowest(log: Log, count: int, most: int) -> DataFrame:
    # First by few columns: all of them would have to be read of each record.
    few = slowest(log.records.select(*_IDENTITY, "trace_id", "total_us"), count).collect()
    traces = [row["trace_id"] for row in few if row["trace_id"] is not None]
    alone = [tuple(row[name] for name in _IDENTITY) for row in few if row["trace_id"] is None]
    wanted = F.lit(False)
    if traces:
        wanted |= F.col("trace_id").isin(traces)
    if alone:
        # The first condition is one that Parquet's statistics help with.
        names = [F.struct(*(F.lit(value).cast("bigint") for value in each)) for each in alone]
        wanted |= F.col("seq").isin([seq for *_, seq in alone]) & F.struct(*_IDENTITY).isin(names)
    return log.records.where(wanted).orderBy(F.desc("total_us"), *_IDENTITY).limit(most)


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in found.withColumn("recv_at", F.unix_micros("recv_at")).collect()]
