"""What a router still has in its tables, found by looking at everything, so that no table is forgotten."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from rpcmq.core.links import Link
from rpcmq.core.router import Router
from rpcmq.core.topics import Consumer, Pending, Server, Topic
from rpcmq.core.wheel import DeadlineWheel

#: Tables of fixed content.
_FIXED = {"_handlers"}


def left_behind(router: Router) -> dict[str, Any]:
    """Path -> content of each table in ``router`` that is not empty. Counters may stay."""
    return dict(_walk("router", router, set()))


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


def alive() -> Counter[str]:
    """How many objects there are of what a router makes for its peers. Takes some 50 ms."""
    gc.collect()
    classes = (Link, Consumer, Pending, Topic, Server)
    return Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, classes))
