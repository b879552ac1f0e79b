"""The local engine: DuckDB in this process, for logs that fit one machine. It needs no Java, and starts at once.

The records that were selected are read once, into memory (what does not fit there goes to a temporary directory), with
their names as numbers. Each question is one pass over them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from rpcmq.errors import NotInstalled, RpcError
from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.hedging import HedgedCalls
from rpcmq.latency.analysis.series import DIMENSIONS, METHOD, Series
from rpcmq.latency.jobs import hedged_sql
from rpcmq.latency.jobs import local_sql as sql
from rpcmq.latency.jobs.cells import About, files_of
from rpcmq.latency.jobs.collect import in_order, series_of
from rpcmq.latency.jobs.counting import counted
from rpcmq.latency.jobs.engine import CALLS, Level, Only, Outline
from rpcmq.latency.jobs.gate import unreadable
from rpcmq.latency.jobs.hedged_cells import HedgedCells
from rpcmq.latency.jobs.interrupts import Interrupts
from rpcmq.latency.jobs.local_cells import Storing
from rpcmq.latency.jobs.memory import engine_memory
from rpcmq.latency.jobs.open_log import OpenLog
from rpcmq.latency.schema import COLUMNS, IDENTITY, UNKNOWN
from rpcmq.latency.selection import Selection, check_dimensions, columns_of_trace

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Local", "LocalFailed"]

Result = TypeVar("Result")

_ANSWERED = Only(("kind", "outcome"), [("call", "ok")])


class LocalFailed(RpcError):
    """DuckDB failed; the text says why."""


class Local:
    """See ``Engine``.

    Raises:
        NotInstalled: there is no DuckDB.
    """

    def __init__(self) -> None:
        try:
            import duckdb  # noqa: F401
        except ImportError as error:
            raise NotInstalled(f"{error.name} is not installed; pip install 'rpcmq[report]'") from error

    @contextmanager
    def log(self, selection: Selection) -> Iterator[_Records]:
        """See ``Engine``."""
        with _connected() as connection:
            records = _Records(connection, selection)
            with records.storing:
                yield records

    @contextmanager
    def cells(self, selection: Selection, *more: Path) -> Iterator[_Cells]:
        """See ``Engine``."""
        files = files_of(selection.path, *more)
        with _connected() as connection:
            yield _Stored(connection, files, selection)

    def trace(self, selection: Selection, id: str, count: int) -> tuple[list[dict[str, Any]], Account]:
        """See ``Engine``."""
        columns = columns_of_trace(id)
        with _connected() as connection:
            log = _Log(connection, replace(selection, deliveries=True))
            terms = [f"{sql.name(name)} = {sql.literal(value)}" for name, value in columns.items()]
            order = f"recv_at, {', '.join(IDENTITY)}"

            def read() -> list[dict[str, Any]]:
                log.count()
                return log.rows(terms, order, count)

            return log.persistently(read), log.account


@contextmanager
def _connected() -> Iterator[DuckDBPyConnection]:
    import duckdb

    # By default SIGTERM would leave the directory behind, and cells half written.
    with (
        Interrupts() as interrupts,
        TemporaryDirectory(prefix="rpcmq-latency-", ignore_cleanup_errors=True) as directory,
    ):
        config = {
            "memory_limit": f"{engine_memory()}MiB",
            "temp_directory": directory,
            # Nothing is fetched from anywhere.
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "preserve_insertion_order": "false",
        }
        try:
            with duckdb.connect(config=config) as connection, interrupts.repeated(connection.interrupt):
                connection.execute("SET enable_progress_bar = false")
                yield connection
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:
            # This, too, is what it makes of a Ctrl-C.
            if "interrupted" not in str(error):
                raise
            raise KeyboardInterrupt from error
        except duckdb.Error as error:
            raise LocalFailed(f"DuckDB could not do it: {str(error).splitlines()[0]}") from error


class _Log(OpenLog):
    """The files of a log as a table."""

    def __init__(self, connection: DuckDBPyConnection, selection: Selection) -> None:
        import duckdb

        super().__init__(selection)
        self._connection = connection
        self.errors = (duckdb.Error,)

    def blamed(self, error: Exception) -> dict[str, str]:
        """See ``OpenLog``."""
        import duckdb

        if isinstance(error, duckdb.InterruptException):
            return {}
        problems = ((path, unreadable(self.selection.path / path)) for path in self.files)
        return {path: f"could not be read: {problem.text}" for path, problem in problems if problem}

    @property
    def table(self) -> str:
        """All columns of all records in the files."""
        return _rows_of([self.selection.path.resolve() / path for path in self.files], sql.EMPTY_LOG)

    @property
    def wanted(self) -> str:
        """The SQL condition for the selected records."""
        chosen = self.selection
        terms = [f"{sql.name(name)} = {sql.literal(value)}" for name, value in chosen.where.items()]
        return sql.condition([self.whole, *terms, *sql.without_kinds(chosen.left_out)])

    @property
    def whole(self) -> str:
        """The SQL condition for the selected records and all deliveries of their calls, whatever server had them."""
        chosen = self.selection
        where = ((name, value) for name, value in chosen.where.items() if name != "server")
        terms = [f"{sql.name(name)} = {sql.literal(value)}" for name, value in where]
        if chosen.since is not None:
            terms.append(f"epoch_us(recv_at) >= {ceil(chosen.since * 1e6)}")
        if chosen.until is not None:
            terms.append(f"epoch_us(recv_at) < {ceil(chosen.until * 1e6)}")
        return sql.condition(terms)

    def count(self, *more: str) -> list[Any]:
        """Bring the account up to date; least and greatest receive time (microseconds), and ``more`` aggregates."""
        unknown = f"count(*) FILTER (outcome = {sql.literal(UNKNOWN)})"
        columns = ", ".join(["count(*)", unknown, "min(epoch_us(recv_at))", "max(epoch_us(recv_at))", *more])
        found = self._connection.execute(f"SELECT {columns} FROM {self.table} WHERE {self.wanted}").fetchall()
        self.account.in_range, self.account.unknown, *_ = found[0]
        return list(found[0][2:])

    def rows(self, terms: list[str], order: str, count: int) -> list[dict[str, Any]]:
        """Rows that were selected and for which all ``terms`` hold."""
        columns = [
            "epoch_us(recv_at) AS recv_at" if each.name == "recv_at" else sql.name(each.name) for each in COLUMNS
        ]
        # The name of a column of the result stands for that column here.
        inner = (
            f"SELECT * FROM {self.table} WHERE {sql.condition([self.wanted, *terms])} ORDER BY {order} LIMIT {count}"
        )
        found = self._connection.execute(f"SELECT {', '.join(columns)} FROM ({inner}) ORDER BY {order}").fetchall()
        return [dict(zip((each.name for each in COLUMNS), row, strict=True)) for row in found]


def _rows_of(files: list[Path], nothing: str) -> str:
    """The rows of Parquet files as a table; of no files those of ``nothing``."""
    if not files:
        return f"({nothing})"
    # It takes paths for patterns.
    paths = ", ".join(sql.literal(re.sub(r"([*?\[])", r"[\1]", str(path))) for path in files)
    found = f"SELECT * FROM read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
    # With the columns that files of earlier versions lack.
    return f"({found} UNION ALL BY NAME {nothing})"


class _Cells(ABC):
    """See ``Cells``. ``table`` has one row for each record, or for each cell: it says what of it is what."""

    table: str
    #: Microseconds in all, number of records, and window of a row.
    time: str
    number: str
    window: str

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection

    @abstractmethod
    def _rolled(self, level: Level) -> pa.Table:
        """The rollup."""

    def outline(self, methods: int | None = 0, callers: int = 0, raised: int = 0) -> Outline:
        first, last, *routers = self._all(
            f"SELECT min({self.window}), max({self.window}), min(router::VARCHAR), max(router::VARCHAR)"
            f" FROM {self.table}"
        )[0]
        failed = self._most((*METHOD, "outcome", "error_class"), self.number, raised, "error_class IS NOT NULL")
        return Outline(
            methods=[tuple(names) for *names, _ in self._most(METHOD, self.time, methods)],
            callers=[names[0] for names in self._most(("client",), self.number, callers)],
            raised=[ErrorCount((names[0], names[1], names[2]), *names[3:]) for names in failed],
            routers=[] if first is None else list(dict.fromkeys(routers)),
            first=first,
            last=last,
        )

    def series(self, levels: Mapping[str, Level]) -> dict[str, list[Series]]:
        return {name: in_order(series_of(self._rolled(level), level.by)) for name, level in levels.items()}

    def calls(self) -> dict[tuple[str, ...], int]:
        found = self.series({"calls": CALLS})["calls"]
        return {tuple(str(each.key[name]) for name in METHOD): each.records for each in found}

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, ...], int]]:
        names = ", ".join(f"{each}::VARCHAR" for each in METHOD)
        found = self._all(
            f"SELECT {names}, max({self.window}) FROM {self.table}"
            f" WHERE kind::VARCHAR = 'call' AND outcome::VARCHAR = 'ok' GROUP BY ALL"
        )
        calls = self.series({"calls": Level(METHOD, None, _ANSWERED)})["calls"]
        return calls, {tuple(names): window for *names, window in found}

    def _most(self, by: tuple[str, ...], weight: str, most: int | None, where: str = "true") -> list[tuple[Any, ...]]:
        """Of those with the same ``by`` at most so many with the greatest sum of ``weight``, the greatest first."""
        if most == 0:
            return []
        names = ", ".join(f"{each}::VARCHAR AS {each}" for each in by)
        grouped = f"SELECT {names}, sum({weight})::BIGINT AS weight FROM {self.table} WHERE {where} GROUP BY ALL"
        limit = "" if most is None else f" LIMIT {most}"
        return self._all(f"SELECT * FROM ({grouped}) ORDER BY weight DESC, {', '.join(by)}{limit}")

    def _table(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return found


class _Stored(_Cells):
    """Cells of files."""

    time, number, window = "total.sum", "records", '"window"'

    def __init__(self, connection: DuckDBPyConnection, files: list[Path], selection: Selection) -> None:
        super().__init__(connection)
        check_dimensions(selection.where)
        terms = [f"{sql.name(name)} = {sql.literal(value)}" for name, value in selection.where.items()]
        terms += sql.without_kinds(selection.left_out)
        if selection.since is not None:
            terms.append(f'"window" >= {selection.since!r}')
        if selection.until is not None:
            terms.append(f'"window" < {selection.until!r}')
        self.table = f"(SELECT * FROM {_rows_of(files, sql.EMPTY_CELLS)} WHERE {sql.condition(terms)})"

    def _rolled(self, level: Level) -> pa.Table:
        return self._table(sql.of_cells(self.table, level))


class _Records(_Cells):
    """See ``Records``."""

    table, time, number = "records", "coalesce(total, 0)", "1"

    def __init__(self, connection: DuckDBPyConnection, selection: Selection) -> None:
        super().__init__(connection)
        self._selection = selection
        self.storing = Storing(connection, self.table)
        self._window_seconds = 1
        self._found: HedgedCells | None = None
        self._log = _Log(connection, selection)
        self._log.persistently(self._read)
        # That of the files that were read; others may be looked at later.
        self.account = self._log.account

    def _read(self) -> None:
        log = self._log
        values = (f"list(DISTINCT {sql.name(each)})" for each in DIMENSIONS)
        self.first_us, self.last_us, *names = log.count(*values)
        types = {}
        for dimension, found in zip(DIMENSIONS, names, strict=True):
            types[dimension] = f"{dimension}_names"
            # In their order, so that the least and the greatest are those of the texts. There is to be one at least.
            texts = sorted({"", *(found or ())} - {None})
            self._connection.execute(f"DROP TYPE IF EXISTS {types[dimension]} CASCADE")
            self._connection.execute(f"CREATE TYPE {types[dimension]} AS ENUM ({', '.join(map(sql.literal, texts))})")
        self._connection.execute(f"CREATE OR REPLACE TABLE {self.table} AS {sql.encoded(log.table, log.wanted, types)}")

    def make_cells(self, window_seconds: int, directory: Path | None = None) -> None:
        self.window = f"floor(second / {window_seconds})::BIGINT * {window_seconds}"
        self._window_seconds = window_seconds
        if directory is None:
            return
        chosen = self._selection
        log = str(chosen.path.resolve())
        self.storing.begin(
            directory,
            About(window_seconds, log, chosen.since, chosen.until, chosen.where, replace(self.account)),
            self._hedged() if chosen.has_whole_calls else None,
        )

    def _rolled(self, level: Level) -> pa.Table:
        return counted(self._table(sql.of_records(self.table, level)))

    def slowest(self, count: int, most: int) -> list[dict[str, Any]]:
        return self._log.persistently(lambda: self._slowest(count, most))

    def unknown(self, count: int) -> list[dict[str, Any]]:
        terms = [f"outcome = {sql.literal(UNKNOWN)}"]
        order = f"recv_at DESC, {', '.join(IDENTITY)}"
        return self._log.persistently(lambda: self._log.rows(terms, order, count))

    def hedged(self) -> list[HedgedCalls]:
        return self._hedged().by_method(self.calls) if self._selection.has_whole_calls else []

    def _hedged(self) -> HedgedCells:
        if self._found is None:
            self._found = self._log.persistently(self._look_for_hedged)
        return self._found

    def _look_for_hedged(self) -> HedgedCells:
        log = self._log
        if self._all(f"SELECT count(*) FROM {log.table} WHERE {log.whole} AND {hedged_sql.is_delivery()}") == [(0,)]:
            return HedgedCells.none()
        window = sql.window_of(sql.SECOND, self._window_seconds)
        records = f"(SELECT *, {window} AS {hedged_sql.WINDOW} FROM {log.table} WHERE {log.whole})"
        by_bucket = (
            f'SELECT * EXCLUDE (us), {sql.bucket("us")} AS "index", count(*) AS many,'
            f" sum(us)::BIGINT AS sum, min(us) AS least, max(us) AS most"
            f" FROM ({hedged_sql.durations(records)}) GROUP BY ALL"
        )
        found = HedgedCells.of_engine(self._table(hedged_sql.counts(records)), self._table(by_bucket))
        return found.where(log.selection.where)

    def _slowest(self, count: int, most: int) -> list[dict[str, Any]]:
        identity = ", ".join(IDENTITY)
        # First by few columns: all of them would have to be read of each record.
        few = self._all(
            f"SELECT {identity}, trace_id FROM {self._log.table}"
            f" WHERE {sql.condition([self._log.wanted, 'total_us IS NOT NULL'])}"
            f" ORDER BY total_us DESC, {identity} LIMIT {count}"
        )
        traces = ", ".join(sql.literal(trace) for *_, trace in few if trace is not None)
        alone = ", ".join(f"({', '.join(map(sql.literal, key))})" for *key, trace in few if trace is None)
        terms = [f"trace_id IN ({traces})"] if traces else []
        terms += [f"({identity}) IN ({alone})"] if alone else []
        return self._log.rows([" OR ".join(terms) or "false"], f"total_us DESC NULLS LAST, {identity}", most)
