"""``rpcmq latency stream`` as a process that is killed, stopped, started again."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import gevent
import pytest

from rpcmq.latency.jobs import journal
from tests.latency.jobs.groups import killed_where, streaming
from tests.latency.jobs.streams import Log, counted, expected, of_the_batch_job, of_the_stream
from tests.latency.logs import names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.fault, pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def next_batch(out: Path) -> int:
    return max(journal.read(out).batches.values(), default=-1) + 1


def test_killed_between_write_and_commit_and_at_random_it_counts_each_record_once(
    spark: SparkSession, log: Log, out: Path
) -> None:
    for _ in range(3):
        log.grow()
    killed_where(log.directory, out, "written", 1)
    assert journal.read(out).records == 400
    chance = random.Random(4)
    with streaming(log.directory, out, "--trigger", "0.2", "--max-files", "1") as stream:
        stream.heard("streaming")
        for _ in range(5):
            log.grow()
        gevent.sleep(chance.uniform(0, 4))
        stream.kill()
    log.grow()

    with streaming(log.directory, out, "--once") as stream:
        assert stream.ended() == 0

    assert journal.read(out).records == log.records
    assert counted(out) == expected(log.directory)
    assert of_the_stream(spark, out) == of_the_batch_job(spark, log.directory)


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
                stream.kill()
        else:
            killed_where(log.directory, out, where, next_batch(out))
        # Readers see no more than there is, at any time.
        assert sum(sums[0] for sums, *_ in counted(out).values()) == journal.read(out).records <= log.records

    with streaming(log.directory, out, "--once") as stream:
        assert stream.ended() == 0

    assert journal.read(out).records == log.records
    assert counted(out) == expected(log.directory)
    assert of_the_stream(spark, out) == of_the_batch_job(spark, log.directory)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_the_batch_that_it_makes(log: Log, out: Path, number: signal.Signals) -> None:
    log.grow()
    with streaming(log.directory, out, "--trigger", "0.2") as stream:
        record = stream.heard("batch")
        assert record["records"] == 200 and record["segments"] == 1 and record["level"] == "info"
        log.grow()
        stream.heard("admitted", segments=1)
        stream.signal(number)
        assert stream.ended() == 0
        stream.heard("stopped")
    assert names(out.with_name("scratch"), ".") == []


def test_java_ends_when_the_driver_alone_is_killed(log: Log, out: Path) -> None:
    log.grow()
    with streaming(log.directory, out, "--trigger", "0.2") as stream:
        stream.heard("batch")
        assert len(stream.members) > 1
        stream.signal(signal.SIGKILL)
        stream.ended()
