"""``python -m tests.faults.table [FILE...]``: the ``result`` lines in the output of tests, as the guide's table."""

from __future__ import annotations

import fileinput
import json
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["main", "results", "table"]

_PREFIX = "result "
#: Members that every row has, and that are columns of their own or not for readers.
_COMMON = (
    "scenario", "seed", "seconds", "submitted", "ended", "faults", "lost", "doubled", "misrouted", "violations",
    "worst_told_seconds", "worst_recovery_seconds",
)  # fmt: skip


def results(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The rows in ``lines``; of one scenario the last."""
    rows: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line.startswith(_PREFIX):
            row = json.loads(line.removeprefix(_PREFIX))
            rows[row["scenario"]] = row
    return list(rows.values())


def table(rows: Iterable[dict[str, Any]]) -> str:
    """``rows`` as a table in Markdown."""
    lines = [
        "| scenario | load | faults | lost | doubled | misrouted | told within | recovery | also measured |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        load = ", ".join(f"{count:,} {verb}" for verb, count in row.get("submitted", {}).items())
        faults = ", ".join(f"{count} {kind}" for kind, count in row.get("faults", {}).items())
        figures = [row.get(name, 0) for name in ("lost", "doubled", "misrouted")]
        times = [_seconds(row.get(f"worst_{name}_seconds")) for name in ("told", "recovery")]
        rest = ", ".join(f"{_words(name)} {_text(value)}" for name, value in row.items() if name not in _COMMON)
        cells = (row["scenario"], f"{load} in {row.get('seconds', 0):g} s", faults, *figures, *times, rest)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return f"{value:g} s" if value else ""


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


def main(files: list[str]) -> None:
    """Print the table of what is in ``files``, or on standard input."""
    with fileinput.input(files, encoding="utf-8") as lines:
        sys.stdout.write(table(results(lines)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
