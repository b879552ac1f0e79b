"""Cells on disk, by Spark: those of a report, and the directories that a stream and its fold write."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from rpcmq.latency.analysis.series import DIMENSIONS
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, SUMS, About, files_of, replaced
from rpcmq.latency.jobs.hedged_cells import HedgedCells, write_hedged
from rpcmq.latency.jobs.journal import Dataset

__all__ = ["CELLS", "HOUR", "WINDOW", "as_spark", "read_cells", "remove_strays", "write_cells", "write_dataset"]

HOUR = 3600
#: Length of the cells' windows (seconds).
WINDOW = 60
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


def write_cells(
    cells: DataFrame, directory: Path, made_from: About | None = None, hedged: HedgedCells | None = None
) -> None:
    """Make or replace ``directory``, as ``cells.replaced`` does.

    Args:
        hedged: those of calls that several servers had; None: not known.

    Raises:
        OSError: it was not written; what was there before is.
    """
    with replaced(directory, made_from) as made:
        cells.select(*_COLUMNS).write.options(**_PLAIN, **_WITHOUT_SIZES).parquet(as_spark(made), compression="zstd")
        if hedged is not None:
            write_hedged(made, hedged)


def read_cells(spark: SparkSession, *directories: Path) -> DataFrame:
    """The cells of all ``directories``; several may have the same key. Arguments and errors: those of ``files_of``."""
    # Files one by one: a directory may lie in another that Spark takes for a partition of a table.
    files = [as_spark(file) for file in files_of(*directories)]
    if not files:
        return spark.createDataFrame([], CELLS)
    return spark.read.schema(CELLS).parquet(*files)


def as_spark(path: Path) -> str:
    """``path``, of a file of this machine, as Spark takes it: for one thing, not as a pattern."""
    return "file:" + re.sub(r"([\\*?{}\[\]])", r"\\\1", str(path.resolve()))


def write_dataset(out: Path, path: str, cells: DataFrame, at: float, *, is_batch: bool, files: int = 1) -> Dataset:
    """Make the directory ``path`` below ``out``, or replace it; if there are no cells, there is none.

    It is written by Spark under a name of its own, and renamed when all of it is on the disk. Another Spark whose
    driver was killed, and which has not noticed, may still write: but nobody renames for it.

    Args:
        files: how many at most, each made by one core. Whoever reads many directories pays for each file.

    Raises:
        OSError: it was not written.
    """
    made = Observation()
    hour = F.floor(F.col("window") / HOUR) * HOUR
    observed = cells.observe(made, F.sum("records").alias("records"), F.collect_set(hour).alias("hours"))
    write_cells(observed.coalesce(files), out / path, About(WINDOW))
    found = made.get
    if not found["records"]:
        shutil.rmtree(out / path)
    return Dataset(path, tuple(sorted(map(int, found["hours"]))), found["records"] or 0, at, is_batch)


def remove_strays(out: Path, known: Collection[str]) -> None:
    """Remove the directories of cells that are none of ``known``: what a crash left.

    To be used by the one who writes, and before it does.
    """
    for path in [*(out / "cells").glob("*/*"), *(out / "cells").glob("*/.*")]:
        if path.relative_to(out).as_posix() not in known:
            shutil.rmtree(path, ignore_errors=True)
