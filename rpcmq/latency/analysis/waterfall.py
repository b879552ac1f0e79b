"""The records of one trace, or of one call, as a waterfall: what called what, and where the time went.

Two things make one record the child of another:

hop
    The same call (correlation id: the caller's router, link and sequence) as the next router saw it.
nested call
    The caller is the process that was handling the other record's call at that time: that record's
    ``server_process`` is this one's ``client`` (or another identity of that operating system process: it may have
    several links), and its time contains the moment this one came.

Clocks of two machines are never compared. Within one life of one router all offsets come from its own receive times.
What another router recorded is known by its durations only: the network's part is the outer time at the server minus
the inner total, and the inner record is drawn in the middle of the outer one's time at the server; of its time in the
method, where that is known to be long enough and when it began is known. Such an offset is *placed*, and so is what
hangs on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rpcmq.latency.analysis.names import method_name

__all__ = ["Bar", "Row", "Span", "render", "waterfall"]

#: A row of the dispatch log: ``schema.COLUMNS``, ``recv_at`` in microseconds since 1970.
Row = Mapping[str, Any]
#: Two receive times of one router are off by no more (microseconds): they are rounded, and the wall clock is read anew
#: for each file of records.
_SLACK_US = 1000
_NEVER = float("inf")
#: Levels that are indented.
_DEEPEST = 20


@dataclass(slots=True, eq=False)
class Span:
    """A record in a waterfall.

    Attributes:
        row: the record.
        depth: 0 for what nothing of the trace called, then one more for each hop and each nested call.
        link: how it belongs to its parent: ``hop``, ``nested``, or ``root`` without one.
        offset_us: its beginning, after that of the first record.
        placed: whether the offset was chosen rather than measured.
        queue_us, handler_us, total_us: as recorded; None: not known.
        network_us: the way to the service, and its own queue; with the way back in it where ``reply_us`` is None. At a
            router that sent it on, all that is not the next router's time. None: not known.
        reply_us: the way back; None: not known, or not this router's alone.
        between_us: the way to the service's router and back; None: not known, or that is this router.
        children: what hangs on it, in the order in which it came.
    """

    row: Row
    depth: int = 0
    link: str = "root"
    offset_us: int = 0
    placed: bool = False
    queue_us: int | None = None
    network_us: int | None = None
    handler_us: int | None = None
    reply_us: int | None = None
    between_us: int | None = None
    total_us: int | None = None
    children: list[Span] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All but the children, and of the record what tells it from others."""
        names = ("router", "boot", "seq", "kind", "exchange", "topic", "method", "client", "server", "server_process")
        return {name: self.row[name] for name in (*names, "outcome", "hops", "attempt")} | {
            "depth": self.depth,
            "link": self.link,
            "offset_us": self.offset_us,
            "placed": self.placed,
            "queue_us": self.queue_us,
            "network_us": self.network_us,
            "handler_us": self.handler_us,
            "reply_us": self.reply_us,
            "between_us": self.between_us,
            "service_us": self.row["service_us"],
            "total_us": self.total_us,
        }


def waterfall(rows: Iterable[Row]) -> list[Span]:
    """The records ``rows`` from the outside in, each before what it called.

    Args:
        rows: of one trace, or of one correlation id; in any order. A row that occurs twice counts once.
    """
    unique = {(row["router"], row["boot"], row["seq"]): row for row in rows}
    ordered = sorted(unique.values(), key=lambda row: (row["recv_at"], row["hops"], row["seq"]))
    spans = [_span(row) for row in ordered]
    serving: dict[str | None, list[Span]] = {}
    hops: dict[tuple[Any, ...], list[Span]] = {}
    for span in spans:
        serving.setdefault(_process(span.row["server_process"]), []).append(span)
        hops.setdefault((*_call(span.row), span.row["hops"]), []).append(span)
    above: dict[Span, Span] = {}
    roots: list[Span] = []
    for span in spans:
        row = span.row
        if row["hops"]:
            span.link, candidates = "hop", hops.get((*_call(row), row["hops"] - 1), [])
        else:
            span.link, candidates = "nested", serving.get(_process(row["client"]), []) if row["client"] else []
        # Where only durations can be compared two calls may seem to contain each other.
        parent = _parent(span, [each for each in candidates if _top(each, above) is not span])
        if parent is None:
            span.link = "root"
            roots.append(span)
        else:
            above[span] = parent
            parent.children.append(span)
    for span in spans:
        span.network_us, span.reply_us = _ways(span)
    laid_out = _lay_out(roots)
    first = min((span.offset_us for span in laid_out), default=0)
    for span in laid_out:
        span.offset_us -= first
    return laid_out


def _top(span: Span, above: dict[Span, Span]) -> Span:
    """Return the root ancestor of ``span``; ``above`` gets shorter ways there."""
    while (parent := above.get(span)) is not None:
        above[span] = above.get(parent, parent)
        span = parent
    return span


def _span(row: Row) -> Span:
    between = row.get("between_us")
    return Span(
        row, queue_us=row["queue_us"], handler_us=row["handler_us"], between_us=between, total_us=row["total_us"]
    )


def _call(row: Row) -> tuple[Any, ...]:
    return row["origin_router"], row["origin_link"], row["origin_seq"]


def _life(row: Row) -> tuple[Any, ...]:
    return row["router"], row["boot"]


