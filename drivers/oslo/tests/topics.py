"""Topics as a router's operator sees them."""

from __future__ import annotations

from typing import Any

from processes import Router

from rpcmq import threads

__all__ = ["topic_of"]


def topic_of(router: Router, name: str) -> dict[str, Any]:
    """Return the row of the topic ``name``."""
    with threads.Client(f"tcp://{router.host}") as client:
        (row,) = [row for row in client.query("topics")["topics"] if row["topic"] == name]
        return row
