"""Hourly compaction: segments of ``ready/`` become files of ``log/v1/dt=YYYY-MM-DD/hour=HH/``.

The hour is that of the receive time (UTC). What was shipped before the present hour is rewritten, sorted by
topic and method, into one file for each hour that occurs in it: a large one, and a small one for what ended
later than the hour it began in. What would take more than ``MAX_ROWS`` records is split.

No reader sees a record twice or misses one, whenever this is killed:

1. The new files are written, synced and renamed. The manifest does not name them yet, so nobody reads them.
   If it ends here, the next start removes them.
2. One line of the manifest makes the new files count and the segments not.
3. The segments stay in ``ready/`` for a while, for a stream that reads that directory, and are then removed.

A new file carries the names of those that it was made of, so that a lost manifest can be made anew.

What ends late goes on making small files of an hour that is long over. When they are more than ``FEW`` they are
folded into one, in the same three steps. Only files whose segments have gone are: so there are never more than two
files that have a record, one of which names the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpcmq.latency import segment
from rpcmq.latency.log_state import File
from rpcmq.latency.manifest import Manifest

__all__ = ["FEW", "HOUR", "INPUTS", "MAX_ROWS", "compact", "fold", "inputs_of"]

HOUR = 3600
_HOUR_US = HOUR * 1_000_000
#: Records rewritten at a time: some 30 MB of file. It bounds the memory that this takes, about 500 bytes a record.
MAX_ROWS = 2_000_000
#: Small files that an hour may have; a file is small if two of its size can be one.
FEW = 4
#: Key of a file's metadata that has the segments, or files of ``log/``, that it was made of.
INPUTS = b"rpcmq:inputs"


def compact(directory: Path, manifest: Manifest, now: float, max_rows: int = MAX_ROWS) -> tuple[int, list[str]]:
    """Compact segments shipped before the hour of ``now`` (seconds since 1970).

    A segment that is not what the manifest says of it is left where it is, and no part of the result.

    Returns:
        How many segments were rewritten, and the paths of those that are damaged.

    Raises:
        OSError: what was being rewritten is as it was before.
    """
    over = now - now % HOUR
    waiting = [file for file in manifest.state.live.values() if segment.is_segment(file) and file.at < over]
    waiting.sort(key=lambda file: (file.first_us, file.path))
    done = 0
    damaged: list[str] = []
    for batch in _batches(waiting, max_rows):
        tables = _read(directory, batch, damaged)
        if tables:
            done += len(tables)
            _rewrite(directory, manifest, tables, [file for file in batch if file.path in tables], now)
    return done, damaged


def fold(directory: Path, manifest: Manifest, now: float, max_rows: int = MAX_ROWS) -> tuple[int, list[str]]:
    """Make one file of the small ones of each hour that has more than ``FEW``.

    Returns:
        How many files were rewritten, and the paths of those that are damaged.

    Raises:
        OSError: what was being rewritten is as it was before.
    """
    hours: dict[str, list[File]] = {}
    for file in manifest.state.live.values():
        if file.path.startswith("log/") and file.rows <= max_rows // 2:
            hours.setdefault(file.path.rpartition("/")[0], []).append(file)
    done = 0
    damaged: list[str] = []
    for files in hours.values():
        if len(files) <= FEW:
            continue
        alone = [file for file in files if _stands_alone(directory, file.path, damaged)]
        alone.sort(key=lambda file: file.path)
        for batch in _batches(alone, max_rows):
            tables = _read(directory, batch, damaged) if len(batch) > 1 else {}
            if len(tables) > 1:
                done += len(tables)
                _join(directory, manifest, tables, [file for file in batch if file.path in tables], now)
    return done, damaged


def inputs_of(path: Path) -> list[str]:
    """The segments, or files of ``log/``, that the file ``path`` was made of.

    Raises:
        Damaged: it does not say.
        OSError: it cannot be read.
    """
    try:
        names: list[str] = json.loads(segment.metadata_of(path)[INPUTS])
    except (KeyError, ValueError) as error:
        raise segment.Damaged(f"{path.name}: does not say what it was made of") from error
    return names


def _batches(files: Sequence[File], max_rows: int) -> Iterator[list[File]]:
    batch: list[File] = []
    rows = 0
    for file in files:
        if batch and rows + file.rows > max_rows:
            yield batch
            batch, rows = [], 0
        batch.append(file)
        rows += file.rows
    if batch:
        yield batch


def _read(directory: Path, files: Sequence[File], damaged: list[str]) -> dict[str, pa.Table]:
    tables: dict[str, pa.Table] = {}
    for file in files:
        try:
            tables[file.path] = segment.read(directory, file)
        except segment.Damaged:
            damaged.append(file.path)
    return tables


def _stands_alone(directory: Path, path: str, damaged: list[str]) -> bool:
    """Return whether nothing is left of what the file ``path`` was made of."""
    try:
        inputs = inputs_of(directory / path)
    except (segment.Damaged, FileNotFoundError):
        damaged.append(path)
        return False
    return not any((directory / each).exists() for each in inputs)


def _join(directory: Path, manifest: Manifest, tables: dict[str, pa.Table], inputs: Sequence[File], now: float) -> None:
    paths = list(tables)
    table = _sorted(pa.concat_tables(tables.values()).unify_dictionaries())
    tables.clear()
    # Each file is folded once, so no other has the first one's name and this number.
    stems = [Path(path).stem.partition("_") for path in paths]
    times = max(int(number or 0) for _, _, number in stems) + 1
    path = f"{paths[0].rpartition('/')[0]}/{stems[0][0]}_{times}.parquet"
    made = segment.write(directory, path, table, {INPUTS: json.dumps(paths).encode()}, _newest(inputs))
    manifest.append("compact", files=[asdict(made)], inputs=paths, at=now)


def _rewrite(
    directory: Path, manifest: Manifest, tables: dict[str, pa.Table], inputs: Sequence[File], now: float
) -> None:
    paths = list(tables)
    table = _sorted(pa.concat_tables(tables.values()).unify_dictionaries())
    tables.clear()
    hours = table["recv_at"].cast(pa.int64()).to_numpy() // _HOUR_US
    made = []
    different = np.unique(hours).tolist()
    for hour in different:
        begin = datetime.fromtimestamp(hour * HOUR, UTC)
        # A segment is rewritten once, so its name is this file's alone.
        path = f"log/v1/dt={begin:%Y-%m-%d}/hour={begin:%H}/{Path(inputs[0].path).stem}.parquet"
        # One hour is the rule, and needs no copy.
        part = table if len(different) == 1 else table.filter(pa.array(hours == hour))
        made.append(segment.write(directory, path, part, {INPUTS: json.dumps(paths).encode()}, _newest(inputs)))
    manifest.append("compact", files=[asdict(file) for file in made], inputs=paths, at=now)


def _newest(files: Sequence[File]) -> float:
    return max(file.at for file in files)


def _sorted(table: pa.Table) -> pa.Table:
    """By topic, method and receive time."""
    keys = [table["recv_at"].cast(pa.int64()).to_numpy(), _ranks(table["method"]), _ranks(table["topic"])]
    return table.take(pa.array(np.lexsort(keys)))


def _ranks(column: pa.ChunkedArray) -> Any:
    """Numbers in the order of the column's texts; Arrow does not sort by a dictionary."""
    codes = column.combine_chunks()
    return pc.rank(codes.dictionary).to_numpy()[codes.indices.to_numpy()]
