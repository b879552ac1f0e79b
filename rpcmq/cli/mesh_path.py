"""The way of messages from one router to another, as far as the routers tell of their connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpcmq.cli.mesh_links import LINKED

__all__ = ["path_to"]


def path_to(view: Mapping[str, Any], end: int) -> list[int]:
    """The ids of the routers on the way from that of ``view`` to the router ``end``, both included.

    A router tells of those that it is connected to directly. Messages to others go over these: the shortest way over
    connections that both ends tell of, and of two the one over the router with the lower id, as routers choose it.

    Args:
        view: the view ``mesh`` of the first router, which has a link to ``end``.
    """
    begin = view["router_id"]
    rows = {row["id"]: row for row in view["routers"] if row["name"]}
    told = {id: set(row.get("neighbours", ())) for id, row in rows.items()}
    told[begin] = {id for id, row in rows.items() if row["state"] == LINKED and begin in told[id]}
    ways = {begin: [begin]}
    waiting = [begin]
    for id in waiting:
        for other in sorted(told[id]):
            if other not in ways and id in told.get(other, ()):
                ways[other] = [*ways[id], other]
                waiting.append(other)
    # A connection that has just been made has not been told of yet.
    return ways.get(end, [begin, end])
