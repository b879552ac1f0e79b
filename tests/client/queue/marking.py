"""Works at an item in a process of its own: ``python -m tests.client.queue.marking KIND WHERE MOMENT``.

It stops before its commit or after it, says so, and waits to be killed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import rpcmq
from rpcmq.client.queue.items import Item
from rpcmq.client.queue.protocol import WorkOrder
from tests.client.queue.conftest import connecting

__all__ = ["item", "work"]


def item(id: str = "invoice-17", remaining: float = 30.0, owner: str = "a") -> Item:
    """An item that was given to a worker, whose lease ends in so many seconds."""
    order = WorkOrder("billing", owner, id, 1, (1, 1), 0.0, 30.0, "charge", 1, b"", False, False)
    return Item(order, lambda: remaining)


def work(connection: Any, of: Item, then: Callable[[], object] = lambda: None) -> bool:
    """Have the effect, and do ``then`` in the same block, once; return whether it was the first run."""
    with rpcmq.once(connection, of) as first:
        if first:
            connection.cursor().execute("INSERT INTO effects VALUES (1)")
            then()
    return first


def wait_to_be_killed() -> None:
    print("now", flush=True)
    signal.pause()


if __name__ == "__main__":
    kind, where, moment = sys.argv[1:]
    connection = connecting(kind, where)
    with rpcmq.once(connection, item()) as first:
        assert first
        connection.cursor().execute("INSERT INTO effects VALUES (1)")
        if moment == "before":
            wait_to_be_killed()
    wait_to_be_killed()
