"""What is asked with arguments: an operator empties a queue or ends the links of a process; a service asks who calls.

A control is asked for like a view, and needs the right ``admin`` on its name. The names have two words, so that ``*``
covers all views and no control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from rpcmq.core.common.text import shortened
from rpcmq.core.router.actions import Answer, Note
from rpcmq.core.router.links import Link
from rpcmq.core.router.queue import Queue
from rpcmq.core.router.topics import Server, Topic
from rpcmq.errors import ProtocolError
from rpcmq.wire import ORIGIN_OF_KEY, Kind, control

if TYPE_CHECKING:
    from rpcmq.core.router.router import Router

__all__ = ["CONTROLS", "FREE"]

#: Messages that one request purges: more would keep everybody else waiting.
_PURGED_AT_ONCE = 2000

Control = Callable[["Router", float, Link, Mapping[str, Any]], dict[str, Any]]


def _text(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ProtocolError(f"{name} {value!r:.100} must be a non-empty string", "query")
    return value


def _queues(topic: Topic, server: Server | None) -> Iterator[Queue]:
    """All in which messages for ``server`` wait, or for ``topic`` with all of its servers."""
    if server is None:
        yield topic.queue
    for each in topic.servers.values() if server is None else (server,):
        yield each.queue
        for consumer in each.consumers:
            yield consumer.backlog


def _purge(router: Router, now: float, link: Link, body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what waits for a topic, or for one server or group of it. What consumers have is not touched."""
    name, exchange, group = _text(body, "topic"), _text(body, "exchange", ""), _text(body, "group", "")
    found = router.directory.lookup(exchange, name, group)
    answer: dict[str, Any] = {"known": found is not None, "casts": 0, "calls": 0, "remaining": 0, "forgotten": False}
    if found is None:
        return answer
    topic, server = found
    queues = list(_queues(topic, server))
    left = _PURGED_AT_ONCE
    for queue in queues:
        for request in list(islice(queue, left)):
            answer["calls" if request.is_call else "casts"] += 1
            router.dispatch.requests.purge(now, request, link.identity)
            left -= 1
    answer["remaining"] = sum(map(len, queues))
    if body.get("forget") is True and server is None and not answer["remaining"]:
        answer["forgotten"] = router.directory.forget(topic)
    if answer["casts"] or answer["calls"]:
        text = f"{link.identity} purged {shortened(name)!r}: {answer['casts']} casts, {answer['calls']} calls"
        router.actions.append(Note("purged", text, link.identity, {"topic": name, **answer}))
    return answer


def _kick(router: Router, now: float, link: Link, body: Mapping[str, Any]) -> dict[str, Any]:
    """End the links of a process, as if it had gone. If it lives it connects again, with nothing of what it had."""
    identity = _text(body, "identity")
    if identity == link.identity:
        raise ProtocolError("a process cannot kick itself", "query")
    links = list(router.links.of_identity(identity))
    reason = f"kicked by {link.identity}"
    for each in links:
        if each.route is not None:
            # Told so, it begins anew on a new connection; this one has link.handshake_seconds to go.
            refusal = control(Kind.REFUSED, {"reason": "kicked", "text": shortened(reason)})
            router.actions.append(Answer(each.route, refusal))
        router.links.end(now, each, reason)
    return {"links": len(links)}


def _caller(router: Router, now: float, link: Link, body: Mapping[str, Any]) -> dict[str, Any]:
    """Who has sent the message ``key`` (hexadecimal), which the asking process has: for its log."""
    try:
        key = bytes.fromhex(_text(body, "key"))
    except ValueError:
        raise ProtocolError(f"key {body['key']!r:.100} is not hexadecimal", "query") from None
    has_it = any(key in consumer.in_flight for consumer in link.consumers.values())
    sender = router.links.by_origin(key[ORIGIN_OF_KEY]) if has_it else None
    return {"identity": sender.identity if sender is not None else ""}


#: What needs no right: it tells a process of messages that it has only.
FREE = frozenset({"caller"})
CONTROLS: dict[str, Control] = {"control.purge": _purge, "control.kick": _kick, "caller": _caller}
