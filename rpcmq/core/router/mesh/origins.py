"""Forged origins: a neighbour may bring messages of any process but those that are here.

The first part of a message's key says at which router its process was first, and which process it is. A process that
has gone on at another router keeps it, so a neighbour may well bring messages with this router's own id in their keys.
"""

from __future__ import annotations

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.settings import Settings
from rpcmq.wire import ORIGIN
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["is_forged"]

#: The share of ``mesh.lost_seconds`` in which a process of a mesh that is here was heard: it says something twice.
_HEARD_SHARE = 0.5


def is_forged(now: float, links: LinkTable, settings: Settings, message: bytes) -> bool:
    """Return whether ``message`` of another router has the origin of a process that is linked here.

    A process that has gone on elsewhere may seem to be connected for a while: it was not heard for longer than
    processes that are here ever are. One that does not go on elsewhere is here while it is connected. One that has come
    from elsewhere may have left messages there: were they sent back, they would come again at once, without end.
    """
    link = links.by_origin(message[ORIGIN])
    if link is None or not link.is_responsive or link.queue_type == MESH_TYPE or link.moves:
        return False
    return not link.follows_mesh or now - link.heard < settings.mesh_lost_seconds * _HEARD_SHARE
