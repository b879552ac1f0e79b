"""Topics, calls, methods and what was dropped, as ``rpcmq ls`` shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heappush, heappushpop, nlargest
from itertools import islice
from operator import itemgetter
from typing import Any

from rpcmq.core.common.drops import Drops
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.model import Consumer, Link, Request, Topic
from rpcmq.core.router.roundrobin.stuck import AskedFor, asked_rows, state_of, stuck_rows
from rpcmq.core.router.view_rows import MAX_ROWS, SMALL, View, made, rows_of
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.errors import Outcome

__all__ = ["calls", "dropped", "methods", "named_outcomes", "stuck", "topics"]

_TOPICS_IN_ONE_STEP = 5
QUANTILES = (0.5, 0.9, 0.99)
_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}


def topics(directory: Directory, now: float) -> View:
    """Each topic with its queues and consumers."""
    total = len(directory)
    rows: list[dict[str, Any]] = []
    for topic in list(islice(directory, MAX_ROWS)):
        rows.append((yield from _topic(topic, now)))
        if not len(rows) % _TOPICS_IN_ONE_STEP:
            yield
    return rows_of("topics", rows, total)


def calls(links: LinkTable, now: float) -> View:
    """Calls that have not ended, the oldest first."""
    #: Of the oldest: when it came (negative: the youngest of these is the smallest), and which it was of all.
    oldest: list[tuple[float, int, Link, Request]] = []
    total = seen = 0
    for number, link in enumerate(list(links), 1):
        total += len(link.calls)
        # The first of a link are its oldest.
        for request in islice(link.calls.values(), MAX_ROWS):
            seen += 1
            if len(oldest) < MAX_ROWS:
                heappush(oldest, (-request.received_at, -seen, link, request))
            elif -request.received_at > oldest[0][0]:
                heappushpop(oldest, (-request.received_at, -seen, link, request))
            else:
                break
        if link.calls or not number % SMALL:
            yield
    oldest.sort(key=itemgetter(0, 1), reverse=True)
    return (yield from made("calls", (_call(link, request, now) for _, _, link, request in oldest), total, SMALL))


def methods(directory: Directory, now: float) -> View:
    """Counts and latencies of each method, the busiest first."""
    every = list(directory.statistics)
    yield
    busiest = nlargest(MAX_ROWS, every, key=lambda each: each.calls + each.casts)
    yield
    return (yield from made("methods", map(_method, busiest), len(every), in_one_step=2))


def named_outcomes(outcomes: Mapping[int, int]) -> dict[str, int]:
    """The counts of ``outcomes`` by the names of the outcomes, in the order of their numbers."""
    return {_OUTCOMES.get(number, f"outcome {number}"): count for number, count in sorted(outcomes.items())}


def stuck(directory: Directory, links: LinkTable, now: float, asked: Collection[AskedFor]) -> View:
    """Calls and deliveries without progress, the longest first, and the messages that are ``asked`` for."""
    rows, total = yield from stuck_rows(directory, links, now, MAX_ROWS)
    rows += asked_rows(links, islice(asked, MAX_ROWS - len(rows)), now)
    return rows_of("stuck", rows, total + len(asked))


def dropped(drops: Drops, now: float) -> View:
    """Drops since the start, by topic, verb and reason."""
    yield
    rows = rows_of("dropped", drops.rows(now))
    rows["truncated"] += drops.rows_forgotten
    return rows | {"totals": drops.totals}


def _topic(topic: Topic, now: float) -> View:
    members = list(topic.consumers)
    queues = [topic.queue, *(s.queue for s in topic.servers.values()), *(c.backlog for c in members)]
    dropped: dict[str, int] = {}
    queued = queued_bytes = in_flight = 0
    shown: list[dict[str, Any]] = []
    for number, queue in enumerate(queues, 1):
        for reason, count in queue.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
        queued += len(queue)
        queued_bytes += queue.size_bytes
        if (queue or queue.dropped) and len(shown) < MAX_ROWS:
            shown.append(_queue(queue))
        if not number % SMALL:
            yield
    consumers: list[dict[str, Any]] = []
    for number, consumer in enumerate(members, 1):
        in_flight += len(consumer.in_flight)
        if len(consumers) < MAX_ROWS:
            consumers.append(_consumer(consumer, now))
        if not number % SMALL:
            yield
    return {
        "exchange": topic.address.exchange,
        "topic": topic.address.topic,
        "group": topic.group,
        "registered": topic.registered,
        "last_seen_seconds": None if topic.consumers else round(now - topic.last_seen, 3),
        "queued": queued,
        "queued_bytes": queued_bytes,
        "queues": shown,
        "dropped": dropped,
        "in_flight": in_flight,
        "consumers": consumers,
        "elsewhere": {remote.link.identity: remote.consumers for remote in topic.remotes.values()},
    }


def _queue(queue: Queue[Request]) -> dict[str, Any]:
    return {"name": queue.name, "queued": len(queue), "bytes": queue.size_bytes, "dropped": dict(queue.dropped)}


def _consumer(consumer: Consumer, now: float) -> dict[str, Any]:
    # They are in the order in which they were dispatched.
    first = next(iter(consumer.in_flight.values()), None)
    oldest = now if first is None else first.dispatched_at
    return {
        "identity": consumer.link.identity,
        "server": consumer.server,
        "credit": consumer.granted,
        "in_flight": len(consumer.in_flight),
        "occupied": consumer.occupied,
        "oldest_seconds": round(now - oldest, 3),
        "settled": consumer.settled,
        "state": consumer.link.state.value,
        "queued": len(consumer.backlog),
    }


def _call(link: Link, request: Request, now: float) -> dict[str, Any]:
    return {
        "caller": link.identity,
        "topic": request.destination.name,
        "method": request.destination.method,
        "seconds": round(now - request.received_at, 3),
        "server": request.consumer.link.identity if request.consumer else None,
        "state": state_of(request),
        "attempt": request.attempts,
    }


def _method(statistics: Statistics) -> dict[str, Any]:
    histogram = statistics.latency
    outcomes = named_outcomes(statistics.outcomes)
    return {
        "topic": statistics.name,
        "method": statistics.method,
        "calls": statistics.calls,
        "casts": statistics.casts,
        "outcomes": outcomes,
        "errors": sum(v for k, v in outcomes.items() if k != "ok"),
        "latency_us": {f"p{q * 100:g}": histogram.quantile(q) for q in QUANTILES},
        "mean_us": histogram.sum / histogram.count if histogram.count else None,
        "max_us": histogram.max,
        "histogram": histogram.to_dict(),
        "hedges": statistics.hedges.to_dict() if statistics.hedges is not None else None,
    }
