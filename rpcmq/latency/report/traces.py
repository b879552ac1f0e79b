"""Traces as waterfalls, as the page draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.waterfall import Row, Span, waterfall
from rpcmq.latency.report import units

__all__ = ["Line", "Part", "Trace", "traces"]

#: Most traces drawn, most records drawn of one, and most records examined of one (the longest).
_TRACES, _LINES, _RECORDS = 10, 30, 200


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a record's time: a stage, and where it is in percent of the trace's time."""

    stage: str
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Line:
    """A record of a trace.

    Attributes:
        where: what routed it, who served it.
        title: all of it in words.
        placed: whether its beginning was chosen rather than measured.
        total: microseconds; None: not known.
    """

    name: str
    where: str
    title: str
    depth: int
    placed: bool
    outcome: str
    total: int | None
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, or a call without one.

    Attributes:
        id: empty: there is none.
        name: the method of its longest record, with its outcome.
        at: when its first record came, seconds since 1970.
        total: of its longest record, microseconds.
        records: all that it has.
        lines: those that are drawn.
    """

    id: str
    name: str
    outcome: str
    at: float
    total: int
    records: int
    lines: list[Line]


def traces(rows: Iterable[Row]) -> list[Trace]:
    """The traces of ``rows`` with the longest records, the longest first."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        # A call without a trace is told from others by its correlation id.
        key = (row["trace_id"],) if row["trace_id"] else (row["origin_router"], row["origin_link"], row["origin_seq"])
        groups.setdefault(key, []).append(row)
    found = sorted(groups.values(), key=lambda group: -max(map(_total, group)))
    return [_trace(group) for group in found[:_TRACES]]


def _total(row: Row) -> int:
    return int(row["total_us"] or 0)


def _trace(rows: Sequence[Row]) -> Trace:
    longest = sorted(rows, key=_total, reverse=True)
    spans = waterfall(longest[:_RECORDS])
    end = max(1, *(span.offset_us + (span.total_us or 0) for span in spans), 1)
    return Trace(
        id=units.name(longest[0]["trace_id"], 64),
        name=method_name(longest[0]),
        outcome=units.name(longest[0]["outcome"], 40),
        at=min(row["recv_at"] for row in rows) / 1e6,
        total=_total(longest[0]),
        records=len(rows),
        lines=[_line(span, end) for span in spans[:_LINES]],
    )


def _line(span: Span, end: int) -> Line:
    row = span.row
    server = row["server"]
    where = f"{units.name(row['router'], 40)} → {'nobody' if server is None else units.name(server, 40)}"
    known = (
        ("queued", span.queue_us),
        ("between routers", span.between_us),
        (f"network and service's queue{', both ways' if span.reply_us is None else ''}", span.network_us),
        ("handler", span.handler_us),
        ("reply", span.reply_us),
        ("total", span.total_us),
    )
    words = [f"{name} {units.duration(value)}" for name, value in known if value is not None]
    title = f"{units.name(method_name(row))} at {where}: {', '.join(words) or 'no durations'}"
    return Line(
        name=units.name(method_name(row), 80),
        where=where,
        title=f"{title}, {'placed' if span.placed else 'begins'} at {units.duration(span.offset_us)}",
        depth=span.depth,
        placed=span.placed,
        outcome=units.name(row["outcome"], 40),
        total=span.total_us,
        parts=[Part(stage, 100 * at / end, 100 * took / end) for stage, at, took in _parts(span) if took > 0],
    )


def _parts(span: Span) -> Iterator[tuple[str, float, float]]:
    """Stage, beginning and length of each part (microseconds)."""
    queued = span.queue_us or 0
    served = max(0, (span.total_us or 0) - queued)
    yield "queued", span.offset_us, queued
    # The split of both ways is unknown: assume half.
    between = min(span.between_us or 0, served) / 2
    begin = span.offset_us + queued
    yield "between", begin, between
    yield from _parts_at_server(span, begin + between, served - 2 * between)
    yield "between", begin + served - between, between


def _parts_at_server(span: Span, at: float, served: float) -> Iterator[tuple[str, float, float]]:
    if span.network_us is None:
        yield "rest", at, served
        return
    onward = any(child.link == "hop" for child in span.children)
    there: float = min(span.network_us, served)
    if span.reply_us is None:
        there /= 2  # as above
        back, stage = there, "network"
    else:
        back, stage = min(span.reply_us, served - there), "reply"
    yield "network", at, there
    yield "rest" if onward else "handler", at + there, served - there - back
    yield stage, at + served - back, back
