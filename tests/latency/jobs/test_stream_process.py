"""``rpcmq latency stream`` as a process that is killed, stopped, started again."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import gevent
import pytest

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.latency.jobs import journal
from tests.latency.jobs.groups import killed_where, streaming
from tests.latency.jobs.streams import Log, counted, expected, of_the_batch_job, of_the_stream
from tests.latency.logs import names
from tests.server.daemons import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.fault, pytest.mark.integration, pytest.mark.timeout(900)]


def next_batch(out: Path) -> int:
    return max(journal.read(out).batches.values(), default=-1) + 1


@pytest.mark.long
def test_killed_between_write_and_commit_it_counts_each_record_once(log: Log, out: Path) -> None:
    for _ in range(3):
        log.grow()
    # The driver alone: its Java is to notice.
    killed_where(log.directory, out, "written", 1, alone=True)
    assert journal.read(out).records == 400
    log.grow()

    with streaming(log.directory, out, "--once") as stream:
        assert stream.ended() == 0

    assert journal.read(out).records == log.records
    assert counted(out) == expected(log.directory)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1])
def test_killed_eleven_times_it_counts_each_record_once(spark: SparkSession, log: Log, out: Path, seed: int) -> None:
    chance = random.Random(seed)
    kills = ["random"] * 8 + ["written", "counted", "written"]
    chance.shuffle(kills)
    for where in kills:
        for _ in range(3):
            log.grow()
        if where == "random":
            with streaming(log.directory, out, "--trigger", "0.2", "--max-files", "1") as stream:
                if chance.random() < 0.8:
                    stream.heard("streaming")
                log.grow()
                gevent.sleep(chance.uniform(0, 6))
                if chance.random() < 0.5:
                    stream.kill()
                else:
                    stream.signal(signal.SIGKILL)
                    stream.ended()
        else:
            killed_where(log.directory, out, where, next_batch(out))
        # Readers see no more than there is, at any time.
        assert sum(sums[0] for sums, *_ in counted(out).values()) == journal.read(out).records <= log.records

    with streaming(log.directory, out, "--once") as stream:
        assert stream.ended() == 0

    assert journal.read(out).records == log.records
    assert counted(out) == expected(log.directory)
    assert of_the_stream(spark, out) == of_the_batch_job(spark, log.directory)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        pytest.param(signal.SIGTERM, False, id="SIGTERM"),
        pytest.param(signal.SIGINT, True, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, True, id="SIGTERM to Java too"),
    ],
)
def test_a_signal_ends_it_after_the_batch_that_it_makes(
    log: Log, out: Path, number: signal.Signals, to_all: bool
) -> None:
    log.grow()
    with streaming(log.directory, out, "--trigger", "0.2") as stream:
        record = stream.heard("batch")
        assert record["records"] == 200 and record["segments"] == 1 and record["level"] == "info"
        log.grow(100)
        stream.heard("admitted", records=100)
        if to_all:
            os.killpg(stream.process.pid, number)
        else:
            stream.signal(number)
        assert stream.ended() == 0
        stream.heard("stopped")
    assert names(out.with_name("scratch"), ".") == []
    state = journal.read(out)
    assert state.records + sum(state.waiting.values()) == 300
    assert sum(sums[0] for sums, *_ in counted(out).values()) == state.records


@pytest.mark.long
def test_a_signal_to_java_too_between_two_batches_ends_it(log: Log, out: Path) -> None:
    # Java is stopped by the signal and by the driver at the same time.
    log.grow()
    with streaming(log.directory, out, "--trigger", "0.2") as stream:
        stream.heard("batch")
        os.killpg(stream.process.pid, signal.SIGTERM)
        assert stream.ended() == 0
        stream.heard("stopped")
        assert [record for record in stream.records if record["event"] == "standard error"] == []
    assert names(out.with_name("scratch"), ".") == []
    assert journal.read(out).records == 200
    assert counted(out) == expected(log.directory)


@pytest.mark.long
@pytest.mark.parametrize("to_all", [False, True], ids=["SIGTERM", "SIGTERM to Java too"])
def test_a_signal_while_spark_starts_ends_it(log: Log, out: Path, to_all: bool) -> None:
    log.grow()
    with streaming(log.directory, out) as stream:
        stream.heard("starting")
        if to_all:
            os.killpg(stream.process.pid, signal.SIGTERM)
        else:
            stream.signal(signal.SIGTERM)
        assert stream.ended() == 0
        stream.heard("stopped")
    assert names(out.with_name("scratch"), ".") == []


def test_a_second_stream_is_refused_before_spark_starts(log: Log, out: Path) -> None:
    log.grow()
    journal_held = journal.Journal(out, lambda: 0.0)
    done = run("latency", "stream", "--log", str(log.directory), "--out", str(out))
    journal_held.close()

    assert done.returncode == ExitCode.FAILED
    assert done.stderr == f"rpcmq: {out}: another stream writes there\n"