def _parent(span: Span, candidates: Sequence[Span]) -> Span | None:
    row = span.row
    if span.link == "nested":
        candidates = [each for each in candidates if _call(each.row) != _call(row)]
        here = [each for each in candidates if _life(each.row) == _life(row)]
        if here:
            containing = [each for each in here if _contains(each.row, row)]
            # The one that began last is the innermost.
            return max(containing, key=lambda each: int(each.row["seq"]), default=None)
        # Another router's clock is not comparable: only its durations are.
        candidates = [each for each in candidates if _framing_error(each.row["service_us"], row["total_us"]) < _NEVER]
    # Of a fanout there are several; the one whose time at the server fits this record best.
    return min(candidates, key=lambda each: _framing_error(each.row["service_us"], row["total_us"]), default=None)


def _process(identity: str | None) -> str | None:
    """Return the common part of the identities of one process (``rpcmq.client.hello.default_identity``)."""
    found = re.fullmatch(r"(.+:\d+):[0-9a-f]{6}", identity or "")
    return found[1] if found else identity


def _framing_error(outer: int | None, inner: int | None) -> float:
    """Return by how much the outer duration is longer; infinite if shorter, since it cannot contain the inner one."""
    if outer is None or inner is None:
        return 1e18
    return outer - inner if outer >= inner - _SLACK_US else _NEVER


def _contains(outer: Row, inner: Row) -> bool:
    """Return whether ``inner`` came to the same router while it waited for the end of ``outer``."""
    if outer["seq"] >= inner["seq"]:
        return False
    return outer["total_us"] is None or int(inner["recv_at"] - outer["recv_at"]) <= outer["total_us"] + _SLACK_US


def _walk(roots: Sequence[Span]) -> Iterator[tuple[Span, Span | None]]:
    """Yield each record before its children, with its parent."""
    waiting: list[tuple[Span, Span | None]] = [(root, None) for root in reversed(roots)]
    while waiting:
        span, parent = waiting.pop()
        yield span, parent
        waiting += ((child, span) for child in reversed(span.children))


def _lay_out(roots: Sequence[Span]) -> list[Span]:
    """Set depths and offsets: those of a router's life by its own clock, once one record of it has a place."""
    anchors: dict[tuple[Any, ...], Span] = {}
    laid_out = []
    for span, parent in _walk(roots):
        laid_out.append(span)
        if parent is not None:
            span.depth = parent.depth + 1
        anchor = anchors.setdefault(_life(span.row), span)
        if anchor is not span:
            span.offset_us = anchor.offset_us + int(span.row["recv_at"]) - int(anchor.row["recv_at"])
            span.placed = anchor.placed
        else:
            if parent is not None:
                span.offset_us = _middle(parent, span)
            span.placed = parent is not None or len(anchors) > 1
    return laid_out


def _middle(parent: Span, span: Span) -> int:
    begin = parent.offset_us + (parent.queue_us or 0) + (parent.between_us or 0) // 2
    took, handler, network = span.total_us or 0, parent.handler_us, parent.network_us
    if parent.reply_us is not None and handler is not None and network is not None and took <= handler:
        # What the method called is within the method.
        return begin + network + (handler - took) // 2
    return begin + max(0, (parent.row["service_us"] or 0) - (parent.between_us or 0) - took) // 2


def _ways(span: Span) -> tuple[int | None, int | None]:
    """The way there and the way back, or both together and None; two times None: not known."""
    service = span.row["service_us"]
    if service is None:
        return None, None
    hops = [child.total_us for child in span.children if child.link == "hop" and child.total_us is not None]
    inner = max(hops) if hops else span.handler_us
    if inner is None:
        return None, None
    both, reply = max(0, int(service) - inner - (span.between_us or 0)), span.row["reply_us"]
    # The answer passed the next router too: this router's part of the way is unknown.
    if reply is None or hops:
        return both, None
    back = min(max(0, int(reply)), both)
    return both - back, back


@dataclass(frozen=True, slots=True)
class Bar:
    """A line of a waterfall that was rendered.

    Attributes:
        name: the method, indented by its depth.
        bar: the time line: ``.`` queued, ``=`` between routers, ``-`` network, ``#`` in the handler or at the next
            router, ``<`` the way back where it is known.
        span: what it is of.
    """

    name: str
    bar: str
    span: Span


def render(spans: Sequence[Span], width: int = 60) -> list[Bar]:
    """The waterfall as text.

    Args:
        width: characters of the time line.
    """
    end = max((span.offset_us + (span.total_us or 0) for span in spans), default=0)
    begin = min((span.offset_us for span in spans), default=0)
    scale = width / max(1, end - begin)
    return [Bar(_name(span), _bar(span, begin, scale, width), span) for span in spans]


def _name(span: Span) -> str:
    name = method_name(span.row)
    if span.link == "hop":
        name = f"-> {span.row['router']}: {name}"
    return "  " * min(span.depth, _DEEPEST) + name


def _bar(span: Span, begin: int, scale: float, width: int) -> str:
    start = min(width - 1, int((span.offset_us - begin) * scale))
    if span.total_us is None:
        return " " * start + "?"
    queued, network, between = span.queue_us or 0, span.network_us or 0, span.between_us or 0
    inside = max(0, span.total_us - queued - network - between - (span.reply_us or 0))
    # How much of both ways was the way there nobody knows: half, then.
    back = ("-", network / 2) if span.reply_us is None else ("<", span.reply_us)
    there = network / 2 if span.reply_us is None else network
    parts = [(".", queued), ("=", between / 2), ("-", there), ("#", inside), back, ("=", between / 2)]
    length = max(1, min(width - start, round(span.total_us * scale)))
    text, done = "", 0.0
    for sign, us in parts:
        done += us
        text += sign * (round(length * done / max(1, span.total_us)) - len(text))
    return " " * start + (text or "#")
