"""The state of a whole router as plain data: what ``rpcmq ls``, ``rpcmq top`` and the HTTP view show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Protocol

from rpcmq.core.common.session import illegal_of_links
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.memory import Memory
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeType
from rpcmq.core.router.permissions import usage_row
from rpcmq.core.router.pubsub.node import PubSub
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.core.router.roundrobin.stuck import count_stuck
from rpcmq.core.router.roundrobin.views import named_outcomes
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.steps import Steps, finish
from rpcmq.core.router.view_rows import MAX_ROWS, SMALL, View, made
from rpcmq.errors import ProtocolError
from rpcmq.payload.format import accept_names

__all__ = ["overview", "view", "views_of"]


class RouterState(Protocol):
    """The state of a router that views show."""

    settings: Settings
    boot: int
    started: float
    links: LinkTable
    directory: Directory
    memory: Memory
    refused: Counter[str]
    warnings: list[str]
    nodes: list[NodeType]
    views: dict[str, Callable[[float], View]]

    @property
    def roundrobin(self) -> RoundRobin:
        """The node type of calls and casts."""

    @property
    def dispatch(self) -> Dispatch:
        """Tracks the calls and casts."""

    @property
    def pubsub(self) -> PubSub:
        """The node type of events."""


def view(router: RouterState, now: float, what: str) -> View:
    """The steps that make the view named ``what``.

    Raises:
        ProtocolError: there is no such view.
    """
    make = router.views.get(what)
    if make is None:
        raise ProtocolError(f"view {what!r} is unknown; known: {', '.join(router.views)}", "query")
    return make(now)


def overview(router: RouterState, now: float, what: str) -> dict[str, Any]:
    """The view named ``what``, made in one go.

    Raises:
        ProtocolError: there is no such view.
    """
    return finish(view(router, now, what))


def views_of(router: RouterState) -> dict[str, Callable[[float], View]]:
    """All views of ``router``: its own, and those of its node types."""
    own: Mapping[str, Callable[[RouterState, float], View]] = {
        "overview": _everything,
        "summary": _summary,
        "processes": _processes,
        "stats": _stats,
        "keys": _keys,
    }
    views: dict[str, Callable[[float], View]] = {name: partial(make, router) for name, make in own.items()}
    for node in router.nodes:
        views |= node.views
    return views


def _summary(router: RouterState, now: float) -> View:
    stuck = yield from count_stuck(router.directory, now)
    security = yield from _security(router)
    settings, dispatch, log = router.settings, router.dispatch, router.roundrobin.log
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
        "counters": _counters(router),
        "warnings": list(router.warnings),
        "security": security,
        "dispatch_log": log.sink.statistics() if log is not None else None,
    }


def _memory(router: RouterState) -> dict[str, int]:
    memory = router.memory
    return {
        "held_bytes": memory.held_bytes,
        "outgoing_bytes": memory.outgoing_bytes,
        "max_bytes": router.settings.router_max_bytes,
        "overdrawn_links": memory.overdrawn,
    }


def _security(router: RouterState) -> Steps[dict[str, Any] | None]:
    """None without CURVE."""
    usages = router.links.access.usages()
    if usages is None:
        return None
    refused: Counter[str] = Counter()
    for number, usage in enumerate(usages, 1):
        refused.update(usage.refused)
        if not number % SMALL:
            yield
    return {"keys": len(usages), "refused": dict(refused)}


def _keys(router: RouterState, now: float) -> View:
    usages = router.links.access.usages() or []
    return made("keys", (usage_row(usage, now) for usage in usages[:MAX_ROWS]), len(usages))


def _stats(router: RouterState, now: float) -> View:
    """Totals since the start: they never decrease, whatever becomes of their topics."""
    totals = yield from router.directory.statistics.totals()
    return {
        "uptime_seconds": round(now - router.started, 3),
        **totals,
        "outcomes": named_outcomes(totals["outcomes"]),
        "dropped": router.dispatch.requests.drops.totals,
        "published": dict(router.pubsub.published),
        "refused": dict(router.refused),
        "counters": _counters(router),
    }


def _counters(router: RouterState) -> dict[str, int]:
    links = router.links
    counters = dict(router.dispatch.requests.counters + links.counters)
    # Defects of this program: none is expected.
    for text, count in (links.illegal.counts + illegal_of_links.counts).items():
        counters[f"illegal event: {text}"] = count
    return counters


def _processes(router: RouterState, now: float) -> View:
    links = list(islice(router.links, MAX_ROWS))
    return made("processes", (_process(link, now) for link in links), len(router.links))


def _process(link: Link, now: float) -> dict[str, Any]:
    subscriber = link.window
    row: dict[str, Any] = {
        "identity": link.identity,
        "queue_type": link.queue_type,
        "role": link.role,
        "key": link.key.name if link.key is not None else None,
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
        row["patterns"] = [pattern.decode() for _, pattern in islice(link.patterns, MAX_ROWS)]
        row["queued"] = len(subscriber.queue)
        row["dropped"] = dict(subscriber.dropped)
        row["slow"] = bool(subscriber.queue)
    return row


def _everything(router: RouterState, now: float) -> View:
    summary = yield from _summary(router, now)
    processes = yield from _processes(router, now)
    topics = yield from router.views["topics"](now)
    return summary | processes | topics
