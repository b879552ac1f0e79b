"""Rows of the page's tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from rpcmq.latency.analysis.errors import failures
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.series import METHOD, Series
from rpcmq.latency.report import units
from rpcmq.latency.report.model import Report
from rpcmq.latency.report.numbers import QUANTILES, Quantile, known, mean, quantile, stages
from rpcmq.latency.report.timeline import Timeline, timeline

__all__ = ["MEANINGS", "Outcome", "Row", "Spark", "outcomes", "rows", "sparks"]

#: Outcome -> its meaning.
MEANINGS = {
    "ok": "ended well",
    "remote_error": "the method raised an error",
    "timeout": "no end within the time that the caller gave it",
    "no_consumer": "no consumer served it",
    "overloaded": "refused, because queues were full",
    "link_lost": "a connection was lost on its way",
    "cancelled": "the caller cancelled it",
    "protocol": "a malformed message",
    "draining": "a router or service was shutting down",
    "denied": "a key had no right to it",
    "unknown": "a router died while it was under way",
}
#: Columns of a sparkline, its size in pixels, and the quantile that it shows.
_SPARK, _SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_Q = 60, 120, 24, 0.95
#: Methods named with an outcome.
_NAMED = 2
#: Classes of errors named with an outcome.
_CLASSES = 5


@dataclass(frozen=True, slots=True)
class Spark:
    """A small curve of the p95.

    Attributes:
        path: of an SVG path within 120 x 24.
        low, high: the least and the greatest value, microseconds.
    """

    path: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """A table row for a series; durations are microseconds."""

    name: str
    below: str
    records: int
    errors: int
    timeouts: int
    quantiles: dict[float, Quantile | None]
    max: float | None
    mean: float | None
    total: float
    request: float
    reply: float
    stages: dict[str, float] = field(default_factory=dict)
    spark: Spark | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A table row for an outcome.

    Attributes:
        methods: those with the most of it, and their numbers.
        classes: what methods raised, the most frequent, and their numbers.
    """

    name: str
    meaning: str
    records: int
    methods: list[tuple[str, int]]
    classes: list[tuple[str, int]]


def rows(
    series: Iterable[Series],
    name: str,
    below: Sequence[str] = (),
    curves: Mapping[tuple[object, ...], Spark] | None = None,
) -> list[Row]:
    """A row for each of ``series``.

    Args:
        name: the dimension that names it.
        below: dimensions to say below that.
        curves: by exchange, topic and method.
    """
    return [_row(each, name, below, curves or {}) for each in series]


def _row(each: Series, name: str, below: Sequence[str], curves: Mapping[tuple[object, ...], Spark]) -> Row:
    value = each.key.get(name)
    spent = stages(each)
    total = sum(spent.values())
    return Row(
        name="none" if value is None else units.name(value) or "unnamed",
        below=" ".join(units.name(part) for part in map(each.key.get, below) if part),
        records=each.records,
        errors=each.errors,
        timeouts=each.outcomes.get("timeout", 0),
        quantiles={q: quantile(each.total, q) for q in QUANTILES},
        max=each.total.max,
        mean=mean(each.total),
        total=each.total.sum,
        request=each.request_bytes / max(each.records, 1),
        reply=each.reply_bytes / max(each.records, 1),
        stages={stage: share / total for stage, share in spent.items()} if total else {},
        spark=curves.get(_method(each)),
    )


def _method(each: Series) -> tuple[object, ...]:
    return tuple(each.key.get(part) for part in METHOD)


def sparks(report: Report, methods: Iterable[Series]) -> dict[tuple[object, ...], Spark]:
    """The p95 over time of those of ``methods`` that have enough records for one, by exchange, topic and method."""
    like = timeline(report.windows, report.window_seconds, _SPARK)
    windows: dict[tuple[object, ...], list[Series]] = {_method(each): [] for each in methods}
    for each in report.method_windows:
        if _method(each) in windows:
            windows[_method(each)].append(each)
    made = {key: _spark(timeline(found, report.window_seconds, _SPARK, like)) for key, found in windows.items()}
    return {key: spark for key, spark in made.items() if spark}


def _spark(line: Timeline) -> Spark | None:
    values = [each.total.quantile(_SPARK_Q) if each and known(each.total, _SPARK_Q) else None for each in line.columns]
    there = [value for value in values if value is not None]
    if not there:
        return None
    low, high = min(there), max(there)
    # Half of an octave above and below at least: what hardly moves is to look flat.
    bottom, top = log(max(low, 1)) - 0.35, log(max(high, 1)) + 0.35
    step = _SPARK_WIDTH / len(values)
    parts = []
    pen = False
    for number, value in enumerate(values):
        if value is None:
            pen = False
            continue
        height = _SPARK_HEIGHT * (top - log(max(value, 1))) / (top - bottom)
        # A line of no length is a dot, as ends are round: a point without neighbours is seen.
        parts.append(f"{'L' if pen else 'M'}{(number + 0.5) * step:.0f} {height:.1f}{'' if pen else 'h0'}")
        pen = True
    return Spark("".join(parts), low, high)


def outcomes(report: Report) -> list[Outcome]:
    """Return a row for each outcome: the most frequent first, but successes before all others."""
    found, failed = report.whole.outcomes, failures(report.whole)
    made = []
    for name in sorted(found, key=lambda name: (name != "ok", -found[name])):
        with_it = [(each.outcomes.get(name, 0), each.key) for each in report.methods if each.outcomes.get(name)]
        with_it.sort(key=lambda pair: -pair[0])
        methods = [(units.name(method_name(key), 80), number) for number, key in with_it[:_NAMED]]
        raised = [(units.name(error, 80), number) for outcome, error, number in failed if outcome == name and error]
        made.append(Outcome(units.name(name, 40), MEANINGS.get(name, ""), found[name], methods, raised[:_CLASSES]))
    return made
