"""The plan by which processes are spread over the routers: computed by each router for itself, alike from equal counts.

The share of a router is the mean number of processes, rounded up. A router that has clearly more gives away all beyond
its share, and one that has less takes processes up to it. Givers and takers are gone through in the order of their ids,
so that two givers with the same counts fill different places.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["moves"]

#: A router with less than this much more than its share keeps it, in percent.
_TOLERATED_PERCENT = 10


def moves(counts: Mapping[int, int], own: int, most: int) -> list[int]:
    """Return the routers that processes of the router ``own`` are to move to, once for each process.

    Args:
        counts: of processes, by the id of their router; with that of ``own``.
        most: length of the list.
    """
    total = sum(counts.values())
    share = -(-total // len(counts))
    tolerated = max(share, total * (100 + _TOLERATED_PERCENT) // (100 * len(counts)))
    given = {id: count - share if count > tolerated else 0 for id, count in counts.items()}
    left = min(given[own], most)
    # The places that givers with lower ids fill.
    filled = sum(count for id, count in given.items() if id < own)
    found: list[int] = []
    for id in sorted(counts):
        if not left:
            break
        room = max(0, share - counts[id])
        taken = min(left, max(0, room - filled))
        filled = max(0, filled - room)
        left -= taken
        found += [id] * taken
    return found
