"""The router's state as plain data: what ``rpcmq ls``, ``rpcmq top`` and the HTTP view show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heappush, heappushpop, nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rpcmq.core.router.access_control import account_row
from rpcmq.core.router.links import Link
from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.queue import Queue
from rpcmq.core.router.request import Request
from rpcmq.core.router.roundrobin.stuck import count_stuck, stuck_rows
from rpcmq.core.router.steps import Steps, finish
from rpcmq.core.router.topics import Consumer, Topic
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.payload.format import accept_names

if TYPE_CHECKING:
    from rpcmq.core.router.router import Router

__all__ = ["VIEWS", "overview", "view"]

#: The steps that make a view.
View = Steps[dict[str, Any]]

#: A view lists at most so many rows; ``truncated`` tells how many more there are.
MAX_ROWS = 2000
#: Rows, or smaller things, that are made or looked at in one step.
_ROWS_IN_ONE_STEP, _SMALL = 5, 50
QUANTILES = (0.5, 0.9, 0.99)
_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}


def view(router: Router, now: float, what: str) -> View:
    """The steps that make the view named ``what``.

    Raises:
        ProtocolError: there is no such view.
    """
    make = VIEWS.get(what)
    if make is None:
        raise ProtocolError(f"view {what!r} is unknown; known: {', '.join(VIEWS)}", "query")
    return make(router, now)


def overview(router: Router, now: float, what: str) -> dict[str, Any]:
    """The view named ``what``, made in one go.

    Raises:
        ProtocolError: there is no such view.
    """
    return finish(view(router, now, what))


def _summary(router: Router, now: float) -> View:
    stuck = yield from count_stuck(router.directory, now)
    security = yield from _security(router)
    settings, dispatch = router.settings, router.dispatch
    return {
        "router": settings.router_name,
        "router_id": settings.router_id,
        "boot": router.boot,
        "uptime_seconds": round(now - router.started, 3),
        "draining": dispatch.requests.draining,
        "links": len(router.links),
        "topics": len(router.directory),
        "calls_in_flight": dispatch.requests.calls_in_flight,
        "stuck": stuck,
        "memory": _memory(router),
        "dropped": dispatch.requests.drops.totals,
        "published": dict(router.pubsub.published),
        "refused": dict(router.refused),
        "counters": dict(dispatch.requests.counters + router.links.counters),
        "warnings": list(router.warnings),
        "security": security,
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


def _security(router: Router) -> Steps[dict[str, Any] | None]:
    """None without CURVE."""
    guard = router.guard
    if guard is None:
        return None
    refused: Counter[str] = Counter()
    accounts = list(guard)
    for number, account in enumerate(accounts, 1):
        refused.update(account.refused)
        if not number % _SMALL:
            yield
    return {"keys": len(accounts), "refused": dict(refused)}


def _keys(router: Router, now: float) -> View:
    accounts = list(router.guard) if router.guard is not None else []
    return _made("keys", (account_row(account, now) for account in accounts[:MAX_ROWS]), len(accounts))


def _stuck(router: Router, now: float) -> View:
    rows, total = yield from stuck_rows(router.directory, router.links, now, MAX_ROWS)
    return _rows("stuck", rows, total)


def _dropped(router: Router, now: float) -> View:
    yield
    drops = router.dispatch.requests.drops
    rows = _rows("dropped", drops.rows(now))
    rows["truncated"] += drops.rows_forgotten
    return rows | {"totals": drops.totals}


def _stats(router: Router, now: float) -> View:
    """Totals since the start: none of them ever goes back, whatever becomes of the topics they are from."""
    totals = yield from router.directory.totals()
    return {
        "uptime_seconds": round(now - router.started, 3),
        **totals,
        "outcomes": _named(totals["outcomes"]),
        "dropped": router.dispatch.requests.drops.totals,
        "published": dict(router.pubsub.published),
        "refused": dict(router.refused),
        "counters": dict(router.dispatch.requests.counters + router.links.counters),
    }


def _rows(name: str, rows: list[dict[str, Any]], total: int | None = None) -> dict[str, Any]:
    """The first of ``rows``; of ``total``, where the others were not made: a router has far more than it shows."""
    return {name: rows[:MAX_ROWS], "truncated": max(0, (len(rows) if total is None else total) - MAX_ROWS)}


def _made(name: str, rows: Iterable[dict[str, Any]], total: int, in_one_step: int = _ROWS_IN_ONE_STEP) -> View:
    """A view of ``rows``, which are made as they are asked for, so many in one step."""
    made: list[dict[str, Any]] = []
    for row in rows:
        made.append(row)
        if not len(made) % in_one_step:
            yield
    return _rows(name, made, total)


def _processes(router: Router, now: float) -> View:
    links = list(islice(router.links, MAX_ROWS))
    return _made("processes", (_process(link, now) for link in links), len(router.links))


def _process(link: Link, now: float) -> dict[str, Any]:
    subscriber = link.window
    row: dict[str, Any] = {
        "identity": link.identity,
        "queue_type": link.queue_type,
        "role": link.role,
        "key": link.permits.account.key.name if link.permits is not None else None,
        "accepts": list(accept_names(link.accepts)),
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


def _topics(router: Router, now: float) -> View:
    total = len(router.directory)
    rows: list[dict[str, Any]] = []
    for topic in list(islice(router.directory, MAX_ROWS)):
        rows.append((yield from _topic(topic, now)))
        if not len(rows) % _ROWS_IN_ONE_STEP:
            yield
    return _rows("topics", rows, total)


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
        if not number % _SMALL:
            yield
    consumers: list[dict[str, Any]] = []
    for number, consumer in enumerate(members, 1):
        in_flight += len(consumer.in_flight)
        if len(consumers) < MAX_ROWS:
            consumers.append(_consumer(consumer, now))
        if not number % _SMALL:
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
    }


def _queue(queue: Queue) -> dict[str, Any]:
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
        "oldest_seconds": round(now - oldest, 3),
        "settled": consumer.settled,
        "state": consumer.link.state.value,
        "queued": len(consumer.backlog),
    }


def _calls(router: Router, now: float) -> View:
    #: Of the oldest: when it came (negative: the youngest of these is the smallest), and which it was of all.
    oldest: list[tuple[float, int, Link, Request]] = []
    total = seen = 0
    for number, link in enumerate(list(router.links), 1):
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
        if link.calls or not number % _SMALL:
            yield
    oldest.sort(key=itemgetter(0, 1), reverse=True)
    return (yield from _made("calls", (_call(link, request, now) for _, _, link, request in oldest), total, _SMALL))


def _call(link: Link, request: Request, now: float) -> dict[str, Any]:
    return {
        "caller": link.identity,
        "topic": request.destination.name,
        "method": request.destination.method,
        "seconds": round(now - request.received_at, 3),
        "server": request.consumer.link.identity if request.consumer else None,
        "state": "queued" if request.consumer is None else "in flight",
        "attempt": request.attempts,
    }


def _methods(router: Router, now: float) -> View:
    every = list(router.directory.statistics)
    yield
    busiest = nlargest(MAX_ROWS, every, key=lambda each: each.calls + each.casts)
    yield
    return (yield from _made("methods", map(_method, busiest), len(every), in_one_step=2))


def _method(statistics: Statistics) -> dict[str, Any]:
    histogram = statistics.latency
    outcomes = _named(statistics.outcomes)
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
    }


def _named(outcomes: Mapping[int, int]) -> dict[str, int]:
    return {_OUTCOMES.get(number, f"outcome {number}"): count for number, count in outcomes.items()}


def _everything(router: Router, now: float) -> View:
    summary = yield from _summary(router, now)
    processes = yield from _processes(router, now)
    topics = yield from _topics(router, now)
    return summary | processes | topics


VIEWS: dict[str, Callable[[Router, float], View]] = {
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
