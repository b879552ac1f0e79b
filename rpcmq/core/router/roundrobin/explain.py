"""Explanations of where a message was when it ended, as text and as fields."""

from __future__ import annotations

from typing import Any

from rpcmq.core.router.model import Delivery, Destination, Request
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.wire import Flag

__all__ = [
    "Explanation",
    "consumer_lost",
    "departure",
    "drain_timed_out",
    "no_consumer",
    "overloaded",
    "timed_out",
]

Explanation = tuple[str, dict[str, Any]]


def ago(seconds: float) -> str:
    """Format a rough age, such as "5 min ago"."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name} ago"
    return f"{seconds / 86400:.0f} days ago"


def timed_out(now: float, request: Request) -> Explanation:
    """Explain a call's timeout."""
    destination, consumer = request.destination, request.consumer
    waited = (request.dispatched_at if consumer else now) - request.received_at
    details: dict[str, Any] = {
        "topic": destination.name,
        "method": destination.method,
        "queued_seconds": round(waited, 3),
        "attempt": request.attempts,
    }
    if consumer is None:
        elsewhere = sum(remote.consumers for remote in destination.remotes.values())
        details |= {"state": "queued", "consumers": len(destination.consumers) + elsewhere}
        if request.queue is not None and request.queue is not destination.queue:
            # In a mesh, after another router was lost that may have given it to somebody.
            text = f"waited {waited:.1f} s for consumers of {destination.name!r} to say whether they have it"
            return f"{text}; it may have run", details | {"state": "asked", "started": "unknown"}
        return f"queued {waited:.1f} s: {_queued_because(now, destination)}", details
    held = now - request.dispatched_at
    silent = now - consumer.link.heard
    details |= {"server": consumer.link.identity, "server_seconds": round(held, 3)}
    if consumer.link.is_responsive:
        details["state"] = "running"
        return f"with {consumer.link.identity} for {held:.1f} s, running", details
    details["state"] = consumer.link.state.value
    return f"{consumer.link.identity} stopped answering heartbeats {silent:.0f} s ago, had it for {held:.1f} s", details


def no_consumer(now: float, request: Request) -> tuple[Outcome, Explanation]:
    """The outcome of a mandatory message for which there is no consumer, or none any more, and its explanation.

    It says that the message never runs only where nobody can have it.
    """
    destination = request.destination
    text, details = _absence(now, destination), {"topic": destination.name, "method": destination.method}
    if request.attempts:
        text += "; the one that had it is lost, so it may have run"
    elif request.flags & Flag.RESENT:
        text += "; a router that it was sent to before may have given it to one, so it may have run"
    else:
        return Outcome.NO_CONSUMER, (text, details)
    return Outcome.LINK_LOST, (text, details | {"started": "unknown"})


def overloaded(destination: Destination, settings: Settings, is_behind: bool = False) -> Explanation:
    """Name the limit that was reached; ``is_behind``: by an earlier message of the same sender."""
    queue = destination.queue
    limit, most = "queue.max_bytes", settings.queue_max_bytes
    if len(queue) >= settings.queue_max_messages:
        limit, most = "queue.max_messages", settings.queue_max_messages
    text = f"{destination.name!r} is full: {len(queue)} messages, {queue.size_bytes} bytes wait; {limit} = {most}"
    details = {"topic": destination.name, "queued": len(queue), "queued_bytes": queue.size_bytes}
    if is_behind:
        return f"{text}; behind an earlier refused cast", details | {"limit": "behind a refused cast"}
    return text, details | {"limit": limit, "limit_value": most}


def departure(now: float, delivery: Delivery, reason: str, who: str = "") -> Explanation:
    """Say that the consumer that had the call has gone; ``who``: its name for people, if that is not its link's."""
    held = now - delivery.dispatched_at
    who = who or delivery.consumer.link.identity
    return f"{who} went away ({reason}) after {held:.1f} s with the call", _started(delivery, held)


def consumer_lost(now: float, delivery: Delivery, reason: str, who: str = "") -> Explanation:
    """Explain the loss of the consumer that had the call. ``who``: as of :func:`departure`."""
    text, details = departure(now, delivery, reason, who)
    return f"{text}; it may have run", details


def drain_timed_out(now: float, delivery: Delivery) -> Explanation:
    """Explain a call that a stopping router did not wait for any longer."""
    held = now - delivery.dispatched_at
    text = "the router stopped when its drain timed out (router.drain_seconds): "
    text += f"{delivery.consumer.link.identity} had it for {held:.1f} s; it may have run"
    return text, _started(delivery, held) | {"router": "shutting down"}


def _absence(now: float, destination: Destination) -> str:
    if not destination.registered:
        return f"no consumer on {destination.name!r} (never seen)"
    return f"no consumer on {destination.name!r} (last seen {ago(now - destination.last_seen)})"


def _queued_because(now: float, destination: Destination) -> str:
    consumers, remotes = destination.consumers, destination.remotes
    if remotes:
        return _busy_everywhere(destination)
    if not consumers:
        return _absence(now, destination)
    in_flight = sum(len(c.in_flight) + c.occupied for c in consumers)
    credit = sum(c.granted for c in consumers)
    if not any(c.link.is_responsive for c in consumers):
        latest = max((c.link for c in consumers), key=lambda link: link.heard)
        silence = f"silent for {now - latest.heard:.0f} s: {latest.identity}"
        return f"no consumer on {destination.name!r} answers ({silence})"
    return f"all {len(consumers)} consumers of {destination.name!r} are busy ({in_flight} of {credit} in flight)"


def _busy_everywhere(destination: Destination) -> str:
    """Name the routers at which the consumers are, some of them elsewhere."""
    places = [f"{len(destination.consumers)} here"] if destination.consumers else []
    count = len(destination.consumers)
    for remote in destination.remotes.values():
        count += remote.consumers
        silence = "" if remote.link.is_responsive else ", which does not answer"
        places.append(f"{remote.consumers} at {remote.link.identity}{silence}")
    who = f"all {count} consumers" if count > 1 else "the consumer"
    return f"{who} of {destination.name!r} {'are' if count > 1 else 'is'} busy ({', '.join(places)})"


def _started(delivery: Delivery, held: float) -> dict[str, Any]:
    destination = delivery.request.destination
    return {
        "topic": destination.name,
        "method": destination.method,
        "server": delivery.consumer.link.identity,
        "server_seconds": round(held, 3),
        "started": "unknown",
    }
