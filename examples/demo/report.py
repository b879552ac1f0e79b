"""The demo's output on the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.users import Told
from examples.demo.verdict import Finding

_PLAIN_WIDTH = 150
_REFRESH_SECONDS = 0.1

Advance = Callable[[int], None]


def new_console() -> Console:
    """Without a terminal: plain lines, wide enough for the tables."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Advance]:
    """A bar on a terminal, else a line for each tenth. The value is told how many are done."""
    if not console.is_terminal:
        yield lambda done: _print_tenth(console, what, done, total)
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task(what, total=total)
        drawn = 0.0

        def advance(done: int) -> None:
            nonlocal drawn
            bar.update(task, completed=done)
            if monotonic() - drawn >= _REFRESH_SECONDS or done == total:
                drawn = monotonic()
                bar.refresh()

        yield advance


def _print_tenth(console: Console, what: str, done: int, total: int) -> None:
    if done * 10 // total != (done - 1) * 10 // total:
        console.print(f"{what}: {done} of {total} ({done * 100 // total} %)")


def print_told(console: Console, told: Sequence[Told]) -> None:
    """Each kind of error once, with the first as the example."""
    table = _table("What callers were told", "asked for", "error", "times", "for example")
    table.columns[2].justify = "right"
    groups: dict[tuple[str, str, str], list[Told]] = {}
    for each in told:
        groups.setdefault((each.method, each.error, re.sub(r"\d+", "#", each.text)), []).append(each)
    for same in sorted(groups.values(), key=len, reverse=True):
        table.add_row(same[0].method, same[0].error, str(len(same)), escape(same[0].text))
    console.print(table)


def print_methods(console: Console, methods: Sequence[dict[str, Any]]) -> None:
    """The living routers' own tables as one; times are from receipt to the reply or the end of the cast.

    ``rpcmq.*`` is left out: with ``rpcmq.ping`` the demo waited for its services to start.
    """
    methods = [row for row in methods if not row["method"].startswith("rpcmq.")]
    names = ("topic", "method", "calls", "casts", "errors", "p50 ms", "p90 ms", "p99 ms")
    table = _table("The tables of the routers that live, added up (times: of the slower one)", *names)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in sorted(methods, key=lambda row: (row["topic"], row["method"])):
        counts = (str(row[name]) for name in ("calls", "casts", "errors"))
        quantiles = (_milliseconds(row["latency_us"][name]) for name in ("p50", "p90", "p99"))
        table.add_row(row["topic"], row["method"], *counts, *quantiles)
    table.add_section()
    sums = [str(sum(row[name] for row in methods)) for name in ("calls", "casts", "errors")]
    table.add_row("total", "", *sums)
    console.print(table)


def print_events(console: Console, events: Counter[str], lost: int) -> None:
    """Print the subscriber's counts."""
    counted = ", ".join(f"{count} {name}" for name, count in sorted(events.items()))
    console.print(f"Events: {counted}; lost: {lost}", soft_wrap=True)


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """One line each."""
    for finding in findings:
        mark = "[green]ok   [/]" if finding.is_ok else "[bold red]WRONG[/]"
        console.print(f"  {mark} {finding.text}", soft_wrap=True)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name)
    return table


def _milliseconds(microseconds: float | None) -> str:
    return "" if microseconds is None else f"{microseconds / 1000:.2f}"
