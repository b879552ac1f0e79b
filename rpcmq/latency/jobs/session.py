"""The Spark session: one of our own, or the one that there is already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

from rpcmq.errors import NotInstalled
from rpcmq.latency.jobs.memory import engine_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUICK", "session", "session_until"]

#: Settings for up to half a million records, or so: Java spends no time on becoming faster in the long run.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

_LOOPBACK = "127.0.0.1"
#: Every session has these: without them results would differ, or damage would go unnoticed.
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}
#: Every session that is started here.
_OURS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Whoever waits for a report has no use for short pauses, which cost a twentieth of the CPU.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # Series of a report are some ten thousand: with the 128 of Spark's own all of their buckets would be sorted.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
}


def session(name: str, master: str | None = None, **conf: str) -> AbstractContextManager[SparkSession]:
    """A Spark session, ended at the end of the block with all that belongs to it.

    Where there is one already it is that one, with its own settings: under ``spark-submit``, and within another
    ``session``, which goes on afterwards.

    Args:
        name: of the application.
        master: where it runs: ``local[4]``, ``spark://HOST:PORT``; by default all cores of this machine.
        conf: more of Spark's settings, by their names.

    Raises:
        NotInstalled: there is no pyspark, or no Java for it.
        SparkFailed: it did not start, or its Java has ended; or it could not do what it was asked to, and a session of
            our own ends with that.
    """
    return _session(name, master, conf, Event())


def session_until(stop: Event, name: str, master: str | None = None) -> AbstractContextManager[SparkSession]:
    """A ``session`` whose block is to end when ``stop`` is set.

    If it does not end within 80 s, the Java of a session of our own is killed, and what waits for Spark fails.
    """
    return _session(name, master, {}, stop)


@contextmanager
def _session(name: str, master: str | None, conf: Mapping[str, str], stop: Event) -> Iterator[SparkSession]:
    try:
        from pyspark import SparkContext
    except ImportError as error:
        raise NotInstalled(f"{error.name} is not installed; pip install 'rpcmq[latency]'") from error
    from rpcmq.latency.jobs.quiet import quiet

    with quiet():
        if SparkContext._active_spark_context is not None:
            yield _get(name, conf)
        elif "PYSPARK_GATEWAY_PORT" in os.environ:
            spark = _get(name, conf)
            try:
                yield spark
            finally:
                spark.stop()
        else:
            with _started(name, master or "local[*]", conf, stop) as spark:
                yield spark


def _get(name: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(name).config(map={**conf, **_ALWAYS}).getOrCreate()
    # A session that was there already takes over what it can, but not what is for Hadoop.
    for key in _ALWAYS:
        if key.startswith("spark.hadoop."):
            spark.conf.set(key.removeprefix("spark.hadoop."), _ALWAYS[key])
    return spark


@contextmanager
def _started(name: str, master: str, conf: Mapping[str, str], stop: Event) -> Iterator[SparkSession]:
    # Not needed under spark-submit, where there may be no gevent either.
    from rpcmq.latency.jobs import java
    from rpcmq.latency.jobs.interrupts import Interrupts
    from rpcmq.latency.jobs.jvm import Jvm

    runs_on = java.find()
    with TemporaryDirectory(prefix="rpcmq-spark-", ignore_cleanup_errors=True) as directory, Interrupts() as interrupts:
        settings = {**_settings(name, master, directory), **conf, **_ALWAYS}
        with Jvm(runs_on, Path(directory), settings, alone=master.startswith("local"), stop=stop) as jvm:
            interrupts.first = jvm.abort
            with interrupts.kept():
                spark = _get(name, settings)
            yield spark


def _settings(name: str, master: str, directory: str) -> dict[str, str]:
    settings = _OURS | {"spark.app.name": name, "spark.master": master}
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.memory": f"{engine_memory()}m",
            "spark.local.dir": directory,
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
        }
    return settings
