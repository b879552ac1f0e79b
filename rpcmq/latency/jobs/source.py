"""The dispatch log as a DataFrame: of the files that the manifest names those that pass the gate, and an account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.jobs.engine import TRIES, Changed
from rpcmq.latency.jobs.gate import inspect
from rpcmq.latency.jobs.paths import as_spark
from rpcmq.latency.schema import COLUMNS, UNKNOWN
from rpcmq.latency.selection import check_dimensions

__all__ = ["SCHEMA", "Log", "Reader", "read_log"]

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int16": ShortType(),
    "int64": LongType(),
    "timestamp": TimestampType(),
}
#: The columns of the log for Spark, which would make nulls of one that it does not find.
SCHEMA = StructType([StructField(each.name, _TYPES[each.type], each.nullable) for each in COLUMNS])

#: Spark's message for a file that it could not read, whatever it was doing.
_FAILED = re.compile(
    r"(?:\[FAILED_READ_FILE\S*\] Encountered error while reading file|\[PATH_NOT_FOUND\] Path does not exist:)"
    r" (?P<path>.+?\.parquet)\b"
)


class Log(NamedTuple):
    """A range of a dispatch log.

    Attributes:
        records: with the columns of ``SCHEMA``.
        account: of it.
        first_us, last_us: least and greatest receive time, microseconds since 1970; None: there are no records.
    """

    records: DataFrame
    account: Account
    first_us: int | None
    last_us: int | None


def read_log(
    spark: SparkSession,
    directory: Path,
    since: float | None,
    until: float | None,
    where: Mapping[str, str] | None = None,
) -> tuple[DataFrame, Account]:
    """The records of a range of time, and what became of all others. Spark counts them first.

    Args:
        spark: a session of ``session``, which has the checksums of pages looked at.
        directory: the log's.
        since, until: receive times, seconds since 1970, the latter not in the range; None: no limit.
        where: dimension -> value of the records wanted.

    Raises:
        UsageError: there is no such directory, or no such dimension.
        ManifestDamaged: the manifest is not one.
        Changed: files go faster than they can be read.
        OSError: the directory cannot be read.
    """
    log = Reader(spark, directory, since, until, where).open()
    return log.records, log.account


class Reader:
    """Opens a log, again and again while it changes: it knows which files Spark could not read.

    Args: as those of ``read_log``.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        since: float | None,
        until: float | None,
        where: Mapping[str, str] | None = None,
    ) -> None:
        check_dimensions(where or ())
        self._spark = spark
        self._directory = directory
        self._range = since, until
        self._where = dict(where or {})
        self._files: list[str] = []
        self._unreadable: dict[str, str] = {}

    def open(self) -> Log:
        """The log as it is now; arguments and errors as those of ``read_log``."""
        patiently = Retrying(retry=retry_if_exception_type(Changed), stop=stop_after_attempt(TRIES), reraise=True)
        return patiently(self._open)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Around whatever has Spark read the records.

        Raises:
            Changed: a file was removed or damaged since the log was opened: open it again.
        """
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            found = _FAILED.search(str(error))
            if found is None:
                raise
            # What is gone the manifest does not name any more. What is still there, and passed the gate, Spark will
            # not read next time either.
            for path in self._files:
                if found["path"].endswith(f"/{path}") and (self._directory / path).exists():
                    self._unreadable[path] = f"Spark could not read it: {found[0]}"
            raise Changed(f"{found['path']}: removed or damaged while it was read") from error

    def _open(self) -> Log:
        passed = inspect(self._directory, *self._range, self._unreadable)
        account, self._files = passed.account, [file.path for file in passed.files]
        if not passed.files:
            return Log(self._spark.createDataFrame([], SCHEMA), account, None, None)
        with self.watch():
            every = self._spark.read.schema(SCHEMA).parquet(*(as_spark(self._directory / path) for path in self._files))
            wanted = self._is_wanted()
            [counts] = every.agg(
                F.count("*"),
                F.count_if(wanted),
                F.count_if(wanted & (F.col("outcome") == UNKNOWN)),
                F.unix_micros(F.min(F.when(wanted, F.col("recv_at")))),
                F.unix_micros(F.max(F.when(wanted, F.col("recv_at")))),
            ).collect()
        account.counted, account.in_range, account.unknown, first_us, last_us = counts
        return Log(every.where(wanted), account, first_us, last_us)

    def _is_wanted(self) -> Column:
        since, until = self._range
        wanted = F.lit(True)
        if since is not None:
            wanted &= F.col("recv_at") >= F.timestamp_micros(F.lit(ceil(since * 1e6)))
        if until is not None:
            wanted &= F.col("recv_at") < F.timestamp_micros(F.lit(ceil(until * 1e6)))
        for name, value in self._where.items():
            wanted &= F.col(name) == value
        return wanted
