"""Cells on disk, by Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rpcmq.latency.analysis.series import DIMENSIONS
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, SUMS, About, files_of, replaced
from rpcmq.latency.jobs.paths import as_spark

__all__ = ["CELLS", "read_cells", "write_cells"]

_DISTRIBUTION = (
    "struct<zeros: bigint, sum: bigint, min: bigint, max: bigint, buckets: array<struct<b: smallint, c: bigint>>>"
)
_COLUMNS = {
    "window": "bigint",
    **dict.fromkeys(DIMENSIONS, "string"),
    **dict.fromkeys(SUMS, "bigint"),
    **dict.fromkeys(DISTRIBUTIONS, _DISTRIBUTION),
}
#: The columns of cells, as Spark writes it.
CELLS = ", ".join(f"`{name}` {kind}" for name, kind in _COLUMNS.items())
#: Numbers that hardly repeat. To find that out took a third of the time that cells take to write.
_PLAIN = {
    f"parquet.enable.dictionary#{column}": "false"
    for column in (*SUMS, *(f"{name}.{part}" for name in DISTRIBUTIONS for part in ("zeros", "sum", "min", "max")))
}
#: Nobody looks at them, and to count what is nested takes a tenth of the time.
_WITHOUT_SIZES = {"parquet.size.statistics.enabled": "false"}


def write_cells(cells: DataFrame, directory: Path, made_from: About | None = None) -> None:
    """Make or replace ``directory``, as ``cells.replaced`` does.

    Raises:
        OSError: it was not written; what was there before is.
    """
    with replaced(directory, made_from) as made:
        cells.select(*_COLUMNS).write.options(**_PLAIN, **_WITHOUT_SIZES).parquet(as_spark(made), compression="zstd")


def read_cells(spark: SparkSession, *directories: Path) -> DataFrame:
    """The cells of all ``directories``; several may have the same key. Arguments and errors: those of ``files_of``."""
    # Files one by one: a directory may lie in another that Spark takes for a partition of a table.
    files = [as_spark(file) for file in files_of(*directories)]
    if not files:
        return spark.createDataFrame([], CELLS)
    return spark.read.schema(CELLS).parquet(*files)
