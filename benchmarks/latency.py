"""The report of a dispatch log: Spark on this machine, and DuckDB on the same files.

Both make the same histograms for each minute, method, server, client and outcome, and write them as Parquet; whether
they are the same is looked at each time. A report is the whole command, page and plots included.
Everything is counted from the start of a process to its end. Fifty million records need 3 GB of disk.
"""

from __future__ import annotations

import resource
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.children import ChildFailed, child, say
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_REPORT, _LOCAL = "report, --engine spark", "report, --engine duckdb"
_SPARK, _DUCKDB = "Spark, histograms", "DuckDB, histograms"
_MILLIONS = (1, 10, 50)
#: Rounds shorter than this mean that rough figures are enough: the smallest log only (seconds).
_THOROUGH = 1.0
#: Seconds that a million records may take, at worst, and what begins and ends.
_PATIENCE = 120.0
_MEASURES = ("total", "queue", "service")


# --- in processes of their own --------------------------------------------------------------------


def report(log: str, out: str) -> None:
    """The command with Spark; of short logs it would make shorter windows, and more of them."""
    _command(log, out, "spark")


def local_report(log: str, out: str) -> None:
    """The command with the local engine."""
    _command(log, out, "duckdb")


def _command(log: str, out: str, engine: str) -> None:
    from rpcmq.cli import main

    try:
        main(["latency", "report", "--window", "60", "--engine", engine, "--log", log, "--out", out])
    except SystemExit as end:
        if end.code:
            raise
    say(_cost())


def spark(log: str, out: str) -> None:
    """Store the cells as the command does, and nothing else."""
    from rpcmq.latency.jobs.session import session
    from rpcmq.latency.jobs.source import SparkLog
    from rpcmq.latency.jobs.store import write_cells
    from rpcmq.latency.jobs.transforms import cells
    from rpcmq.latency.selection import Selection

    with session("rpcmq benchmark") as started:
        write_cells(cells(SparkLog(started, Selection(Path(log))).records), Path(out))
    say(_cost())


def duckdb(log: str, out: str) -> None:
    """The same with the local engine."""
    from rpcmq.latency.jobs.local import Local
    from rpcmq.latency.selection import Selection

    with Local().log(Selection(Path(log))) as records:
        records.make_cells(60, Path(out))
    say(_cost())


def compare(one: str, other: str) -> None:
    """Return whether both stored the same: records by window, and buckets by method, outcome and measure."""
    import duckdb as engine

    def content(directory: str) -> list[Any]:
        files = [str(path) for path in Path(directory).rglob("*.parquet")]
        queries = (_BY_WINDOW, *(_BY_BUCKET.format(measure) for measure in _MEASURES))
        return [engine.execute(f"{query} {_SORTED}", {"files": files}).fetchall() for query in queries]

    first, second = content(one), content(other)
    say({"same": first == second, "records": sum(row[1] for row in first[0]), "cells": sum(row[2] for row in first[0])})


_BY_WINDOW = """SELECT "window", sum(records)::BIGINT, count(*), sum(request_bytes)::BIGINT, sum(total.sum)::BIGINT
    FROM read_parquet($files, hive_partitioning = false)"""
_BY_BUCKET = """SELECT topic, method, outcome, each.b, sum(each.c)::BIGINT
    FROM (SELECT topic, method, outcome, unnest({}.buckets) AS each
    FROM read_parquet($files, hive_partitioning = false))"""
_SORTED = "GROUP BY ALL ORDER BY ALL"


def _cost() -> dict[str, float]:
    """CPU of this process, and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {"cpu_seconds": sum(each.ru_utime + each.ru_stime for each in used)}


# --- outside ---------------------------------------------------------------------------------------


class _Memory:
    """The most that a process and its children have had in memory, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        import psutil

        self._gone = psutil.NoSuchProcess
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = 0

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(5)

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            try:
                family = [self._process, *self._process.children(recursive=True)]
                # Java forks to set rights of files: until it is another program, the child has the parent's pages.
                programs = {tuple(each.cmdline()): each.memory_info().rss for each in reversed(family)}
                self.most = max(self.most, sum(programs.values()))
            except self._gone:
                # One of them has ended while it was looked at.
                continue


def run(options: Options) -> list[Row]:
    """Seconds, CPU seconds and memory for logs of a million records and more."""
    # Here and below: what it needs may not be installed, and is not needed to list the benchmarks.
    import psutil  # noqa: F401

    rows: list[Row] = []
    for millions in _MILLIONS if options.seconds >= _THOROUGH else _MILLIONS[:1]:
        with TemporaryDirectory(prefix="rpcmq-bench-") as folder:
            rows += _of_log(options, millions, Path(folder))
    return rows


def _of_log(options: Options, millions: int, folder: Path) -> list[Row]:
    from benchmarks import latency_log

    patience = _PATIENCE * (1 + millions)
    log = str(folder / "log")
    with child(latency_log.write, directory=log, records=millions * 1_000_000) as writer:
        writer.heard(patience)
    rows = [Row(system, f"{millions} M", []) for system in (_REPORT, _LOCAL, _SPARK, _DUCKDB)]
    # Minutes long, and less noisy for it.
    rounds = max(1, min(options.rounds, 10 // millions))
    for number in range(rounds):
        stored: list[str] = []
        for row, function in zip(rows, (report, local_report, spark, duckdb), strict=True):
            out = str(folder / f"{function.__name__}-{number}")
            stored.append(out)
            with ExitStack() as stack:
                started = time.monotonic()
                process = stack.enter_context(child(function, log=log, out=out))
                memory = stack.enter_context(_Memory(process.pid))
                sample = process.heard(patience)
                sample["seconds"] = time.monotonic() - started
            row.samples.append(sample | {"peak_mb": memory.most / 1e6})
        with child(compare, one=stored[2], other=stored[3]) as judge:
            found = judge.heard(patience)
        if not found["same"] or found["records"] != millions * 1_000_000:
            raise ChildFailed(f"Spark and DuckDB do not agree on {millions} million records: {found}")
    return rows


BENCHMARK = Benchmark(
    name="latency-report",
    title="Reports of a dispatch log of so many records: Spark, and DuckDB on the same files",
    case="records",
    metric="seconds",
    ours=_SPARK,
    run=run,
)
