"""The queue servers of the routers of a mesh, whether they run or not: whoever calls one in vain is told of them.

A router says in MEMBERS how its own queue server is. So who puts an item knows at once that there is none, or that one
starts, or why it cannot, without a right to any view.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.model import Destination
from rpcmq.wire.mesh_bodies import MAX_QUEUE_SERVER

__all__ = ["QueueServers"]

#: The exchanges that queue servers serve.
_EXCHANGES = ("rpcmq.queue", "rpcmq.queue.admin")
#: Routers that an error tells of.
_TOLD = 16
#: The state of a queue server that cannot work as things are: such routers are told of last.
_UNAVAILABLE = "unavailable"


class QueueServers:
    """Knows the state of the queue server of each router: a word, and after ``": "`` the reason, if there is one."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        context.roundrobin.requests.about_absent = self._about

    def tell(self, now: float, state: str) -> None:
        """Tell all routers how the queue server of this one is; empty: it has none."""
        text = "".join(each if each.isprintable() else " " for each in state)[:MAX_QUEUE_SERVER]
        if text != self._context.own.queue_server:
            self._context.own.queue_server = text
            self._context.own_changed(now)

    def states(self) -> dict[str, str]:
        """The state of the queue server of each router that has one, by the name of the router; this one first."""
        own, members = self._context.own, (member.said for member in self._context.members)
        told = {own.name: own.queue_server} | {said.name: said.queue_server for said in members if not said.left}
        return {name: state for name, state in told.items() if state}

    @property
    def are_all_known(self) -> bool:
        """Whether there is no other router with a queue server: each that is known of is linked, and has told."""
        linked, members = self._context.neighbours.by_id, self._context.members
        has_told = all(members.get(id) is not None for id in linked)
        return has_told and all(target.id in linked for target in self._context.targets)

    def _about(self, destination: Destination) -> dict[str, Any]:
        """Return what an error says of the absence of a consumer."""
        if destination.topic.address.exchange not in _EXCHANGES:
            return {}
        states = self.states()
        hopeful_first = sorted(states, key=lambda name: states[name].startswith(_UNAVAILABLE))
        told = {name: states[name] for name in islice(hopeful_first, _TOLD)}
        # One that was there comes back.
        is_all = self.are_all_known and not destination.registered and len(told) == len(states)
        return {"queue_servers": told, "queue_servers_all": is_all}
