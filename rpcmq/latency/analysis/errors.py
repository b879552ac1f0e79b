"""Failures by the class the method raised, where known; else by outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rpcmq.latency.analysis.series import METHOD, Series

__all__ = ["ErrorCount", "attach", "failures"]


class ErrorCount(NamedTuple):
    """Records of a method that ended in one way.

    Attributes:
        method: exchange, topic and method.
        outcome: how.
        error_class: what the method raised.
    """

    method: tuple[str | None, ...]
    outcome: str
    error_class: str
    records: int


def attach(counts: Iterable[ErrorCount], methods: Iterable[Series], whole: Series) -> None:
    """Give ``methods`` their ``errors_by_class``, and ``whole`` those of all of them."""
    by_method = {tuple(each.key[name] for name in METHOD): each for each in methods}
    for count in counts:
        for series in (by_method.get(count.method), whole):
            if series is not None:
                name = (count.outcome, count.error_class)
                series.errors_by_class[name] = series.errors_by_class.get(name, 0) + count.records


def failures(series: Series) -> list[tuple[str, str | None, int]]:
    """Outcome, class and number of the records that did not end well, the most frequent first.

    What has no class, because nothing was raised or nobody said, comes with None. The sum is ``series.errors``.
    """
    rest = {outcome: number for outcome, number in series.outcomes.items() if outcome != "ok"}
    found: list[tuple[str, str | None, int]] = []
    for (outcome, error_class), number in series.errors_by_class.items():
        if outcome in rest:
            rest[outcome] -= number
            found.append((outcome, error_class, number))
    found += [(outcome, None, number) for outcome, number in rest.items() if number > 0]
    return sorted(found, key=lambda each: (-each[2], each[0], each[1] or ""))
