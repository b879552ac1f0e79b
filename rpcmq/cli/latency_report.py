"""``rpcmq latency report``."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TypeVar

import click

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.latency_engine import Choice, Waiting, engine, engine_options
from rpcmq.cli.latency_input import DIRECTORY, installed, log_option, selected, until_option
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import print_json
from rpcmq.cli.text import plain

__all__ = ["report_command"]

Command = TypeVar("Command", bound=Callable[..., object])

#: Packages that the page is made with.
_DRAWN_WITH = ("jinja2", "matplotlib")
_FILTERS = ("exchange", "topic", "method", "server", "client", "router")


#: Step name -> description shown while it runs.
_STEPS = {
    "count": "counting records",
    "cells": "making cells",
    "outline": "looking at cells",
    "figures": "adding up",
    "slowest calls": "looking for the slowest calls",
    "hedged calls": "looking at calls that several servers had",
    "page": "drawing",
}


def _import_drawing() -> None:
    # An error is raised again by who draws.
    with suppress(Exception):
        import_module("rpcmq.latency.report.page")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Within, Python does not look for cycles among the hundreds of thousands of objects that figures are."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _filtered(command: Command) -> Command:
    for name in reversed(_FILTERS):
        command = click.option(f"--{name}", metavar="NAME", help=f"Only of this {name}.")(command)
    return command


@click.command("report")
@log_option
@click.option(
    "--cells",
    metavar="DIR",
    multiple=True,
    type=DIRECTORY,
    help="Take what earlier reports, or a stream, stored, in place of the log; may be given several times.",
)
@click.option("--since", metavar="TIME", help="Only what came then or later: 2026-03-02T06:00 (UTC), -90min, '2h ago'.")
@until_option
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
@engine_options
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
    choice: Choice,
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
        from rpcmq.latency.report import as_json, summary, write_report

        # All that is needed, before an engine takes its time.
        for name in _DRAWN_WITH:
            if find_spec(name) is None:
                raise ModuleNotFoundError(name=name)
    with _uncollected(), Waiting() as waiting:

        def step(name: str) -> AbstractContextManager[None]:
            waiting.say(_STEPS[name])
            return nullcontext()

        with engine("report", choice, waiting, selection, out=out) as chosen:
            # Half a second, which an engine that reads does not need this process for.
            Thread(target=_import_drawing, daemon=True).start()
            from rpcmq.latency.jobs.batch import report, report_of_cells

            if cells:
                made = report_of_cells(chosen, selection, *cells[1:], window_seconds=window, step=step)
            else:
                made = report(chosen, selection, out, window_seconds=window, top=top, step=step)
        with failing(), step("page"):
            written = write_report(made, out)
    if state.json:
        print_json(as_json(made))
        return
    click.echo(summary(made), nl=False)
    click.echo(plain(f"{written[0]}" + ("" if cells else f", {out / 'cells'}")))
