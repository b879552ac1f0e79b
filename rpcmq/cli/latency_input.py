"""Shared parts of the ``rpcmq latency`` commands: record selection, installation checks, account lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.text import plain
from rpcmq.errors import NotInstalled
from rpcmq.latency.analysis.account import Verdict
from rpcmq.latency.analysis.wording import share
from rpcmq.latency.selection import Selection, parse_filters, parse_time

if TYPE_CHECKING:
    from rpcmq.latency.analysis.account import Account

__all__ = [
    "DIRECTORY",
    "account_line",
    "check_writable",
    "installed",
    "listed",
    "log_option",
    "master_option",
    "selected",
    "selects",
    "until_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_PACKAGES = ("duckdb", "jinja2", "matplotlib", "numpy", "py4j", "pyarrow", "pyspark", "scipy")

#: An existing directory.
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
log_option = click.option(
    "--log",
    metavar="DIR",
    type=DIRECTORY,
    envvar="RPCMQ_DISPATCH_LOG_DIRECTORY",
    show_envvar=True,
    help="The dispatch log.",
)
_CELLS = click.option(
    "--cells",
    metavar="DIR",
    type=DIRECTORY,
    help="Cells that a report or a stream stored: takes the place of --log.",
)
until_option = click.option("--until", metavar="TIME", help="Only what came before that.")
_REST = (
    click.option("--since", metavar="TIME", help="Only what came then or later: 2026-03-02T06:00 (UTC), -90min."),
    until_option,
    click.option(
        "--where", "filters", metavar="NAME=VALUE", multiple=True, help="Only of this topic, method, server, ..."
    ),
)

master_option = click.option("--master", metavar="URL", help="Where Spark runs.  [default: all cores of this machine]")


def selects(command: Command) -> Command:
    """``--log``, ``--cells``, ``--since``, ``--until``, ``--where``: arguments for ``selected``."""
    for option in reversed((log_option, _CELLS, *_REST)):
        command = option(command)
    return command


def selected(
    log: Path | None, cells: Path | None, since: str | None, until: str | None, filters: Sequence[str]
) -> Selection:
    """Build the :class:`Selection` that the options of ``selects`` describe.

    Raises:
        UsageError: a time or a filter is none.
        click.UsageError: there is no directory.
    """
    # --cells is always explicit; the log may come from the environment.
    path = cells or log
    if path is None:
        raise click.UsageError("Missing option '--log' or '--cells'.")
    now = time.time()
    begin, end = (None if text is None else parse_time(text, now) for text in (since, until))
    if begin is not None and end is not None and begin >= end:
        raise click.UsageError(f"--since {since} is not before --until {until}")
    return Selection(path, begin, end, parse_filters(filters))


@contextmanager
def installed() -> Iterator[None]:
    """Turn a missing optional package into a one-line error. Wrap the imports of such packages in it.

    Raises:
        NotInstalled: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _PACKAGES:
            raise
        extra = "latency" if str(error.name).startswith(("py4j", "pyspark")) else "report"
        raise NotInstalled(f"{error.name} is not installed: pip install 'rpcmq[{extra}]'") from None


def check_writable(directory: Path) -> None:
    """Make ``directory`` if it is not there, and raise unless files can be written into it.

    To be used before anything that takes long.

    Raises:
        RpcError: says why not.
    """
    with failing():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(prefix=".rpcmq-", dir=directory):
                pass
        except OSError as error:
            raise OSError(error.errno, f"cannot be written to: {error.strerror}", str(directory)) from error


def account_line(account: Account) -> str:
    """The account as a line: every answer begins with it."""
    text = f"{account.shipped:,} records shipped = {account.counted:,} counted + {account.rows_aside:,} set aside"
    if not account.balances:
        text = text.replace(" = ", " (does not balance) = ")
    text += f"; {account.in_range:,} in range"
    if account.verdict is Verdict.INCOMPLETE:
        missing = f" ({share(account.shortfall)} missing)" if account.shortfall else ""
        text = f"Incomplete{missing}: {text}"
    for number, what in (
        (account.waiting, "spool files wait to be shipped: run `rpcmq ship`"),
        (account.holes, "numbers without a record"),
        (account.missing_segments, "spool files missing"),
        (account.unknown, "of unknown outcome"),
        (len(account.unsealed), "ended lives of routers without a seal"),
        (account.lost, "records at most lost with these"),
    ):
        if number:
            text += f"; {number:,} {what}"
    return plain(text)


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first names of many."""
    every = list(names)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
