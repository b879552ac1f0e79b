"""Purge: an operator empties a queue; and a service asks who calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.model import Link, Request, Server, Topic
from rpcmq.core.router.node_type import NodeContext
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import ORIGIN_OF_KEY
from rpcmq.wire.query_bodies import CallerAnswer, CallerQuery, PurgeAnswer, PurgeQuery

__all__ = ["Controls"]

#: Most messages that one request purges, so that nobody else has to wait.
_PURGED_AT_ONCE = 2000


class Controls:
    """The controls of RoundRobin: QUERYs that take arguments."""

    def __init__(self, context: NodeContext, requests: RequestTable) -> None:
        self._context = context
        self._requests = requests
        self.table = {"control.purge": self._purge, "caller": self._caller}

    def _purge(self, now: float, link: Link, message: bytes) -> PurgeAnswer:
        """Drop messages waiting for a topic, or for one server or group of it. Deliveries in flight are not touched."""
        query = PurgeQuery.of(message)
        found = self._context.directory.lookup(query.exchange, query.topic, query.group)
        if found is None:
            return PurgeAnswer(known=False, casts=0, calls=0, remaining=0)
        topic, server = found
        queues = list(_queues(topic, server))
        casts = calls = 0
        for queue in queues:
            for request in list(islice(queue, _PURGED_AT_ONCE - casts - calls)):
                if request.is_call:
                    calls += 1
                else:
                    casts += 1
                self._requests.purge(now, request, link.identity)
        remaining = sum(map(len, queues))
        is_forgotten = query.forget and server is None and not remaining and self._context.directory.forget(topic)
        answer = PurgeAnswer(known=True, casts=casts, calls=calls, remaining=remaining, forgotten=is_forgotten)
        if casts or calls:
            text = f"{link.identity} purged {shorten(query.topic)!r}: {casts} casts, {calls} calls"
            self._context.act(LogEvent("purged", text, link.identity, {"topic": query.topic, **answer.encode()}))
        return answer

    def _caller(self, now: float, link: Link, message: bytes) -> CallerAnswer:
        """Identify the sender of a message that the asking process has: for its log."""
        key = CallerQuery.of(message).key
        has_it = any(key in consumer.in_flight for consumer in link.consumers.values())
        sender = self._context.links.by_origin(key[ORIGIN_OF_KEY]) if has_it else None
        return CallerAnswer(identity=sender.identity if sender is not None else "")


def _queues(topic: Topic, server: Server | None) -> Iterator[Queue[Request]]:
    """Iterate over the queues of ``server``, or of ``topic`` and all its servers."""
    if server is None:
        yield topic.queue
    for each in topic.servers.values() if server is None else (server,):
        yield each.queue
        for consumer in each.consumers:
            yield consumer.backlog
