"""Select the engine for a ``rpcmq latency`` command, and show progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.latency_input import check_writable, installed
from rpcmq.cli.output import Output
from rpcmq.errors import NotInstalled, UsageError
from rpcmq.latency.manifest import read
from rpcmq.latency.presence import check_log
from rpcmq.latency.selection import Selection

if TYPE_CHECKING:
    from rpcmq.latency.jobs.engine import Engine

__all__ = ["Choice", "Waiting", "engine", "engine_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

#: Most records for which the local engine is the default: they need two or three GB of memory and disk, and minutes.
LOCAL_RECORDS = 50_000_000
#: Most records for which Spark is tuned for start-up rather than throughput.
_SMALL = 500_000

_OPTIONS = (
    click.option(
        "--engine",
        "kind",
        type=click.Choice(["auto", "duckdb", "spark"]),
        default="auto",
        show_default=True,
        envvar="RPCMQ_LATENCY_ENGINE",
        show_envvar=True,
        help="What reads the records: DuckDB in this process, without Java; or Spark.",
    ),
    click.option(
        "--local-records",
        metavar="N",
        type=click.IntRange(0),
        default=LOCAL_RECORDS,
        show_default=True,
        envvar="RPCMQ_LATENCY_LOCAL_RECORDS",
        show_envvar=True,
        help="With --engine auto: Spark for more than that.",
    ),
    click.option("--master", metavar="URL", help="Where Spark runs.  [default: all cores of this machine]"),
)


class Choice(NamedTuple):
    """The values of the options of ``engine_options``."""

    kind: str
    local_records: int
    master: str | None


def engine_options(command: Command) -> Command:
    """``--engine``, ``--local-records`` and ``--master``, as the argument ``choice``."""

    @wraps(command)
    def chosen(*arguments: Any, kind: str, local_records: int, master: str | None, **options: Any) -> Any:
        return command(*arguments, choice=Choice(kind, local_records, master), **options)

    made: Any = chosen
    for option in reversed(_OPTIONS):
        made = option(made)
    return cast(Command, made)


class Waiting:
    """A progress line on standard error, if that is a terminal; removed at the end."""

    def __init__(self, doing: str = "starting") -> None:
        console = Output(stderr=True)
        self._line = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._line.add_task(doing, total=None)

    def __enter__(self) -> Waiting:
        self._line.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.stop()

    def show(self, done: int, known: int) -> None:
        """Show how many of Spark's known tasks are done."""
        self._line.update(self._task, completed=done, total=known)

    def say(self, doing: str) -> None:
        """Show a new activity."""
        self._line.update(self._task, description=doing)


@contextmanager
def engine(name: str, choice: Choice, waiting: Waiting, *asked: Selection, out: Path | None = None) -> Iterator[Engine]:
    """The engine for the command ``name``, about these records; the command is to write into the directory ``out``.

    Raises:
        UsageError: there is no log, or nothing of it was shipped; or the options do not go together.
        NotInstalled: a package is missing, or Spark's Java.
        ManifestDamaged: of a log.
        RpcError: ``out`` cannot be written to.
    """
    with failing():
        with installed():
            from rpcmq.latency.jobs.cells import datasets
        # Check before anything slow begins.
        for selection in asked:
            if selection.is_log:
                check_log(selection.path)
            else:
                datasets(selection.path)
        if out is not None:
            check_writable(out)
        if _is_local(choice, asked):
            with installed():
                from rpcmq.latency.jobs.local import Local

                local = Local()
            waiting.say("reading records")
            yield local
            return
        with installed():
            from rpcmq.latency.jobs.progress import progress
            from rpcmq.latency.jobs.session import QUICK, session
            from rpcmq.latency.jobs.spark import Spark
        waiting.say("starting Spark")
        conf = QUICK if all(map(_is_small, asked)) else {}
        with session(f"rpcmq latency {name}", choice.master, **conf) as started:
            waiting.say("reading records")
            with progress(started, waiting.show):
                yield Spark(started)


def _is_local(choice: Choice, asked: tuple[Selection, ...]) -> bool:
    """Return whether the local engine is to be used."""
    if choice.kind != "auto":
        if choice.kind == "duckdb" and choice.master is not None:
            raise UsageError(f"--master {choice.master} is for Spark: not with --engine duckdb")
        return choice.kind == "duckdb"
    # A master, and spark-submit, are Spark's.
    if choice.master is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    if find_spec("duckdb") is None:
        if find_spec("pyspark") is None:
            raise NotInstalled(
                "neither DuckDB nor Spark is installed: pip install 'rpcmq[report]', or 'rpcmq[latency]' for Spark too"
            )
        return False
    return find_spec("pyspark") is None or sum(map(_records, asked)) <= choice.local_records


def _records(selection: Selection) -> int:
    """Return the most records there are to read; for cells, the number of cells."""
    if selection.is_log:
        return sum(file.rows for file in read(selection.path).live.values())
    import pyarrow.parquet as pq

    from rpcmq.latency.jobs.cells import files_of

    return sum(pq.read_metadata(path).num_rows for path in files_of(selection.path))


def _is_small(selection: Selection) -> bool:
    """Return whether it is of a log that has few records."""
    return selection.is_log and _records(selection) <= _SMALL
