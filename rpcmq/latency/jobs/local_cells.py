"""The local engine's cells on their way to disk, beside whatever else it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rpcmq.latency.analysis.series import DIMENSIONS
from rpcmq.latency.jobs import local_sql as sql
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, About, replaced
from rpcmq.latency.jobs.counting import counted
from rpcmq.latency.jobs.hedged_cells import HedgedCells, write_hedged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Storing"]

#: Records of which cells are made at a time: so much is in memory beside the records themselves.
_RECORDS_AT_A_TIME = 1_000_000
#: Columns of cells whose values repeat, as Parquet names them.
_REPEATED = [*DIMENSIONS, *(f"{name}.buckets.list.element.{part}" for name in DISTRIBUTIONS for part in ("b", "c"))]
#: Seconds between two attempts to interrupt a query.
_PAUSE = 0.05


class Storing:
    """Stores cells in a thread: to compress and to write takes one core, most questions another one.

    At the end of the ``with`` block they are stored. If the block ends by an error, they may be or not.

    Args:
        table: of ``local_sql.encoded``.

    Raises:
        OSError, duckdb.Error: at the end of the block: they could not be stored.
    """

    def __init__(self, connection: DuckDBPyConnection, table: str) -> None:
        self._cursor = connection.cursor()
        self._table = table
        self._thread = ThreadPoolExecutor(1)
        self._stored: list[Future[None]] = []
        self._is_over = False

    def __enter__(self) -> Storing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                for each in self._stored:
                    each.result()
        finally:
            # Also where a Ctrl-C has ended the waiting.
            self._is_over = True
            # Again and again, for a query that has not begun yet does not hear it.
            while wait(self._stored, _PAUSE).not_done:
                self._cursor.interrupt()
            self._thread.shutdown()

    def begin(self, directory: Path, made_from: About, hedged: HedgedCells | None) -> None:
        """Begin to store cells in ``directory``, with those of calls that several servers had; None: not known."""
        self._stored.append(self._thread.submit(self._store, directory, made_from, hedged))

    def _store(self, directory: Path, made_from: About, hedged: HedgedCells | None) -> None:
        seconds = made_from.window_seconds
        with replaced(directory, made_from) as made:
            made.mkdir()
            if hedged is not None:
                write_hedged(made, hedged)
            for number, wanted in enumerate(list(self._parts(seconds)) or ["true"]):
                if self._is_over:
                    raise CancelledError
                cells = self._cursor.sql(sql.cells(self._table, seconds, wanted)).to_arrow_table()
                pq.write_table(
                    counted(cells),
                    made / f"part-{number:05}.parquet",
                    compression="zstd",
                    use_dictionary=_REPEATED,
                    # Names are texts again, for who reads them.
                    store_schema=False,
                )

    def _parts(self, window_seconds: int) -> Iterator[str]:
        """Conditions, one after the other, for some windows each that together do not have too many records."""
        begin, records = None, 0
        for window, count in self._cursor.execute(sql.records_of_windows(self._table, window_seconds)).fetchall():
            if begin is not None and records + count > _RECORDS_AT_A_TIME:
                yield f"second >= {begin} AND second < {window}"
                begin, records = None, 0
            begin, records = (window if begin is None else begin), records + count
        if begin is not None:
            yield f"second >= {begin}"
