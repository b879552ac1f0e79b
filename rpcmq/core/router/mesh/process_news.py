"""The routers of the mesh, as processes are told: in WELCOME, and with ROUTERS whenever they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.member_table import MemberTable
from rpcmq.core.router.mesh.neighbours import Identity
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import as_identity
from rpcmq.core.router.model import Link
from rpcmq.wire.mesh_bodies import RoutersBody

__all__ = ["ProcessNews"]

#: Seconds in which changes are gathered, and processes that are told at once.
_GATHER, _TOLD_AT_ONCE = 0.01, 500


class ProcessNews:
    """Tells the processes of this router which routers there are.

    Args:
        table: the routers that are not neighbours.
        alarm: set when there is something to tell.
    """

    def __init__(self, context: MeshContext, table: MemberTable, alarm: Alarm) -> None:
        self._alarm = alarm
        self._context = context
        self._table = table
        self._links = context.node.links
        self._due = inf
        self._untold: list[Link] = []
        self._message = b""
        #: The last that processes were sent.
        self._told: Mapping[str, Any] = {}
        #: Also while there is no other router: processes may come from the one that was there.
        self._adopts = False
        settings = context.node.settings
        if settings.mesh_peers or settings.mesh_peer:
            self.changed(context.node.now)

    def changed(self, now: float) -> None:
        """The routers may be others than they were."""
        if not self._links.mesh:
            # At once: a process that is welcome meanwhile would use each of its routers on its own.
            self._links.mesh = self._routers().encode()
        self._due = min(self._due, now + _GATHER)
        self._alarm.by(self._due)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._due

    def tick(self, now: float) -> None:
        """Tell what is new, to some processes at a time."""
        if now < self._due:
            return
        self._due = inf
        told = self._routers().encode()
        if told != self._told:
            self._told = self._links.mesh = told
            self._message = self._routers().message()
            self._untold = [link for link in self._links if link.follows_mesh]
        some = self._untold[-_TOLD_AT_ONCE:]
        del self._untold[-_TOLD_AT_ONCE:]
        for link in some:
            if link.state is not LinkState.ENDED:
                link.send(self._message)
        if self._untold:
            self._due = now + _GATHER

    def _routers(self) -> RoutersBody:
        known = [identity for _, identity in sorted(self._identities().items())]
        self._adopts = self._adopts or len(known) > 1
        return RoutersBody(
            mesh=self._context.own.mesh,
            routers=tuple((each.name, tuple(each.urls)) for each in known),
            keys={url: each.key for each in known if each.key for url in each.urls},
            adopts=self._adopts,
        )

    def _identities(self) -> dict[int, Identity]:
        """Return the routers that a process may go on at, by their ids."""
        context = self._context
        own, neighbours = context.own, context.neighbours
        found = {own.id: own}
        if context.targets.closed == "left":
            return found
        for id in self._table.reachable(neighbours.by_id, own.id):
            neighbour, member = neighbours.by_id.get(id), self._table.get(id)
            if neighbour is not None and not neighbour.is_draining:
                found[id] = replace(neighbour.identity, name=neighbour.name)
            elif neighbour is None and member is not None and not member.said.left:
                found[id] = as_identity(member.said)
        return found
