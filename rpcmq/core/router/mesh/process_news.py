"""The routers of the mesh, as processes are told: in WELCOME, and with ROUTERS whenever they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from rpcmq.config.values import is_connect_url
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.member_table import MemberTable
from rpcmq.core.router.mesh.neighbours import Identity
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import as_identity
from rpcmq.core.router.model import Link
from rpcmq.wire.json_body import json_bytes
from rpcmq.wire.mesh_bodies import RoutersBody

__all__ = ["ProcessNews"]

#: Seconds in which changes are gathered, and processes that are told at once.
_GATHER, _TOLD_AT_ONCE = 0.01, 500
#: Processes are told anew after this time (seconds) for each router, and so many bytes of the last time a second:
#: routers may tell of others, and that these are gone, without end.
_REST_PER_ROUTER, _BYTES_PER_SECOND = 1e-3, 10 << 20
#: Most bytes of what processes are told, about: a WELCOME of more than 1 MiB would be refused.
_MOST_BYTES = 256 * 1024


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
        self._due, self._rested_at = inf, 0.0
        self._is_changed = False
        self._untold: list[Link] = []
        self._message = b""
        #: The last that processes were sent.
        self._told: Mapping[str, Any] = {}
        #: Also while there is no other router: processes may come from the one that was there, or from the former
        #: life of this one, whose queue server goes on.
        settings = context.node.settings
        self._adopts = bool(settings.queue_dir)
        if settings.mesh_peers or settings.mesh_peer or settings.queue_dir:
            self.changed(context.node.now)

    def changed(self, now: float) -> None:
        """The routers may be others than they were."""
        if not self._links.mesh:
            # At once: a process that is welcome meanwhile would use each of its routers on its own.
            self._links.mesh = self.routers().encode()
        self._is_changed = True
        self._due = min(self._due, max(now + _GATHER, self._rested_at))
        self._alarm.by(self._due)

    def routers(self, go_to: str = "") -> RoutersBody:
        """Return what a process is told, with the url of the router that it is asked to go on at; empty: of none."""
        known = _in_bounds(self._identities(), self._context.own.id)
        self._adopts = self._adopts or len(known) > 1
        return RoutersBody(
            mesh=self._context.own.mesh,
            routers=tuple((each.name, tuple(each.urls)) for each in known),
            keys={url: each.key for each in known if each.key for url in each.urls},
            adopts=self._adopts,
            go_to=go_to,
        )

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._due

    def tick(self, now: float) -> None:
        """Tell what is new, to some processes at a time."""
        if now < self._due:
            return
        self._due = inf
        if self._is_changed and now >= self._rested_at:
            self._is_changed = False
            self._renew(now)
        some = self._untold[-_TOLD_AT_ONCE:]
        del self._untold[-_TOLD_AT_ONCE:]
        for link in some:
            if link.state is not LinkState.ENDED:
                link.send(self._message)
        if self._untold:
            self._due = now + _GATHER
        elif self._is_changed:
            self._due = self._rested_at

    def _renew(self, now: float) -> None:
        """Find out whether there is anything new to tell."""
        self._rested_at = now + _REST_PER_ROUTER * len(self._table)
        told = self.routers().encode()
        if told != self._told:
            self._told = self._links.mesh = told
            self._message = self.routers().message()
            self._untold = [link for link in self._links if link.follows_mesh]
            self._rested_at += len(self._message) * len(self._untold) / _BYTES_PER_SECOND

    def _identities(self) -> dict[int, Identity]:
        """Return the routers that a process may go on at, by their ids."""
        context = self._context
        own, neighbours = context.own, context.neighbours
        found = {own.id: own}
        if context.targets.closed == "left":
            return found
        # A limited router is of another region: processes stay with the routers of their own.
        unlimited = {id: each for id, each in neighbours.by_id.items() if each.link not in context.limits}
        for id, neighbour in unlimited.items():
            if not neighbour.is_draining:
                found[id] = replace(neighbour.identity, name=neighbour.name)
        for id in sorted(self._table.reachable(unlimited, own.id) - neighbours.by_id.keys()):
            member = self._table.get(id)
            if member is not None and not member.said.left and self._links.access.knows_router(member.said.key):
                found[id] = as_identity(member.said)
        return found


def _in_bounds(found: Mapping[int, Identity], own: int) -> list[Identity]:
    """Return as many of ``found`` as fit into one message, from the first on, with the urls that can be dialled."""
    known: dict[int, Identity] = {}
    size_bytes = 0
    for id, identity in found.items():
        urls = tuple(identity.urls) if id == own else tuple(filter(is_connect_url, identity.urls))
        size_bytes += len(json_bytes({"name": identity.name, "urls": urls, "keys": (identity.key,) * len(urls)}))
        if size_bytes > _MOST_BYTES:
            break
        known[id] = replace(identity, urls=urls)
    return [known[id] for id in sorted(known)]
