"""``rpcmq latency report``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rpcmq.cli.latency_input import failing, installed, master_option, selected, spark
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, print_json
from rpcmq.cli.text import plain

__all__ = ["report_command"]

Command = TypeVar("Command", bound=Callable[..., object])

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_FILTERS = ("exchange", "topic", "method", "server", "client", "router")


#: What each step is for who waits for it.
_STEPS = {
    "count": "counting records",
    "cells": "making cells",
    "outline": "looking at cells",
    "figures": "adding up",
    "histograms": "collecting",
    "slowest calls": "looking for the slowest calls",
    "page": "drawing",
}


def _filtered(command: Command) -> Command:
    for name in reversed(_FILTERS):
        command = click.option(f"--{name}", metavar="NAME", help=f"Only of this {name}.")(command)
    return command


@click.command("report")
@click.option(
    "--log",
    metavar="DIR",
    type=_DIRECTORY,
    envvar="RPCMQ_DISPATCH_LOG_DIRECTORY",
    show_envvar=True,
    help="The dispatch log.",
)
@click.option(
    "--cells",
    metavar="DIR",
    multiple=True,
    type=_DIRECTORY,
    help="Take what earlier reports, or a stream, stored, in place of the log; may be given several times.",
)
@click.option("--since", metavar="TIME", help="Only what came then or later: 2026-03-02T06:00 (UTC), -90min, '2h ago'.")
@click.option("--until", metavar="TIME", help="Only what came before that.")
@_filtered
@click.option(
    "--window",
    metavar="SECONDS",
    type=click.IntRange(1),
    help="Length of the windows.  [default: by the range of time, 60 at most where it is stored]",
)
@click.option(
    "--top", metavar="N", type=click.IntRange(0, 1000), default=20, show_default=True, help="Slowest calls to show."
)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where report.html, the pictures and cells/ go.",
)
@master_option
@json_option
@click.pass_obj
def report_command(
    state: State,
    /,
    log: Path | None,
    cells: Sequence[Path],
    since: str | None,
    until: str | None,
    window: int | None,
    top: int,
    out: Path,
    master: str | None,
    **filters: str | None,
) -> None:
    """Write the latency report of a dispatch log: one page that opens offline, pictures, and cells as Parquet.

    A short form of it is printed. The first thing in it is the account: records shipped = counted + set aside.

    cells/ has histograms of each minute, method, server, caller, router and outcome. They merge without loss:
    `--cells` makes a report of those of several runs, or of a stream, without the log.
    """
    wanted = [f"{name}={value}" for name, value in filters.items() if value is not None]
    selection = selected(log, cells[0] if cells else None, since, until, wanted)
    if cells and (out / "cells").resolve() in [each.resolve() for each in cells]:
        raise click.UsageError(f"--out {out}: has the cells that --cells names; give another directory")
    with failing(), installed():
        # All that is needed, before Spark takes its time.
        import rpcmq.latency.report.page  # noqa: F401
        from rpcmq.latency.report import as_json, summary, write_report
    with _Waiting() as waiting, spark("report", master, selection) as session:
        from rpcmq.latency.jobs.batch import report, report_of_cells
        from rpcmq.latency.jobs.progress import progress

        with progress(session, waiting.show):
            if cells:
                made = report_of_cells(session, selection, *cells[1:], window_seconds=window, step=waiting.step)
            else:
                made = report(session, selection, out, window_seconds=window, top=top, step=waiting.step)
        with waiting.step("page"):
            written = write_report(made, out)
    if state.json:
        print_json(as_json(made))
        return
    click.echo(summary(made), nl=False)
    click.echo(plain(f"{written[0]}" + ("" if cells else f", {out / 'cells'}")))


class _Waiting:
    """A line on standard error, if that is a terminal, that says what is being done; it goes when all is done."""

    def __init__(self) -> None:
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
        self._task = self._line.add_task("starting Spark", total=None)

    def __enter__(self) -> _Waiting:
        self._line.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.stop()

    def show(self, done: int, known: int) -> None:
        """So many of the tasks that Spark knows of are done."""
        self._line.update(self._task, completed=done, total=known)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Within, this is being done."""
        self._line.update(self._task, description=_STEPS[name])
        yield
