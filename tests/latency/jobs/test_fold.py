"""Batches become hours: nothing changes for who reads them, at any moment."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rpcmq.latency.jobs import journal
from rpcmq.latency.jobs.fold import GRACE, MergeFailed, due, fold, read_stream_cells, sweep
from rpcmq.latency.jobs.stream import Stream
from tests.latency.jobs.streams import Log, counted, expected, of, once
from tests.latency.logs import NOW, Killed, struck_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600.0


def run(spark: SparkSession, log: Log, out: Path, now: float) -> None:
    """Take what is there at ``now``, and fold what is due then."""
    once(spark, log.directory, out, max_files=1, clock=lambda: now)


@contextmanager
def opened(log: Log, out: Path, now: float) -> Iterator[Stream]:
    stream = of(log.directory, out, clock=lambda: now)
    try:
        yield stream
    finally:
        stream.close()


def live(out: Path) -> list[str]:
    return [path.split("/")[1] for path in journal.read(out).live]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_batches_of_an_hour_that_is_over_become_one_directory_for_each_hour(
    spark: SparkSession, log: Log, out: Path
) -> None:
    # Received in three hours.
    for at in (1.0, HOUR, 2 * HOUR, 2 * HOUR):
        log.grow(100, at)
    run(spark, log, out, NOW)
    before = counted(out)
    assert len(live(out)) == 4

    run(spark, log, out, NOW + HOUR)

    assert sorted(live(out)) == ["hour=2023-11-14T22", "hour=2023-11-14T23", "hour=2023-11-15T00"]
    assert [each.records for each in journal.read(out).live.values()] == [100, 100, 200]
    assert counted(out) == before == expected(log.directory)


def test_batches_of_this_hour_are_left_unless_they_are_many(
    spark: SparkSession, log: Log, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        log.grow(10)
    run(spark, log, out, NOW)
    state = journal.read(out)

    assert due(state, NOW + 60) == []
    assert len(due(state, NOW + HOUR)) == 3
    monkeypatch.setattr("rpcmq.latency.jobs.fold._MANY", 2)
    assert len(due(state, NOW + 60)) == 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_late_records_get_into_their_hour(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(100)
    run(spark, log, out, NOW)
    run(spark, log, out, NOW + HOUR)
    log.grow(50)
    log.grow(50, at=3 * HOUR)
    run(spark, log, out, NOW + 2 * HOUR)

    run(spark, log, out, NOW + 3 * HOUR)

    assert sorted(live(out)) == ["hour=2023-11-14T22", "hour=2023-11-15T01"]
    assert counted(out) == expected(log.directory)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_was_merged_stays_for_who_reads_it(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(100)
    log.grow(100)
    run(spark, log, out, NOW)
    reader = read_stream_cells(spark, out)

    run(spark, log, out, NOW + HOUR)
    assert sum(row["records"] for row in reader.collect()) == 200
    run(spark, log, out, NOW + HOUR + GRACE - 1)
    assert len(list((out / "cells").glob("run=*/batch=*"))) == 2
    run(spark, log, out, NOW + HOUR + GRACE + 1)
    assert list((out / "cells").glob("run=*")) == []
    assert counted(out) == expected(log.directory)


def test_what_has_not_all_records_is_not_used(
    spark: SparkSession, log: Log, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.grow(100)
    run(spark, log, out, NOW)
    monkeypatch.setattr("rpcmq.latency.jobs.fold.rollup", lambda cells, by, window: cells.limit(1))

    with opened(log, out, NOW) as stream, pytest.raises(MergeFailed, match="100 records became"):
        fold(spark, out, stream._journal, due(stream.state, NOW + HOUR), NOW + HOUR)

    assert len(live(out)) == 1
    assert counted(out) == expected(log.directory)


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stride", [4, 1])
def test_whatever_change_it_is_killed_at_each_record_counts_once(
    spark: SparkSession, log: Log, tmp_path: Path, stride: int
) -> None:
    for _ in range(2):
        log.grow(20)
    made, out = tmp_path / "made", tmp_path / "out"
    run(spark, log, made, NOW)
    # An hour that was merged, which later batches belong to.
    run(spark, log, made, NOW + HOUR)
    log.grow(20)
    run(spark, log, made, NOW + 2 * HOUR)
    right, later = expected(log.directory), NOW + 3 * HOUR
    assert len(live(made)) == 2
    after = 0
    while True:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out)
        with opened(log, out, later) as stream, struck_after(after, Killed()) as executioner:
            fold(spark, out, stream._journal, due(stream.state, later), later)
            sweep(out, stream._journal, later + GRACE)
        assert counted(out) == right, after
        with opened(log, out, later) as stream:
            # What nobody reads, and nobody will name, is gone; what readers may have is not.
            there = {path.relative_to(out).as_posix() for path in (out / "cells").glob("*/*")}
            assert there <= stream.state.live.keys() | stream.state.superseded.keys(), after
            stream._housekeeping.merge(spark)
            sweep(out, stream._journal, later + 1)
        assert counted(out) == right, after
        assert [name.partition("=")[0] for name in live(out)] == ["hour"], after
        assert len([*(out / "cells").glob("*/*"), *(out / "cells").glob("*/.*")]) == 1, after
        if not executioner.struck:
            break
        after += stride
    assert after > 8
