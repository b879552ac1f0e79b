"""Printing for readers (tables) and for programs (JSON)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rpcmq.cli.text import plain
from rpcmq.errors import PayloadError
from rpcmq.payload import TypedJson
from rpcmq.payload.bounded_text import short_repr

__all__ = [
    "Output", "add_row", "joined", "print_fitting", "print_folded", "print_json", "print_result", "print_with_reasons",
    "table", "typed_json",
]  # fmt: skip

#: More characters than a line has: the width when the output is not a terminal, so that each row is one line.
_ANY = 100_000
#: Characters of a text that stay together where a table does not fit.
_LEAST_TEXT = 16
#: Spaces between two columns.
_GAP = 2
#: Most characters of a result that JSON has no form for.
_LONGEST = 1_000_000


class Output(Console):
    """A console for tables on standard output (or error) that ignores a closed pipe."""

    def __init__(self, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        super().__init__(stderr=stderr, highlight=False, width=None if stream.isatty() else _ANY)

    def on_broken_pipe(self) -> None:
        """Leave it to the command's entry point."""
        raise BrokenPipeError


def table(title: str, *columns: str) -> Table:
    """An empty table; a column whose name begins with ``>`` is aligned to the right."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return made


def _add_columns_of(model: Table, to: Table, left_out: str = "") -> None:
    for each in model.columns:
        if each.header != left_out:
            to.add_column(each.header, justify=each.justify, overflow=each.overflow)


def add_row(to: Table, cells: Sequence[object], style: str = "") -> None:
    """Add a row of plain text to the table ``to``."""
    to.add_row(*(Text("" if cell is None else plain(cell)) for cell in cells), style=style)


def print_fitting(output: Output, made: Table, *spare: str) -> None:
    """Print a table; where it is too wide, without ``spare`` columns, so that names stay whole.

    Omit as few as necessary, in order; a note below names them.
    """
    _print_without(output, made, spare, lambda made: _width(output, made))


def print_folded(output: Output, made: Table, *spare: str) -> None:
    """Print a table; where it is too wide, texts go on in further lines, and numbers stay whole.

    Where less than 16 characters of a text would stay together, ``spare`` columns are omitted, as few as necessary,
    in order; a note below names them.
    """
    _print_without(output, made, spare, lambda made: _least_width(output, made))


def print_with_reasons(output: Output, made: Table, reasons: Iterable[tuple[str, str]], *spare: str) -> None:
    """Print a table with a column ``why``; where it is too wide, without that, and the reasons in lines below it.

    Args:
        reasons: lines, each with what its reason is about, and its style.
        spare: columns, as for :func:`print_folded`.
    """
    if _width(output, made) <= output.width:
        output.print(made)
        return
    print_folded(output, _without(made, "why"), *spare)
    for text, style in reasons:
        output.print(plain(text), style=style, markup=False)


def _width(output: Output, made: Table) -> int:
    return output.measure(made, options=output.options.update(max_width=_ANY)).maximum


def _least_width(output: Output, made: Table) -> int:
    """The width that a table can be folded to; it is not folded to less from now on."""
    for each in made.columns:
        each.no_wrap = each.justify == "right"
        widest = max(cell_len(str(cell)) for cell in (each.header, *each.cells))
        each.min_width = widest if each.no_wrap else min(_LEAST_TEXT, widest)
    return sum(each.min_width or 0 for each in made.columns) + _GAP * (len(made.columns) - 1)


def _print_without(output: Output, made: Table, spare: Sequence[str], width: Callable[[Table], int]) -> None:
    left_out: list[str] = []
    names = iter(spare)
    while (is_too_wide := width(made) > output.width) and (name := next(names, None)) is not None:
        if any(each.header == name for each in made.columns):
            left_out.append(name)
            made = _without(made, name)
    if is_too_wide:
        for each in made.columns:  # whatever is folded: nothing is cut off
            each.min_width, each.no_wrap = None, False
    output.print(made)
    if left_out:
        output.print(Text(f"Not shown, for they do not fit: {', '.join(left_out)}", style="dim"))


def _without(made: Table, name: str) -> Table:
    kept = [each for each in made.columns if each.header != name]
    less = table(str(made.title or ""))
    _add_columns_of(made, less, name)
    for row, cells in zip(made.rows, zip(*(each.cells for each in kept), strict=True), strict=True):
        less.add_row(*cells, style=row.style)
    return less


def joined(shown: Mapping[str, Iterable[Table | str]]) -> list[Table | str]:
    """Join the tables and lines of several routers: one table for each title, with a column for the router's name.

    Args:
        shown: by the name of the router.
    """
    found: dict[str, Table | str] = {}
    for router, parts in shown.items():
        for part in parts:
            if isinstance(part, str):
                found[f"{router}: {part}"] = f"{plain(router)}: {part}"
                continue
            whole = found.setdefault(str(part.title or ""), _with_routers(part))
            assert not isinstance(whole, str), "titles have no colon"
            for row, cells in zip(part.rows, zip(*(each.cells for each in part.columns), strict=True), strict=True):
                whole.add_row(Text(plain(router)), *cells, style=row.style)
    return list(found.values())


def _with_routers(model: Table) -> Table:
    """An empty table with the columns of ``model``, and one more."""
    made = table(str(model.title or ""), "router")
    _add_columns_of(model, made)
    return made


def print_json(value: object, indent: int | None = None) -> None:
    """Print plain data as JSON: on one line, unless there is an ``indent``."""
    print(json.dumps(value, indent=indent, default=str), flush=True)


def print_result(value: Any, compact: bool) -> None:
    """Print what a method returned, as typed JSON: a datetime is ``{"$": "datetime", "v": "..."}``.

    What typed JSON does not know is printed as a string, its ``repr``.

    Args:
        compact: on one line.
    """
    print_json(json.loads(typed_json(value)), None if compact else 2)


def typed_json(value: Any) -> str:
    """``value`` on one line, as :func:`print_result` prints it."""
    try:
        text = TypedJson().encode(value).decode()
    except PayloadError:
        text = json.dumps(short_repr(value, _LONGEST))
    return json.dumps(json.loads(text))
