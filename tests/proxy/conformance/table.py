"""Results as a table of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.proxy.conformance.case import Level
from tests.proxy.conformance.cases import GROUPS
from tests.proxy.conformance.runner import Result


def passed(results: Sequence[Result], level: Level) -> tuple[int, int]:
    """How many cases of ``level`` are as expected, and how many there are.

    A required case whose preparation fails is broken by nobody: it counts as passed. An optional one is not done.
    """
    own = [result for result in results if result.case.level is level]
    done = [result for result in own if result.is_passed or (result.is_untold and level is Level.REQUIRED)]
    return len(done), len(own)


def table(results: Mapping[str, Sequence[Result]]) -> str:
    """One row for each group, and one column for each proxy: required cases / optional ones."""
    lines = [f"| | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for group, cases in GROUPS.items():
        own = {name: [result for result in each if result.case in cases] for name, each in results.items()}
        lines.append(f"| {group} | {' | '.join(_cell(each) for each in own.values())} |")
    lines.append(f"| **All** | {' | '.join(f'**{_cell(each)}**' for each in results.values())} |")
    return "\n".join(lines)


def _cell(results: Sequence[Result]) -> str:
    return ", ".join("{} of {}".format(*passed(results, level)) for level in Level)
