"""Counts of the objects that a router makes for its peers, so that none is forgotten."""

from __future__ import annotations

import gc
from collections import Counter

from rpcmq.core.router.model import Consumer, Delivery, Link, Request, Server, Topic
from rpcmq.testing.invariants import left_behind

__all__ = ["alive", "left_behind"]


def alive() -> Counter[str]:
    """Count the objects that a router makes for its peers. Takes some 50 ms."""
    gc.collect()
    classes = (Link, Consumer, Request, Delivery, Topic, Server)
    return Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, classes))
