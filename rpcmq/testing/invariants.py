"""Invariants of a router engine, and the check that nothing is left behind when everyone has gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from rpcmq.core.common.timing_wheel import DeadlineWheel
from rpcmq.core.router.mesh.adoption import Adoption
from rpcmq.core.router.model import Request
from rpcmq.core.router.router import Router
from rpcmq.core.router.usage import MESSAGE_OVERHEAD, SharedUsage, Usage
from rpcmq.wire import Flag, size_of

__all__ = ["check_hedges", "check_router", "left_behind"]

#: Tables of fixed content, and bounded ones that outlive their subjects by design.
_FIXED = {
    "handlers", "kinds", "process_kinds", "answered", "refusals", "controls", "greeters", "table", "views",
    "drops", "_drops", "journal", "_context", "on_changed", "checks", "on_member",
    "_deadlines", "held_elsewhere",
}  # fmt: skip


def check_router(router: Router) -> None:
    """Assert the invariants that hold at any time. Scans every table.

    Raises:
        AssertionError: something does not.
    """
    assert "internal error" not in router.refused
    router.dispatch.check()
    _check_usage(router)
    links = router.links
    assert all(link.route == route for route, link in links.routes.items())
    assert sum(link.route is not None for link in links) == len(links.routes)
    assert len({link.origin for link in links}) == len(links), "two links of one origin"
    seen: set[int] = set()
    for topic in router.directory:
        consumers = list(topic.consumers)
        queues = [topic.queue, *(s.queue for s in topic.servers.values()), *(c.backlog for c in consumers)]
        for queue in queues:
            assert queue.size_bytes == sum(p.size for p in queue), "a queue's books are wrong"
            for request in queue:
                assert request.queue is queue and request.delivery is None
                assert request.slot is not None, "waits without a limit"
        waiting = [id(p) for queue in queues for p in queue]
        running = [id(d) for c in consumers for d in c.in_flight.values()]
        assert len(set(waiting + running)) == len(waiting + running), "in two places"
        assert seen.isdisjoint(waiting + running), "in two places"
        seen.update(waiting + running)
        for server in topic.servers.values():
            assert all(c.server == server.name and c in topic.consumers for c in server.consumers)


def check_hedges(router: Router) -> None:
    """Assert that only what may run twice has several consumers, no process twice, and all within the budget.

    Raises:
        AssertionError: something does not hold.
    """
    for request in router.dispatch.unsettled():
        had = [delivery.consumer.link.identity for delivery in request.deliveries()]
        if len(had) > 1:
            hedge = request.hedged
            assert hedge is not None and request.flags & Flag.IDEMPOTENT, "several have what must not run twice"
            assert len(set(had)) == len(had), "a process has a call twice"
    for destination in router.directory.destinations.values():
        hedges = destination.statistics.hedges
        if hedges is not None:
            assert hedges.tokens >= 0 and hedges.deliveries >= 0, "more deliveries than the budget allows"


def _check_usage(router: Router) -> None:
    """Assert that each link is charged exactly for its messages that have not ended."""
    charged: Counter[Usage] = Counter()
    shared: dict[SharedUsage, int] = {}
    requests = {id(p): p for p in (*router.dispatch.unsettled(), *_asked_for(router))}
    for request in requests.values():
        if isinstance(request.usage, SharedUsage):
            shared[request.usage] = shared.get(request.usage, 0) + request.charge
        else:
            charged[request.usage] += request.charge
    for usage, copies in shared.items():
        assert usage.size_bytes == copies
        charged[usage.of] += usage.charged
    for link in router.links:
        held = sum(size_of(message) + MESSAGE_OVERHEAD for message in link.held)
        assert link.usage.size_bytes == charged[link.usage] + held, "what is charged to a link is wrong"


def left_behind(router: Router) -> dict[str, Any]:
    """Path -> content of each table in ``router`` that is not empty. Counters may stay."""
    return dict(_walk("router", router, set()))


def _asked_for(router: Router) -> Iterator[Request]:
    for part in router.mesh.parts:
        if isinstance(part, Adoption):
            yield from part.waiting


def _walk(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, DeadlineWheel):
        # It may keep empty slots for a while.
        if len(value):
            yield path, len(value)
    elif isinstance(value, Counter | str | bytes):
        return
    elif path in ("router.nodes", "router.mesh.parts"):
        for node in value:
            yield from _walk(f"{path.rpartition('.')[0]}.{type(node).__name__.lower()}", node, seen)
    elif isinstance(value, Collection) and type(value).__module__ in ("builtins", "collections"):
        if value:
            yield path, value
    elif type(value).__module__.startswith("rpcmq.core") and not callable(value):
        for name in _attributes(value):
            if name not in _FIXED:
                yield from _walk(f"{path}.{name}", getattr(value, name, None), seen)


def _attributes(value: Any) -> list[str]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return slots + list(getattr(value, "__dict__", ()))
