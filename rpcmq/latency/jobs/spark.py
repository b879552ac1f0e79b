"""Spark's engine: for logs of any size, on one machine or on a cluster.

Each question to Spark takes some tenths of a second however little there is to read, so there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.hedging import HedgedCalls
from rpcmq.latency.analysis.series import METHOD, Series
from rpcmq.latency.jobs import hedged_sql
from rpcmq.latency.jobs.cells import About
from rpcmq.latency.jobs.collect import by_level
from rpcmq.latency.jobs.engine import CALLS, Level, Only, Outline
from rpcmq.latency.jobs.hedged_cells import HedgedCells
from rpcmq.latency.jobs.runs import joined
from rpcmq.latency.jobs.source import SparkLog
from rpcmq.latency.jobs.store import read_cells, write_cells
from rpcmq.latency.jobs.transforms import (
    bucket,
    cells,
    error_counts,
    measured,
    of_trace,
    rollups,
    selected,
    slowest,
    unknown,
    window_of,
)
from rpcmq.latency.schema import IDENTITY
from rpcmq.latency.selection import Selection

__all__ = ["Spark"]

Result = TypeVar("Result")

_PARTITIONS = "spark.sql.shuffle.partitions"
#: A few megabytes are best done at once; what a task sorts should stay within some tens of megabytes.
_RECORDS_OF_TASK = 250_000


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
        with _tasks(self._spark) as fit:
            records = _Records(self._spark, selection)
            fit(records.account.in_range)
            yield records

    @contextmanager
    def cells(self, selection: Selection, *more: Path) -> Iterator[_Cells]:
        """See ``Engine``."""
        with _tasks(self._spark) as fit:
            fit(joined((selection.path, *more)).account.counted)
            stored = read_cells(self._spark, selection.path, *more)
            chosen = stored.where(~F.col("kind").isin(*selection.left_out)) if selection.left_out else stored
            yield _Cells(selected(chosen, selection.since, selection.until, selection.where))

    def trace(self, selection: Selection, id: str, count: int) -> tuple[list[dict[str, Any]], Account]:
        """See ``Engine``."""
        records = _Records(self._spark, replace(selection, deliveries=True))
        return records.of_trace(id, count), records.account


class _Cells:
    """See ``Cells``: these are stored."""

    are_measured = False

    def __init__(self, found: DataFrame) -> None:
        self._cells = found

    @property
    def rows(self) -> DataFrame:
        """Cells, or records that were ``measured``."""
        return self._cells

    def _persistently(self, ask: Callable[[], Result]) -> Result:
        return ask()

    def outline(self, methods: int | None = 0, callers: int = 0, raised: int = 0) -> Outline:
        return self._persistently(lambda: _outlined(self.rows, self.are_measured, methods, callers, raised))

    def series(self, levels: Mapping[str, Level]) -> dict[str, list[Series]]:
        def ask() -> pa.Table:
            return rollups(self.rows, levels, are_measured=self.are_measured).toArrow()

        return by_level(self._persistently(ask), levels)

    def calls(self) -> dict[tuple[str, ...], int]:
        found = self.series({"calls": CALLS})["calls"]
        return {tuple(str(each.key[name]) for name in METHOD): each.records for each in found}

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, ...], int]]:
        answered = Only(("kind", "outcome"), [("call", "ok")])
        calls = self.series({"calls": Level(METHOD, None, answered)})["calls"]

        def ask() -> list[Any]:
            chosen = self.rows.where((F.col("kind") == "call") & (F.col("outcome") == "ok"))
            return list(chosen.groupBy(*METHOD).agg(F.max("window")).collect())

        return calls, {tuple(names): window for *names, window in self._persistently(ask)}


class _Records(_Cells):
    """See ``Records``. What is asked is asked again if the log changes meanwhile.

    All of it is asked of the records: there are almost as many cells, and they cost more to make and to read.
    """

    are_measured = True

    def __init__(self, spark: SparkSession, selection: Selection) -> None:
        self._spark = spark
        self._log = SparkLog(spark, selection)
        self._window = 1
        self._found: HedgedCells | None = None
        self.account, self.first_us, self.last_us = self._log.account, self._log.first_us, self._log.last_us
        super().__init__(self._log.records)

    @property
    def rows(self) -> DataFrame:
        return measured(self._log.records, self._window)

    def make_cells(self, window_seconds: int, directory: Path | None = None) -> None:
        self._window = window_seconds
        if directory is None:
            return

        def store() -> None:
            chosen = self._log.selection
            made_from = About(
                window_seconds, str(chosen.path.resolve()), chosen.since, chosen.until, chosen.where, self._log.account
            )
            with _sorted_at_once(self._spark):
                hedged = _hedged(self._spark, self._log, window_seconds) if chosen.has_whole_calls else None
                write_cells(cells(self._log.records, window_seconds), directory, made_from, hedged)
                self._found = hedged

        self._persistently(store)

    def slowest(self, count: int, most: int) -> list[dict[str, Any]]:
        return self._persistently(lambda: _rows(_slowest(self._log, count, most)))

    def unknown(self, count: int) -> list[dict[str, Any]]:
        return self._persistently(lambda: _rows(unknown(self._log.records, count)))

    def hedged(self) -> list[HedgedCalls]:
        if not self._log.selection.has_whole_calls:
            return []
        if self._found is None:
            self._found = self._persistently(lambda: _hedged(self._spark, self._log, self._window))
        return self._found.by_method(self.calls)

    def of_trace(self, id: str, count: int) -> list[dict[str, Any]]:
        return self._persistently(lambda: _rows(of_trace(self._log.records, id).limit(count)))

    def _persistently(self, ask: Callable[[], Result]) -> Result:
        answer = self._log.persistently(ask)
        self.account = self._log.account
        return answer


@contextmanager
def _tasks(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Within, the function given makes as many tasks as suit so many records; never more than there were before.

    Each costs hundredths of a second, and Spark makes 200: small logs are what people ask while they wait.
    """
    before = int(spark.conf.get(_PARTITIONS) or 200)
    fewest = min(before, spark.sparkContext.defaultParallelism)

    def fit(records: int) -> None:
        spark.conf.set(_PARTITIONS, str(min(before, max(fewest, records // _RECORDS_OF_TASK))))

    fit(0)
    try:
        yield fit
    finally:
        spark.conf.set(_PARTITIONS, str(before))


@contextmanager
def _sorted_at_once(spark: SparkSession) -> Iterator[None]:
    """Within, Spark soon sorts what it groups: cells are too many to be found by hash, which costs it a tenth more."""
    name = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "128")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _outlined(stored: DataFrame, are_measured: bool, methods: int | None, callers: int, raised: int) -> Outline:
    """All of it by one question."""
    asked = [stored.agg(F.min("window"), F.max("window"), F.array_distinct(F.array(F.min("router"), F.max("router"))))]
    asked[0] = asked[0].toDF("first", "last", "routers")
    if methods != 0:
        by_time = stored.groupBy(*METHOD).agg(
            F.coalesce(F.sum("total" if are_measured else "total.sum"), F.lit(0)).alias("weight")
        )
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


def _slowest(log: SparkLog, count: int, most: int) -> DataFrame:
    # First by few columns: all of them would have to be read of each record.
    few = slowest(log.records.select(*IDENTITY, "trace_id", "total_us"), count).collect()
    traces = [row["trace_id"] for row in few if row["trace_id"] is not None]
    alone = [tuple(row[name] for name in IDENTITY) for row in few if row["trace_id"] is None]
    wanted = F.lit(False)
    if traces:
        wanted |= F.col("trace_id").isin(traces)
    if alone:
        # The first condition is one that Parquet's statistics help with.
        names = [F.struct(*(F.lit(value).cast("bigint") for value in each)) for each in alone]
        wanted |= F.col("seq").isin([seq for *_, seq in alone]) & F.struct(*IDENTITY).isin(names)
    return log.records.where(wanted).orderBy(F.desc("total_us"), *IDENTITY).limit(most)


def _hedged(spark: SparkSession, log: SparkLog, window_seconds: int) -> HedgedCells:
    if not log.deliveries:
        return HedgedCells.none()
    records = log.whole.withColumn(hedged_sql.WINDOW, window_of(window_seconds))
    counts = spark.sql(hedged_sql.counts("{records}"), records=records)
    durations = spark.sql(hedged_sql.durations("{records}"), records=records)
    by_bucket = durations.groupBy(
        *(name for name in durations.columns if name != "us"), bucket(F.col("us")).alias("index")
    ).agg(F.count("*").alias("many"), F.sum("us").alias("sum"), F.min("us").alias("least"), F.max("us").alias("most"))
    return HedgedCells.of_engine(counts.toArrow(), by_bucket.toArrow()).where(log.selection.where)


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in found.withColumn("recv_at", F.unix_micros("recv_at")).collect()]
