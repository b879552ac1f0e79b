"""Directories of cells, there whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from rpcmq.latency.files import sync
from rpcmq.latency.jobs.journal import Dataset
from rpcmq.latency.jobs.store import write_cells

__all__ = ["HOUR", "remove_strays", "write"]

HOUR = 3600


def write(out: Path, path: str, cells: DataFrame, at: float, is_batch: bool) -> Dataset:
    """Make the directory ``path`` below ``out``, or replace it; if there are no cells, there is none.

    It is written under a name of its own, by Spark, which says that it is complete with the file ``_SUCCESS``, and
    renamed when all of it is on the disk. Another Spark, whose driver was killed and which has not noticed, may still
    write: but nobody renames for it.

    Raises:
        OSError: it was not written.
    """
    target = out / path
    hidden = target.with_name(f".{target.name}-{uuid4().hex}")
    made = Observation()
    hour = F.floor(F.col("window") / HOUR) * HOUR
    observed = cells.observe(made, F.sum("records").alias("records"), F.collect_set(hour).alias("hours"))
    try:
        # One file: whoever reads many of these directories pays for each of them.
        write_cells(observed.coalesce(1), hidden)
        shutil.rmtree(target, ignore_errors=True)
        records = made.get["records"] or 0
        if records:
            for each in (*hidden.iterdir(), hidden):
                sync(each)
            hidden.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return Dataset(path, tuple(sorted(map(int, made.get["hours"]))), records, at, is_batch)


def remove_strays(out: Path, known: set[str]) -> None:
    """Remove the directories of cells that are none of ``known``: what a crash left.

    To be used by the one who writes, and before it does.
    """
    for path in [*(out / "cells").glob("*/*"), *(out / "cells").glob("*/.*")]:
        if path.relative_to(out).as_posix() not in known:
            shutil.rmtree(path, ignore_errors=True)
