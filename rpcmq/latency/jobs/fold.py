"""Merging: directories of cells written by batches become one directory for each hour.

A stream leaves a directory for each batch, some thousands an hour. When the hour in which they were written is over,
or when there are many, they are merged, with the directory of the same hour of records if there is one: late records
get into their hour. Cells merge without loss, so nothing changes for who reads them.

Nobody sees a record twice or misses one, whenever this is killed:

1. The new directories are written, each whole. The journal does not name them yet, so nobody reads them. If it ends
   here, the next start removes them.
2. One line of the journal makes the new directories count and the old ones not.
3. The old ones stay for a while, for who began to read before that, and are then removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rpcmq.errors import RpcError
from rpcmq.latency.analysis.series import DIMENSIONS
from rpcmq.latency.jobs import journal
from rpcmq.latency.jobs.journal import Dataset, Journal, State
from rpcmq.latency.jobs.store import HOUR, WINDOW, read_cells, write_dataset
from rpcmq.latency.jobs.transforms import rollup

__all__ = ["GRACE", "MergeFailed", "due", "fold", "read_stream_cells", "sweep"]

#: Seconds that a directory stays when its cells are in another one: longer than anybody takes to read it.
GRACE = 900.0
#: Directories of batches above which they are merged though their hour is not over: a reader opens them all.
_MANY = 600


class MergeFailed(RpcError):
    """The merged cells do not have all records; nothing has changed."""


def read_stream_cells(spark: SparkSession, out: Path) -> DataFrame:
    """The cells of the stream that writes to ``out``, with each record once. Several may have the same key.

    What is returned can be used for ``GRACE`` seconds, whatever the stream does meanwhile.

    Raises:
        JournalDamaged: see ``journal.read``.
    """
    return _read(spark, out, list(journal.read(out).live.values()))


def due(state: State, now: float) -> list[Dataset]:
    """The directories of batches that are to be merged at ``now`` (seconds since 1970)."""
    batches = [each for each in list(state.live.values()) if each.is_batch]
    if len(batches) > _MANY:
        return batches
    return [each for each in batches if each.at < now - now % HOUR]


def fold(spark: SparkSession, out: Path, log: Journal, batches: Sequence[Dataset], now: float) -> list[Dataset]:
    """Merge the live ``batches`` into the directories of their hours.

    Returns:
        What they have become.

    Raises:
        MergeFailed, OSError: nothing has changed.
    """
    hours = {hour for each in batches for hour in each.hours}
    merged = [each for each in list(log.state.live.values()) if not each.is_batch and hours.intersection(each.hours)]
    inputs = [*batches, *merged]
    outputs = [_fold_hour(spark, out, hour, inputs, now) for hour in sorted(hours)]
    before, after = (sum(each.records for each in some) for some in (inputs, outputs))
    if before != after:
        raise MergeFailed(f"{out}: {before} records became {after} when they were merged")
    log.fold([each.path for each in inputs], outputs)
    return outputs


def sweep(out: Path, log: Journal, before: float) -> None:
    """Remove the directories that were superseded ``before`` (seconds since 1970)."""
    old = [path for path, at in log.state.superseded.items() if at < before]
    for path in old:
        shutil.rmtree(out / path, ignore_errors=True)
        _remove_if_empty((out / path).parent)
    if old:
        log.sweep(old)


def _fold_hour(spark: SparkSession, out: Path, hour: int, inputs: Sequence[Dataset], now: float) -> Dataset:
    path = f"cells/hour={datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%H}/fold={uuid4().hex}"
    of_hour = F.col("window").between(hour, hour + HOUR - 1)
    cells = _read(spark, out, [each for each in inputs if hour in each.hours]).where(of_hour)
    return write_dataset(out, path, rollup(cells, DIMENSIONS, WINDOW), now, is_batch=False)


def _read(spark: SparkSession, out: Path, some: Sequence[Dataset]) -> DataFrame:
    return read_cells(spark, *(out / each.path for each in some))


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        # Not empty, or gone.
        return
