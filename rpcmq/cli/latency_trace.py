"""``rpcmq latency trace``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.latency_engine import Choice, Waiting, engine, engine_options
from rpcmq.cli.latency_input import account_line, installed, selected, selects
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, add_row, print_fitting, print_json, table
from rpcmq.cli.text import microseconds
from rpcmq.errors import RpcError

if TYPE_CHECKING:
    from rpcmq.latency.analysis.account import Account
    from rpcmq.latency.analysis.waterfall import Span

__all__ = ["trace_command"]

#: Records of a trace that are shown: larger ones are no waterfall any more.
_MOST = 1000
#: Default width of a time line, and width reserved for the other columns (characters).
_NARROW, _WIDE, _BESIDE = 20, 60, 60


@click.command("trace")
@click.argument("id", metavar="ID")
@selects
@click.option(
    "--width",
    type=click.IntRange(10, 200),
    help="Width of the time line.  [default: the available width]",
)
@engine_options
@json_option
@click.pass_obj
def trace_command(
    state: State,
    id: str,
    log: Path | None,
    cells: Path | None,
    since: str | None,
    until: str | None,
    filters: Sequence[str],
    width: int | None,
    choice: Choice,
) -> None:
    """Show all records of one trace, or of one call, as a waterfall over routers and nested calls.

    ID is a trace id of 32 hexadecimal digits, or router:link:seq of the correlation id.

    A time line has . for what waited, - for the network, # for the handler, < for the reply's way back; where that is
    not known, the network is both ways. ~ stands before an offset that was put where it fits, because two routers'
    clocks cannot be compared.
    """
    if cells is not None:
        raise click.UsageError("Cells have no single records: give the log with --log.")
    spans, account, is_cut = _spans(id, log, since, until, filters, choice)
    if not spans:
        raise RpcError(f"{id}: no record of it; {account_line(account)}")
    if state.json:
        what = {"id": id, "account": account.as_json(), "is_cut": is_cut}
        print_json(what | {"spans": [span.as_json() for span in spans]})
        return
    _show(spans, width)
    if is_cut:
        click.echo(f"Only the first {_MOST} records are shown.")


def _spans(
    id: str, log: Path | None, since: str | None, until: str | None, filters: Sequence[str], choice: Choice
) -> tuple[list[Span], Account, bool]:
    selection = selected(log, None, since, until, filters)
    with installed():
        from rpcmq.latency.analysis.waterfall import waterfall
    with Waiting() as waiting, engine("trace", choice, waiting, selection) as chosen:
        rows, account = chosen.trace(selection, id, _MOST + 1)
    return waterfall(rows[:_MOST]), account, len(rows) > _MOST


def _show(spans: Sequence[Span], width: int | None) -> None:
    from rpcmq.latency.analysis.waterfall import render

    # In a mesh only, and where a request has left its router.
    between = [">between"] if any(span.between_us is not None for span in spans) else []
    stages = [">total", ">queue", *between, ">network", ">handler", ">reply"]
    made = table("", "call", ">at", *stages, "server", "outcome", "time line")
    output = Output()
    for bar in render(spans, width or max(_NARROW, min(_WIDE, output.width - _BESIDE))):
        span = bar.span
        durations = [microseconds(getattr(span, f"{name.removeprefix('>')}_us")) for name in stages]
        offset = ("~" if span.placed else "") + microseconds(span.offset_us)
        cells: tuple[Any, ...] = (bar.name, offset, *durations, _server(span), span.row["outcome"], bar.bar)
        add_row(made, cells, "" if span.row["outcome"] == "ok" else "yellow")
    print_fitting(output, made, "between", "reply", "network", "queue", "handler", "server", "at")


def _server(span: Span) -> str | None:
    server, router = span.row["server"], span.row.get("server_router")
    return server if router is None else f"{server} at {router}" if server else f"at {router}"
