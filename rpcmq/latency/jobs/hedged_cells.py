"""Cells of calls that several servers had: what engines find of them, kept beside the other cells, and read again.

They have the window and dimensions of other cells, but for kind and outcome. A directory ``_hedged`` in that of the
cells has them, two files of Parquet: the counts, and the histograms of durations with a row for each bucket. Cells
that lack it, of a version of before it or of a stream, do not say whether there were such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rpcmq.latency.analysis.hedging import HedgedCalls, hedged_of
from rpcmq.latency.analysis.series import METHOD
from rpcmq.latency.files import sync
from rpcmq.latency.jobs.cells import CellsDamaged, datasets
from rpcmq.latency.jobs.hedged_sql import COUNTED, NAMES, WINDOW
from rpcmq.latency.selection import Selection

__all__ = ["HedgedCells", "read_hedged", "write_hedged"]

#: Numbers of calls of methods, by exchange, topic and method.
Calls = Mapping[tuple[str, ...], int]

#: Readers of Parquet pass over it, for it begins with an underscore.
_DIRECTORY, _COUNTS, _DURATIONS = "_hedged", "counts.parquet", "durations.parquet"
_KEY = [("window", pa.int64()), *((name, pa.string()) for name in NAMES)]
_OF_COUNTS = pa.schema([*_KEY, *((name, pa.int64()) for name in COUNTED)])
_OF_DURATIONS = pa.schema(
    [
        *_KEY,
        ("measure", pa.string()),
        ("index", pa.int16()),
        *((name, pa.int64()) for name in ("many", "sum", "least", "most")),
    ]
)


class HedgedCells(NamedTuple):
    """The figures of calls that several servers had.

    Attributes:
        counts: ``hedged_sql.COUNTED`` of each window and names.
        durations: of each bucket of their durations: which ``measure``, the ``index`` (null: of those that took no
            time), how ``many``, their ``sum``, ``least`` and ``most``.
    """

    counts: pa.Table
    durations: pa.Table

    @classmethod
    def none(cls) -> HedgedCells:
        """There were no such calls."""
        return cls(_OF_COUNTS.empty_table(), _OF_DURATIONS.empty_table())

    @classmethod
    def of_engine(cls, counts: pa.Table, durations: pa.Table) -> HedgedCells:
        """The results of the queries of ``hedged_sql``, with columns in any order and of any width."""
        tables = zip((counts, durations), (_OF_COUNTS, _OF_DURATIONS), strict=True)
        return cls(*(_as(each.rename_columns({WINDOW: "window"}), schema) for each, schema in tables))

    def where(self, values: Mapping[str, str]) -> HedgedCells:
        """Return those with these values of dimensions."""
        made = self
        for name, value in values.items():
            made = made._chosen(lambda each, name=name, value=value: pc.equal(each[name], value))  # type: ignore[misc]
        return made

    def between(self, since: float | None, until: float | None) -> HedgedCells:
        """Return those whose windows begin in this range, seconds since 1970, the latter not in it; None: no limit."""
        made = self
        if since is not None:
            made = made._chosen(lambda each: pc.greater_equal(each["window"], since))
        if until is not None:
            made = made._chosen(lambda each: pc.less(each["window"], until))
        return made

    def _chosen(self, condition: Callable[[pa.Table], pa.ChunkedArray]) -> HedgedCells:
        return HedgedCells(*(each.filter(condition(each)) for each in self))

    def by_method(self, calls: Callable[[], Calls]) -> list[HedgedCalls]:
        """The hedged calls by method, those with the most extra deliveries first.

        Args:
            calls: returns how often methods were called; asked if there are any hedged calls.
        """
        if not self.counts.num_rows:
            return []
        known = calls()
        counts = self.counts.group_by(METHOD).aggregate([(name, "sum") for name in COUNTED])
        rows = _renamed(counts, [f"{name}_sum" for name in COUNTED], COUNTED)
        for row in rows:
            row["calls"] = known.get(tuple(str(row[name]) for name in METHOD), 0)
        sums = {"many": "sum", "sum": "sum", "least": "min", "most": "max"}
        durations = self.durations.group_by([*METHOD, "measure", "index"]).aggregate(list(sums.items()))
        return hedged_of(rows, _renamed(durations, [f"{name}_{how}" for name, how in sums.items()], list(sums)))


def _renamed(table: pa.Table, names: Iterable[str], others: Sequence[str]) -> list[dict[str, str | int | None]]:
    rows: list[dict[str, str | int | None]] = table.rename_columns(dict(zip(names, others, strict=True))).to_pylist()
    return rows


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


def write_hedged(directory: Path, found: HedgedCells) -> None:
    """Write ``found`` beside the cells in ``directory``.

    Raises:
        OSError: it was not written.
    """
    made = directory / _DIRECTORY
    made.mkdir()
    for table, name in zip(found, (_COUNTS, _DURATIONS), strict=True):
        pq.write_table(table, made / name, compression="zstd")
        sync(made / name)


def read_hedged(selection: Selection, *more: Path) -> tuple[HedgedCells, str]:
    """The selected of the cells of calls that several servers had, and why they are not all; empty: they are.

    Args:
        selection: of a directory of cells.
        more: further directories.

    Raises:
        UsageError: there are no cells in one.
        CellsDamaged: a file of them is not what it should be.
    """
    if not selection.has_whole_calls:
        return HedgedCells.none(), selection.without_whole_calls
    found = [path for directory in (selection.path, *more) for path in datasets(directory)]
    parts = [_read(path / _DIRECTORY) for path in found if (path / _DIRECTORY).exists()]
    whole = HedgedCells(*map(pa.concat_tables, zip(*(HedgedCells.none(), *parts), strict=True)))
    chosen = whole.where(selection.where).between(selection.since, selection.until)
    if len(parts) == len(found):
        return chosen, ""
    which = "these cells" if not parts else f"{len(found) - len(parts)} of {len(found)} directories of these cells"
    return chosen, f"{which} do not have them, for a stream or an earlier version made them; ask the log"


def _read(directory: Path) -> HedgedCells:
    tables = []
    for name, schema in ((_COUNTS, _OF_COUNTS), (_DURATIONS, _OF_DURATIONS)):
        path = directory / name
        try:
            # One by one: as a data set, the names of directories above would be columns.
            tables.append(_as(pq.ParquetFile(path).read(), schema))
        except (OSError, KeyError, pa.ArrowException) as error:
            raise CellsDamaged(f"{path}: {str(error).splitlines()[0]}") from error
    return HedgedCells(*tables)
