"""Purge: an operator empties a queue; and a service asks who calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.bounded_queue import Queue
from rpcmq.core.router.controls import text_of
from rpcmq.core.router.link import Link
from rpcmq.core.router.node_type import NodeContext
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.topics import Server, Topic
from rpcmq.errors import ProtocolError
from rpcmq.wire import ORIGIN_OF_KEY

__all__ = ["Controls"]

#: Most messages that one request purges, so that nobody else has to wait.
_PURGED_AT_ONCE = 2000


class Controls:
    """What is asked of RoundRobin with arguments."""

    def __init__(self, context: NodeContext, requests: RequestTable) -> None:
        self._context = context
        self._requests = requests
        self.table = {"control.purge": self._purge, "caller": self._caller}

    def _purge(self, now: float, link: Link, body: Mapping[str, Any]) -> dict[str, Any]:
        """Drop messages waiting for a topic, or for one server or group of it. Deliveries in flight are not touched."""
        name, exchange, group = text_of(body, "topic"), text_of(body, "exchange", ""), text_of(body, "group", "")
        found = self._context.directory.lookup(exchange, name, group)
        answer: dict[str, Any] = {
            "known": found is not None,
            "casts": 0,
            "calls": 0,
            "remaining": 0,
            "forgotten": False,
        }
        if found is None:
            return answer
        topic, server = found
        queues = list(_queues(topic, server))
        left = _PURGED_AT_ONCE
        for queue in queues:
            for request in list(islice(queue, left)):
                answer["calls" if request.is_call else "casts"] += 1
                self._requests.purge(now, request, link.identity)
                left -= 1
        answer["remaining"] = sum(map(len, queues))
        if body.get("forget") is True and server is None and not answer["remaining"]:
            answer["forgotten"] = self._context.directory.forget(topic)
        if answer["casts"] or answer["calls"]:
            text = f"{link.identity} purged {shorten(name)!r}: {answer['casts']} casts, {answer['calls']} calls"
            self._context.act(LogEvent("purged", text, link.identity, {"topic": name, **answer}))
        return answer

    def _caller(self, now: float, link: Link, body: Mapping[str, Any]) -> dict[str, Any]:
        """Identify the sender of the message ``key`` (hexadecimal), which the asking process has: for its log."""
        try:
            key = bytes.fromhex(text_of(body, "key"))
        except ValueError:
            raise ProtocolError(f"key {body['key']!r:.100} is not hexadecimal", "query") from None
        has_it = any(key in consumer.in_flight for consumer in link.consumers.values())
        sender = self._context.links.by_origin(key[ORIGIN_OF_KEY]) if has_it else None
        return {"identity": sender.identity if sender is not None else ""}


def _queues(topic: Topic, server: Server | None) -> Iterator[Queue]:
    """Iterate over the queues of ``server``, or of ``topic`` and all its servers."""
    if server is None:
        yield topic.queue
    for each in topic.servers.values() if server is None else (server,):
        yield each.queue
        for consumer in each.consumers:
            yield consumer.backlog
