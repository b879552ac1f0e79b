"""An owner tells neighbours how many of its requests wait for room there (WANT)."""

from __future__ import annotations

from rpcmq.core.router.mesh.places import Place, address_of_place
from rpcmq.core.router.model import Delivery
from rpcmq.core.router.remotes import Remote
from rpcmq.wire import Kind, pack

__all__ = ["want", "want_more"]


def want_more(place: Place, remote: Remote[Delivery], more: int = 0) -> None:
    """Say how many requests wait for room at ``remote``, unless it knows, or may be offered any.

    Args:
        more: number of those that are not in the queue yet.
    """
    if remote.room is None:
        return
    waiting = len(place.queue) + more
    if waiting:
        if not remote.room and not remote.wanted:
            want(place, remote, waiting)
        return
    if remote.room or remote.wanted:
        want(place, remote, 0)  # room that is kept for us is of use to others
    # Whether its consumers are still busy with others' requests will show.
    remote.room = None


def want(place: Place, remote: Remote[Delivery], count: int) -> None:
    """Say that ``count`` requests wait for room at ``remote``."""
    remote.wanted = count
    address, tag = address_of_place(place)
    remote.link.send(pack(Kind.WANT, count.to_bytes(4), address=address.encode(), consumer=tag))
