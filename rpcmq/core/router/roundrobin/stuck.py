"""Work that makes no progress: with a consumer that answers nothing, or waiting though a consumer has credit.

A handler that takes long is not stuck while its process answers others, or it sends items or signs of life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappush, heappushpop
from typing import Any, Protocol

from rpcmq.core.router.directory import Directory
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Consumer, Request, Topic
from rpcmq.core.router.steps import Steps
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import ORIGIN_OF_KEY

__all__ = ["STUCK_SECONDS", "AskedFor", "asked_rows", "count_stuck", "state_of", "stuck_rows"]

#: From here on a call or delivery without progress is called stuck.
STUCK_SECONDS = 10.0

#: Topics, and messages, looked at in one step.
_TOPICS, _MESSAGES = 50, 500
#: Rows, and how many there would be without a bound.
_Rows = tuple[list[dict[str, Any]], int]
#: Gets each message that is stuck, with the time of its last progress.
_Found = Callable[[Request, float], None]


class AskedFor(Protocol):
    """A message that may have been started, and that others are asked for."""

    request: Request

    def why(self, now: float) -> str:
        """Say for whom it waits."""


def count_stuck(directory: Directory, now: float) -> Steps[int]:
    """Count calls and deliveries without progress for :data:`STUCK_SECONDS`."""
    count = 0

    def found(request: Request, since: float) -> None:
        nonlocal count
        count += 1

    yield from _find(directory, now, found)
    return count


def stuck_rows(directory: Directory, links: LinkTable, now: float, most: int) -> Steps[_Rows]:
    """A row for each call and delivery that has made no progress for :data:`STUCK_SECONDS`, the longest first.

    Args:
        most: rows that are made, and messages that are remembered meanwhile.

    Returns:
        The rows, and how many there would be without ``most``.
    """
    count = 0
    oldest: list[tuple[float, int, Request]] = []

    def found(request: Request, since: float) -> None:
        nonlocal count
        count += 1
        # The smallest of the heap is the youngest.
        if len(oldest) < most:
            heappush(oldest, (-since, -count, request))
        else:
            heappushpop(oldest, (-since, -count, request))

    yield from _find(directory, now, found)
    oldest.sort(key=lambda each: each[:2], reverse=True)
    rows: list[dict[str, Any]] = []
    for since, _, request in oldest:
        rows.append(_row(links, request, -since, now))
        if not len(rows) % _TOPICS:
            yield
    return rows, count


def asked_rows(links: LinkTable, asked: Iterable[AskedFor], now: float) -> Iterator[dict[str, Any]]:
    """A row for each message that is ``asked`` for, with the consumers that it waits for."""
    for each in asked:
        yield _row(links, each.request, each.request.received_at, now, each.why(now))


def state_of(request: Request) -> str:
    """Return the state of ``request``, which has not ended, for people."""
    if request.consumer is not None:
        return "in flight"
    queue = request.queue
    return "asked" if queue is not None and queue is not request.destination.queue else "queued"


def _find(directory: Directory, now: float, found: _Found) -> Steps[None]:
    limit = now - STUCK_SECONDS
    for number, topic in enumerate(list(directory)):
        if not number % _TOPICS:
            yield
        for consumer in list(topic.consumers):
            yield from _with(consumer, limit, found)
        yield from _waiting(topic, limit, found)


def _with(consumer: Consumer, limit: float, found: _Found) -> Steps[None]:
    if consumer.progressed_at > limit or not consumer.in_flight:
        return
    for number, delivery in enumerate(list(consumer.in_flight.values()), 1):
        # In the order in which they were dispatched, so the rest is younger.
        if delivery.dispatched_at > limit:
            return
        found(delivery.request, max(delivery.dispatched_at, consumer.progressed_at))
        if not number % _MESSAGES:
            yield


def _waiting(topic: Topic, limit: float, found: _Found) -> Steps[None]:
    """Yield messages that a ready consumer could take. There must be none: any is a fault of the router."""
    if not any(consumer.ready for consumer in topic.consumers):
        return
    queues: list[tuple[Queue[Request], Iterable[Consumer]]] = [(topic.queue, list(topic.consumers))]
    queues += [(server.queue, list(server.consumers)) for server in topic.servers.values()]
    queues += [(consumer.backlog, [consumer]) for consumer in topic.consumers]
    for number, (queue, consumers) in enumerate(queues, 1):
        if queue and any(consumer.ready for consumer in consumers):
            for count, request in enumerate(list(queue), 1):
                if request.received_at <= limit:
                    found(request, request.received_at)
                if not count % _MESSAGES:
                    yield
        if not number % _MESSAGES:
            yield


def _row(links: LinkTable, request: Request, since: float, now: float, why: str = "") -> dict[str, Any]:
    caller, consumer = links.by_origin(request.key[ORIGIN_OF_KEY]), request.consumer
    return {
        "kind": "call" if request.is_call else "cast",
        "caller": caller.identity if caller is not None else None,
        "topic": request.destination.name,
        "method": request.destination.method,
        "state": state_of(request),
        "server": consumer.link.identity if consumer is not None else None,
        "server_state": consumer.link.state.value if consumer is not None else None,
        "seconds": round(now - since, 3),
        "attempt": request.attempts,
        "why": why,
    }
