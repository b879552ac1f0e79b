"""The directories of cells that a stream and its fold write."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from rpcmq.latency.jobs.cells import About
from rpcmq.latency.jobs.journal import Dataset
from rpcmq.latency.jobs.store import write_cells

__all__ = ["HOUR", "WINDOW", "remove_strays", "write"]

HOUR = 3600
#: Length of the cells' windows (seconds).
WINDOW = 60


def write(out: Path, path: str, cells: DataFrame, at: float, *, is_batch: bool, files: int = 1) -> Dataset:
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
