"""A stream counts what the batch job counts, whatever happens to it."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rpcmq.latency.analysis.account import SetAside
from rpcmq.latency.jobs import journal
from rpcmq.latency.jobs.fold import read_stream_cells
from rpcmq.latency.jobs.journal import Journal, StreamInUse
from rpcmq.latency.jobs.store import write_dataset
from rpcmq.latency.jobs.stream import Stream, StreamFailed
from rpcmq.latency.retention import Limits
from tests.latency.jobs.streams import Log, counted, expected, of, of_the_batch_job, of_the_stream, once
from tests.latency.jobs.test_admission import spoil
from tests.latency.logs import NOW, names, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

HOUR = 3600
#: Seconds for what takes ten on a machine that has nothing else to do.
PATIENCE = 100.0


def batches(notes: list[tuple[str, dict[str, Any]]]) -> list[tuple[int, int, int]]:
    return [(f["batch"], f["segments"], f["records"]) for event, f in notes if event == "batch"]


# --- what is counted ----------------------------------------------------------------------------


def test_it_counts_what_the_batch_job_counts(spark: SparkSession, log: Log, out: Path) -> None:
    for _ in range(3):
        log.grow(300)

    notes = once(spark, log.directory, out, max_files=2)

    assert batches(notes) == [(0, 2, 600), (1, 1, 300)]
    assert counted(out) == expected(log.directory)
    assert of_the_stream(spark, out) == of_the_batch_job(spark, log.directory)
    state = journal.read(out)
    assert (state.records, state.segments, state.waiting) == (900, 3, {})
    assert all((out / path / "_SUCCESS").exists() for path in state.live)
    assert {path.split("/")[1].partition("=")[0] for path in state.live} == {"run"}
    assert state.account().balances


def test_the_next_run_goes_on_from_there(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow()
    once(spark, log.directory, out)
    assert batches(once(spark, log.directory, out)) == []
    log.grow(50)

    assert batches(once(spark, log.directory, out)) == [(1, 1, 50)]

    assert counted(out) == expected(log.directory)
    assert len({path.rpartition("/")[0] for path in journal.read(out).live}) == 1
    # What Spark knows to be done needs no link.
    assert names(out, "admitted") == []


@pytest.mark.long
def test_late_segments_count(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(at=20 * 24 * 3600.0)
    once(spark, log.directory, out)
    path = log.grow()
    # Eight days older than the newest: Spark's file source passes over such files by default.
    os.utime(path, (NOW - 8 * 24 * 3600, NOW - 8 * 24 * 3600))

    once(spark, log.directory, out)

    assert journal.read(out).records == 400
    assert counted(out) == expected(log.directory)


def test_a_log_without_segments_makes_no_cells(spark: SparkSession, log: Log, out: Path) -> None:
    log.directory.mkdir()

    assert batches(once(spark, log.directory, out)) == []
    assert read_stream_cells(spark, out).count() == 0


def test_compaction_and_retention_do_not_disturb_it(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(100)
    taken = {"written": False}

    def compacted(made: object) -> None:
        taken["written"] = True

    def lose(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        if event == "admitted":
            # Admitted and not yet read: now both directories lose it.
            ship(log.directory, NOW + 24 * HOUR, Limits(ready=0))
            ship(log.directory, NOW + 48 * HOUR, Limits(age=1, ready=0))

    once(spark, log.directory, out, note=lose, after_write=compacted)

    assert taken["written"] and names(log.directory, "ready") == names(log.directory, "log") == []
    assert journal.read(out).records == 100


# --- what cannot be read ------------------------------------------------------------------------


@pytest.mark.long
def test_bad_segments_neither_stop_it_nor_count(spark: SparkSession, log: Log, out: Path) -> None:
    bad = {}
    for what in ("truncated", "empty", "corrupt", "foreign", "version", "column"):
        log.grow(30)
        path = log.grow(20)
        spoil(path, what)
        bad[path.name] = what

    notes = once(spark, log.directory, out)

    state = journal.read(out)
    assert state.aside.keys() == bad.keys() and {each.rows for each in state.aside.values()} == {20}
    assert state.records == 6 * 30 and state.account().balances and state.account().shipped == 300
    assert counted(out) == expected(log.directory, bad)
    assert sum(event == "set aside" for event, _ in notes) == len(bad)
    # A second time nothing is counted or reported again.
    again = once(spark, log.directory, out)
    assert [event for event, _ in again if event in ("batch", "set aside", "failed")] == []
    assert journal.read(out).aside == state.aside


@pytest.mark.long
def test_what_is_damaged_after_it_was_checked_is_set_aside_and_the_stream_goes_on(
    spark: SparkSession, log: Log, out: Path
) -> None:
    log.grow(30)
    bad = log.grow(400)
    log.grow(30)

    def damage(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        if event == "admitted":
            data = bytearray(bad.read_bytes())
            data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
            with bad.open("r+b") as file:
                file.write(data)

    once(spark, log.directory, out, note=damage)

    state = journal.read(out)
    assert list(state.aside) == [bad.name] and state.aside[bad.name].rows == 400
    assert (state.records, state.waiting) == (60, {})
    assert counted(out) == expected(log.directory, [bad.name])


@pytest.mark.long
def test_a_segment_that_was_repaired_counts_with_a_new_checkpoint(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(10)
    path = log.grow(20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    once(spark, log.directory, out)
    path.write_bytes(whole)
    shutil.rmtree(out / "checkpoint")

    once(spark, log.directory, out)

    assert counted(out) == expected(log.directory)
    assert not journal.read(out).aside


# --- what ends it -------------------------------------------------------------------------------


class Broken(Exception):
    """The process would be no more."""


@pytest.mark.long
def test_what_was_written_and_does_not_count_yet_is_written_again(spark: SparkSession, log: Log, out: Path) -> None:
    for _ in range(3):
        log.grow(40)
    tries = []

    def fail(made: object) -> None:
        tries.append(made)
        if len(tries) == 2:
            raise Broken

    notes = once(spark, log.directory, out, max_files=1, after_write=fail)

    assert [event for event, _ in notes].count("failed") == 1
    assert len(tries) == 4
    assert counted(out) == expected(log.directory)


@pytest.mark.parametrize("where", ["written", "counted"])
@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint", "no checkpoint"])
@pytest.mark.long
def test_with_a_checkpoint_and_without_each_record_counts_once(
    spark: SparkSession, log: Log, out: Path, where: str, checkpoint: bool
) -> None:
    for _ in range(3):
        log.grow(40)

    def written(made: journal.Dataset) -> None:
        if where == "written" and made.path.endswith("batch=1"):
            raise Broken

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        # When it has failed once it does nothing more, as if it had been killed.
        if event == "failed" or (event == "batch" and where == "counted" and fields["batch"] == 1):
            raise Broken

    with pytest.raises(Broken):
        once(spark, log.directory, out, max_files=1, after_write=written, note=note)
    assert journal.read(out).records == (40 if where == "written" else 80)
    if not checkpoint:
        shutil.rmtree(out / "checkpoint")

    once(spark, log.directory, out)

    assert counted(out) == expected(log.directory)
    assert journal.read(out).records == 120
    assert len(journal.read(out).live) == len(list((out / "cells").glob("run=*/*")))


@pytest.mark.long
def test_what_spark_counts_must_be_what_the_segments_have(
    spark: SparkSession, log: Log, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.grow(40)
    real = write_dataset

    def less(*arguments: Any, **keywords: Any) -> journal.Dataset:
        arguments = (*arguments[:2], arguments[2].where("method != 'method_0'"), *arguments[3:])
        return real(*arguments, **keywords)

    monkeypatch.setattr("rpcmq.latency.jobs.stream.write_dataset", less)
    with pytest.raises(StreamFailed, match="its segments have 40"):
        once(spark, log.directory, out)

    assert journal.read(out).live == {}


@pytest.mark.long
def test_a_checkpoint_that_spark_cannot_use_is_made_anew(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(10)
    once(spark, log.directory, out)
    (out / "checkpoint" / "offsets" / "0").write_text("what is this")
    (out / "checkpoint" / "offsets" / ".0.crc").unlink()
    log.grow(20)

    notes = once(spark, log.directory, out)

    assert "failed" in [event for event, _ in notes]
    assert counted(out) == expected(log.directory)


@pytest.mark.long
def test_a_directory_that_was_moved_goes_on(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(10)
    once(spark, log.directory, out)
    log.grow(20)

    def fail(made: object) -> None:
        raise Broken

    with pytest.raises(StreamFailed):
        once(spark, log.directory, out, after_write=fail)
    moved = out.with_name("moved")
    out.rename(moved)

    once(spark, log.directory, moved)

    assert counted(moved) == expected(log.directory)


@pytest.mark.long
def test_it_goes_on_until_it_is_told_to_stop(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(10)
    stop = threading.Event()
    seen: list[dict[str, Any]] = []

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        if event != "batch":
            return
        seen.append(fields)
        if len(seen) < 3:
            log.grow(10)
        else:
            stop.set()
            # What comes after that waits for the next start.
            log.grow(5)

    stream = of(log.directory, out, every=0.1, note=note)
    stream.run(spark, stop)
    stream.close()

    assert [each["records"] for each in seen] == [10, 10, 10]
    assert spark.streams.active == []
    once(spark, log.directory, out)
    assert counted(out) == expected(log.directory)


@pytest.mark.long
def test_it_tries_again_what_fails(spark: SparkSession, log: Log, out: Path) -> None:
    log.grow(10)
    stop = threading.Event()
    failures: list[str] = []

    def fail(made: object) -> None:
        if not failures:
            raise OSError(28, "No space left on device")

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        if event == "failed":
            failures.append(text)
        if event == "batch":
            stop.set()

    stream = of(log.directory, out, every=0.1, note=note, after_write=fail)
    stream.run(spark, stop)
    stream.close()

    assert len(failures) == 1
    assert counted(out) == expected(log.directory)


def test_two_streams_to_one_directory_are_refused(log: Log, out: Path) -> None:
    log.directory.mkdir()
    stream = Stream(log.directory, out)
    with pytest.raises(StreamInUse, match="another stream"):
        Stream(log.directory, out)
    stream.close()
    Stream(log.directory, out).close()


@pytest.mark.long
def test_the_checkpoint_is_made_anew_before_it_is_too_large(
    spark: SparkSession, log: Log, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcmq.latency.jobs.stream._OUTGROWN", 2)
    stop = threading.Event()
    log.grow(10)

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        if event == "batch":
            if log.segments == 8:
                stop.set()
            else:
                log.grow(10)

    stream = of(log.directory, out, every=0.1, note=note)
    stream.run(spark, stop)
    stream.close()

    assert len(journal.read(out).batches) >= 2
    assert counted(out) == expected(log.directory)


# --- the journal --------------------------------------------------------------------------------


def test_a_journal_that_is_none_is_an_error(out: Path, log: Log) -> None:
    log.directory.mkdir()
    out.mkdir()
    (out / "journal.jsonl").write_text('{"event": "nonsense"}\n{"event": "admit"}\n')
    with pytest.raises(journal.JournalDamaged, match=r"journal.jsonl, line 1"):
        Stream(log.directory, out)
    # It is not held then.
    (out / "journal.jsonl").unlink()
    Stream(log.directory, out).close()


def test_of_a_torn_line_nothing_is_left(out: Path) -> None:
    first = Journal(out, lambda: NOW)
    first.admit({"a.parquet": 3})
    first.close()
    whole = (out / "journal.jsonl").read_bytes()
    with (out / "journal.jsonl").open("ab") as file:
        file.write(b'{"event":"admit","segm')

    assert journal.read(out).waiting == {"a.parquet": 3}
    Journal(out, lambda: NOW).close()
    assert (out / "journal.jsonl").read_bytes() == whole


def test_a_journal_that_was_rewritten_says_the_same(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_STALE_LINES", 3)
    log = Journal(out, lambda: NOW)
    for n in range(8):
        log.admit({f"{n}.parquet": 3})
        log.add_batch("a", n, [f"{n}.parquet"], journal.Dataset(f"cells/run=a/batch={n}", (0, HOUR), 3, NOW, True))
    log.admit({"w.parquet": 4})
    log.set_aside([SetAside("ready/x.parquet", "corrupt", "so", 5)])
    live = list(log.state.live)
    log.fold(live[:7], [journal.Dataset("cells/hour=a/fold=b", (0,), 21, NOW, False)])
    log.sweep(live[:6])
    before = log.state.totals()

    log.tidy(lambda: [f"{n}.parquet" for n in range(2, 8)])

    assert log.state.lines == 1
    gone = {"0.parquet", "1.parquet"}
    expected = before | {"lines": 1, "settled": sorted(set(before["settled"]) - gone)}
    assert log.state.totals() == journal.read(out).totals() == expected
    log.admit({"y.parquet": 1})
    log.close()
    assert journal.read(out).waiting == {"w.parquet": 4, "y.parquet": 1}
