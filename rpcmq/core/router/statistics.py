"""The router's state as plain data: what ``rpcmq ls``, ``rpcmq top`` and the HTTP view show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest, nsmallest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rpcmq.core.router.links import Link
from rpcmq.core.router.stuck import count_stuck, stuck_rows
from rpcmq.core.router.topics import Consumer, Pending, Queue, Topic
from rpcmq.errors import Outcome, ProtocolError

if TYPE_CHECKING:
    from rpcmq.core.router.router import Router

__all__ = ["VIEWS", "overview"]

#: A view lists at most so many rows; ``truncated`` tells how many more there are.
MAX_ROWS = 2000
QUANTILES = (0.5, 0.9, 0.99)
_FORMATS = {"json": 1, "pickle": 2, "dill": 3}
_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}


def overview(router: Router, now: float, what: str) -> dict[str, Any]:
    """The view named ``what``.

    Raises:
        ProtocolError: there is no such view.
    """
    view = VIEWS.get(what)
    if view is None:
        raise ProtocolError(f"view {what!r} is unknown; known: {', '.join(VIEWS)}", "query")
    return view(router, now)


def _summary(router: Router, now: float) -> dict[str, Any]:
    settings, dispatch = router.settings, router.dispatch
    return {
        "router": settings.router_name,
        "router_id": settings.router_id,
        "boot": router.boot,
        "uptime_seconds": round(now - router.started, 3),
        "draining": dispatch.draining,
        "links": len(router.links),
        "topics": len(router.directory),
        "calls_in_flight": dispatch.calls_in_flight,
        "stuck": count_stuck(router.directory, now),
        "memory": _memory(router),
        "dropped": dispatch.drops.totals,
        "published": dict(router.pubsub.published),
        "refused": dict(router.refused),
        "counters": dict(dispatch.counters + router.links.counters),
        "warnings": list(router.warnings),
        "security": _security(router),
        "dispatch_log": router.log.sink.statistics() if router.log is not None else None,
    }


def _memory(router: Router) -> dict[str, int]:
    memory = router.memory
    return {
        "held_bytes": memory.held_bytes,
        "outgoing_bytes": memory.outgoing_bytes,
        "max_bytes": router.settings.router_max_bytes,
        "overdrawn_links": memory.overdrawn,
    }


def _security(router: Router) -> dict[str, Any] | None:
    """None without CURVE."""
    guard = router.guard
    if guard is None:
        return None
    refused: Counter[str] = Counter()
    for account in guard:
        refused.update(account.refused)
    return {"keys": sum(1 for _ in guard), "refused": dict(refused)}


def _keys(router: Router, now: float) -> dict[str, Any]:
    return _rows("keys", router.guard.rows(now) if router.guard is not None else [])


def _stuck(router: Router, now: float) -> dict[str, Any]:
    return _rows("stuck", stuck_rows(router.directory, router.links, now))


def _dropped(router: Router, now: float) -> dict[str, Any]:
    drops = router.dispatch.drops
    rows = _rows("dropped", drops.rows(now))
    rows["truncated"] += drops.rows_forgotten
    return rows | {"totals": drops.totals}


def _stats(router: Router, now: float) -> dict[str, Any]:
    """Totals since the start: none of them ever goes back, whatever becomes of the topics they are from."""
    totals = router.directory.totals()
    return {
        "uptime_seconds": round(now - router.started, 3),
        **totals,
        "outcomes": _named(totals["outcomes"]),
        "dropped": router.dispatch.drops.totals,
        "published": dict(router.pubsub.published),
        "refused": dict(router.refused),
        "counters": dict(router.dispatch.counters + router.links.counters),
    }


def _rows(name: str, rows: list[dict[str, Any]], total: int | None = None) -> dict[str, Any]:
    """The first of ``rows``; of ``total``, where the others were not made: a router has far more than it shows."""
    return {name: rows[:MAX_ROWS], "truncated": max(0, (len(rows) if total is None else total) - MAX_ROWS)}


def _processes(router: Router, now: float) -> dict[str, Any]:
    return _rows("processes", [_process(link, now) for link in islice(router.links, MAX_ROWS)], len(router.links))


def _process(link: Link, now: float) -> dict[str, Any]:
    subscriber = link.window
    row: dict[str, Any] = {
        "identity": link.identity,
        "queue_type": link.queue_type,
        "role": link.role,
        "key": link.permits.account.key.name if link.permits is not None else None,
        "accepts": [name for name, number in _FORMATS.items() if link.accepts >> number & 1],
        "state": link.state.value,
        "connected_seconds": round(now - link.since, 3),
        "silent_seconds": round(now - link.heard, 3),
        "calls": len(link.calls),
        "consumers": [c.backlog.name.removesuffix(" (fanout)") for c in link.consumers.values()],
        "in_flight": sum(len(c.in_flight) for c in link.consumers.values()),
        "to_send": len(link.outbox),
        "to_handle": len(link.inbox),
        "counters": dict(link.counters),
        **link.description,
    }
    if subscriber is not None:
        row["patterns"] = [pattern.decode() for _, pattern in link.patterns]
        row["queued"] = len(subscriber.queue)
        row["dropped"] = dict(subscriber.dropped)
        row["slow"] = bool(subscriber.queue)
    return row


def _topics(router: Router, now: float) -> dict[str, Any]:
    return _rows("topics", [_topic(topic, now) for topic in islice(router.directory, MAX_ROWS)], len(router.directory))


def _topic(topic: Topic, now: float) -> dict[str, Any]:
    queues = [topic.queue, *(s.queue for s in topic.servers.values()), *(c.backlog for c in topic.consumers)]
    dropped: dict[str, int] = {}
    for queue in queues:
        for reason, count in queue.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return {
        "exchange": topic.address.exchange,
        "topic": topic.address.topic,
        "group": topic.group,
        "registered": topic.registered,
        "last_seen_seconds": None if topic.consumers else round(now - topic.last_seen, 3),
        "queued": sum(map(len, queues)),
        "queued_bytes": sum(q.size_bytes for q in queues),
        "queues": [_queue(q) for q in queues if q or q.dropped],
        "dropped": dropped,
        "in_flight": sum(len(c.in_flight) for c in topic.consumers),
        "consumers": [_consumer(c, now) for c in topic.consumers],
    }


def _queue(queue: Queue) -> dict[str, Any]:
    return {"name": queue.name, "queued": len(queue), "bytes": queue.size_bytes, "dropped": dict(queue.dropped)}


def _consumer(consumer: Consumer, now: float) -> dict[str, Any]:
    oldest = min((p.dispatched_at for p in consumer.in_flight.values()), default=now)
    return {
        "identity": consumer.link.identity,
        "server": consumer.server,
        "credit": consumer.granted,
        "in_flight": len(consumer.in_flight),
        "oldest_seconds": round(now - oldest, 3),
        "settled": consumer.settled,
        "state": consumer.link.state.value,
        "queued": len(consumer.backlog),
    }


def _calls(router: Router, now: float) -> dict[str, Any]:
    links = router.links
    every = ((pending.received_at, link, pending) for link in links for pending in link.calls.values())
    oldest = nsmallest(MAX_ROWS, every, key=itemgetter(0))
    return _rows("calls", [_call(link, pending, now) for _, link, pending in oldest], sum(len(x.calls) for x in links))


def _call(link: Link, pending: Pending, now: float) -> dict[str, Any]:
    return {
        "caller": link.identity,
        "topic": pending.destination.name,
        "method": pending.destination.method,
        "seconds": round(now - pending.received_at, 3),
        "server": pending.consumer.link.identity if pending.consumer else None,
        "state": "queued" if pending.consumer is None else "in flight",
        "attempt": pending.attempt,
    }


def _methods(router: Router, now: float) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    every = list(router.directory.statistics)
    for statistics in nlargest(MAX_ROWS, every, key=lambda each: each.calls + each.casts):
        histogram = statistics.latency
        outcomes = _named(statistics.outcomes)
        rows.append(
            {
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
            }
        )
    return _rows("methods", rows, len(every))


def _named(outcomes: Mapping[int, int]) -> dict[str, int]:
    return {_OUTCOMES.get(number, f"outcome {number}"): count for number, count in outcomes.items()}


def _everything(router: Router, now: float) -> dict[str, Any]:
    return _summary(router, now) | _processes(router, now) | _topics(router, now)


VIEWS = {
    "overview": _everything,
    "summary": _summary,
    "processes": _processes,
    "topics": _topics,
    "calls": _calls,
    "methods": _methods,
    "dropped": _dropped,
    "stats": _stats,
    "keys": _keys,
    "stuck": _stuck,
}
