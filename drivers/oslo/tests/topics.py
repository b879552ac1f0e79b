"""Topics as a router's operator sees them."""

from __future__ import annotations

from typing import Any

from processes import Router

from rpcmq import threads

__all__ = ["occupied", "queued", "topic_of"]


def topic_of(router: Router, name: str) -> dict[str, Any]:
    """Return the row of the topic ``name``; an empty one while the router does not know it."""
    with threads.Client(f"tcp://{router.host}") as client:
        found = [row for row in client.query("topics")["topics"] if row["topic"] == name]
        return found[0] if found else {"queued": 0, "in_flight": 0, "consumers": []}


def queued(router: Router, name: str) -> int:
    """Return how many messages of the topic wait in the router."""
    return int(topic_of(router, name)["queued"])


def occupied(router: Router, name: str) -> list[int]:
    """Return how many casts each consumer of the topic runs, as far as the router has heard.

    A server says so a moment after it has begun them. The router gives what a server that is killed, stopped or cut
    off before that has begun to another one, too.
    """
    return [consumer["occupied"] for consumer in topic_of(router, name)["consumers"]]
