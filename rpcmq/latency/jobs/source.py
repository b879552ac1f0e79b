"""The dispatch log as a DataFrame: of the files that the manifest names those that pass the gate, and an account."""

from __future__ import annotations

import re
from math import ceil

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

from rpcmq.latency.jobs.open_log import OpenLog
from rpcmq.latency.jobs.store import as_spark
from rpcmq.latency.schema import COLUMNS, DELIVERIES, UNKNOWN
from rpcmq.latency.selection import Selection

__all__ = ["SCHEMA", "SparkLog"]

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


class SparkLog(OpenLog):
    """A log that Spark reads; it counts the records first.

    Attributes:
        records: those that were selected, with the columns of ``SCHEMA``.
        whole: with the deliveries of those that several servers had (``schema.DELIVERIES``), whatever server had them.
        deliveries: how many these are.
        first_us, last_us: least and greatest receive time, microseconds since 1970; None: there are no records.

    Args:
        spark: a session of ``session``, which has the checksums of pages looked at.
    """

    errors = (PySparkException, Py4JJavaError)
    records: DataFrame
    whole: DataFrame
    deliveries = 0
    first_us: int | None = None
    last_us: int | None = None

    def __init__(self, spark: SparkSession, selection: Selection) -> None:
        super().__init__(selection)
        self._spark = spark
        self.persistently(lambda: None)

    def look(self) -> None:
        """See ``OpenLog``."""
        super().look()
        if not self.files:
            self.records = self.whole = self._spark.createDataFrame([], SCHEMA)
            self.first_us, self.last_us, self.deliveries = None, None, 0
            return
        paths = (as_spark(self.selection.path / path) for path in self.files)
        every = self._spark.read.schema(SCHEMA).parquet(*paths)
        is_whole = wanted = self._is_whole()
        if self.selection.left_out:
            wanted &= ~F.col("kind").isin(*self.selection.left_out)
        if (server := self.selection.where.get("server")) is not None:
            wanted &= F.col("server") == server
        [counts] = every.agg(
            F.count("*"),
            F.count_if(wanted),
            F.count_if(wanted & (F.col("outcome") == UNKNOWN)),
            F.unix_micros(F.min(F.when(wanted, F.col("recv_at")))),
            F.unix_micros(F.max(F.when(wanted, F.col("recv_at")))),
            F.count_if(is_whole & F.col("kind").isin(*DELIVERIES)),
        ).collect()
        account = self.account
        account.counted, account.in_range, account.unknown, self.first_us, self.last_us, self.deliveries = counts
        self.records, self.whole = every.where(wanted), every.where(is_whole)

    def blamed(self, error: Exception) -> dict[str, str]:
        """See ``OpenLog``."""
        found = _FAILED.search(str(error))
        if found is None:
            return {}
        # One that is none of ours, such as what Spark writes meanwhile, is no reason to ask again.
        paths = [path for path in self.files if found["path"].endswith(f"/{path}")]
        return dict.fromkeys(paths, f"Spark could not read it: {found[0]}")

    def _is_whole(self) -> Column:
        chosen = self.selection
        wanted = F.lit(True)
        if chosen.since is not None:
            wanted &= F.col("recv_at") >= F.timestamp_micros(F.lit(ceil(chosen.since * 1e6)))
        if chosen.until is not None:
            wanted &= F.col("recv_at") < F.timestamp_micros(F.lit(ceil(chosen.until * 1e6)))
        for name, value in chosen.where.items():
            if name != "server":
                wanted &= F.col(name) == value
        return wanted
