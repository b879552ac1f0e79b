"""Streams for tests: a log that grows, what its cells must be, and a stream that stands still where it is to be killed.

``python -m tests.latency.jobs.streams LOG OUT WHERE BATCH`` is such a stream: ``WHERE`` is ``written`` (the cells are
there, and do not count yet) or ``counted`` (they count, and Spark does not know yet that the batch is done). There, in
the first batch that it makes with a number of at least ``BATCH``, it says so on its standard output and waits.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from rpcmq.histogram import Histogram
from rpcmq.latency import segment
from rpcmq.latency.analysis.series import DIMENSIONS, MEASURES
from rpcmq.latency.columns import to_rows
from rpcmq.latency.jobs import journal
from rpcmq.latency.jobs.cells import SUMS
from rpcmq.latency.jobs.fold import read_stream_cells
from rpcmq.latency.jobs.journal import Dataset
from rpcmq.latency.jobs.session import session
from rpcmq.latency.jobs.store import WINDOW
from rpcmq.latency.jobs.stream import Stream
from rpcmq.latency.jobs.transforms import cells, rollup
from rpcmq.latency.manifest import read
from rpcmq.latency.schema import UNKNOWN
from rpcmq.server.log import log_event, start_logging
from tests.latency.logs import NOW, ship
from tests.latency.spools import Sent, many, spooled

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

#: Under it a stream of a test is not slower than it must be.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


class Log:
    """A dispatch log in ``directory`` that grows by a segment at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments = 0
        self.records = 0

    def grow(self, records: int = 200, at: float = 1.0, now: float = NOW) -> Path:
        """One segment more, of records received ``at`` seconds after the router's start; its path."""
        self.segments += 1
        content: list[Sent] = many(1 + 1000 * self.segments, records, at)
        path = spooled(self.directory, content, segment=self.segments)
        self.records += records
        ship(self.directory, now)
        return self.directory / "ready" / path.with_suffix(".parquet").name


#: The totals of the records with one window and dimensions: sums, and the three histograms.
Cells = dict[tuple[Any, ...], list[Any]]


def counted(out: Path) -> Cells:
    """The sums of the stream's cells, read without Spark."""
    found: Cells = {}
    for path in journal.read(out).live:
        for row in pq.read_table(out / path).to_pylist():
            histograms = [_histogram(row[name]) for name in MEASURES]
            _add(found, [row["window"], *map(row.get, DIMENSIONS)], [row[name] for name in SUMS], histograms)
    return _plain(found)


def expected(log: Path, without: Collection[str] = ()) -> Cells:
    """The same straight from the records, but for those in the segments named."""
    found: Cells = {}
    for path, file in read(log).live.items():
        for row in [] if Path(path).name in without else to_rows(segment.read(log, file)):
            known = row["outcome"] != UNKNOWN
            handler = row["handler_us"] if known else None
            there, back = _ways(row) if known else (0, 0)
            between = _between(row) if known else 0
            sums = [1, handler or 0, int(handler is not None), there, back, row["req_bytes"], row["rep_bytes"], between]
            histograms = [Histogram() for _ in MEASURES]
            for histogram, name in zip(histograms, MEASURES, strict=True):
                if known and row[f"{name}_us"] is not None:
                    histogram.record(row[f"{name}_us"] - (between if name == "service" else 0))
            window = row["recv_at"] // (WINDOW * 1_000_000) * WINDOW
            _add(found, [window, *map(row.get, DIMENSIONS)], sums, histograms)
    return _plain(found)


def _between(row: dict[str, Any]) -> int:
    """The time between the routers, as far as it is known: the time at the server is without it."""
    if None in (row["between_us"], row["service_us"]):
        return 0
    between: int = min(max(0, row["between_us"]), max(0, row["service_us"]))
    return between


def _ways(row: dict[str, Any]) -> tuple[int, int]:
    """The way there and the way back, as far as they are known."""
    if None in (row["service_us"], row["handler_us"], row["reply_us"]):
        return 0, 0
    both = max(0, row["service_us"] - row["handler_us"])
    back = min(max(0, row["reply_us"]), both)
    return both - back, back


def of_the_batch_job(spark: SparkSession, log: Path) -> list[Row]:
    """The cells that the batch job makes of the log, in order."""
    return _in_order(cells(spark.read.parquet(*(str(log / path) for path in read(log).live)), WINDOW))


def of_the_stream(spark: SparkSession, out: Path) -> list[Row]:
    """The cells that readers see, those with the same key as one, in order."""
    return _in_order(rollup(read_stream_cells(spark, out), DIMENSIONS, WINDOW))


def _in_order(some: Any) -> list[Row]:
    rows: list[Row] = some.collect()
    return sorted(rows, key=lambda row: str([row["window"], *(row[name] for name in DIMENSIONS)]))


def _histogram(column: dict[str, Any]) -> Histogram:
    buckets = [[each["b"], each["c"]] for each in column["buckets"]]
    zeros = column["zeros"]
    count = zeros + sum(count for _, count in buckets)
    return Histogram.from_dict(column | {"scale": 5, "count": count, "zero_count": zeros, "buckets": buckets})


def _add(found: Cells, key: Sequence[Any], sums: list[int], histograms: list[Histogram]) -> None:
    if tuple(key) not in found:
        found[tuple(key)] = [sums, histograms]
        return
    sums_before, histograms_before = found[tuple(key)]
    sums_before[:] = [a + b for a, b in zip(sums_before, sums, strict=True)]
    for before, more in zip(histograms_before, histograms, strict=True):
        before.merge(more)


def _plain(found: Cells) -> Cells:
    return {key: [sums, *(each.to_dict() for each in histograms)] for key, (sums, histograms) in found.items()}


def standing_still(log: Path, out: Path, where: str, batch: int) -> None:
    """Run a stream that stands still ``where`` it is to be killed."""
    start_logging("json", "debug")

    def stand(reached: str, number: int) -> None:
        if (reached, number) == (where, batch):
            note(logging.INFO, "standing still", "", {"where": where, "batch": batch})
            threading.Event().wait()

    def written(made: Dataset) -> None:
        stand("written", int(made.path.rpartition("=")[2]))

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        log_event(logging.getLogger("rpcmq.test"), level, event, text, **fields)
        if event == "batch":
            stand("counted", fields["batch"])

    stream = Stream(log, out, every=0.2, max_files=2, note=note, after_write=written)
    with session("rpcmq tests", "local[1]", **QUICK) as spark:
        stream.run(spark, threading.Event())


def of(log: Path, out: Path, notes: list[tuple[str, dict[str, Any]]] | None = None, **options: Any) -> Stream:
    """A stream that appends what it notes to ``notes``."""

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        if notes is not None:
            notes.append((event, fields))

    options.setdefault("note", note)
    return Stream(log, out, **options)


def once(spark: SparkSession, log: Path, out: Path, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    """A stream over what is there; what it noted."""
    notes: list[tuple[str, dict[str, Any]]] = []
    stream = of(log, out, notes, **options)
    try:
        stream.run_once(spark, threading.Event())
    finally:
        stream.close()
    return notes


if __name__ == "__main__":
    standing_still(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
