"""The number of tasks into which Spark splits a grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["tasks"]

_PARTITIONS = "spark.sql.shuffle.partitions"
#: A few megabytes are best done at once; what a task sorts should stay within some tens of megabytes.
_RECORDS_OF_TASK = 250_000


@contextmanager
def tasks(spark: SparkSession) -> Iterator[Callable[[int], None]]:
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
