"""The links of a client to its routers over which it consumes: one to each.

Where a client has several routers, its calls and what it publishes go to one of them at a time, over a link that moves
on when that router is gone (:mod:`rpcmq.core.process.router_choice`). What it consumes may be sent at any of them, so
that has links of its own, each of which stays with its router: they are made when the first consumer needs them, and
one that fails affects no other. So at the router that it also calls at, a process has two links under one identity; the
HELLO of those that only consume says so.

Where there is one router, all goes over one link. So it does in a mesh, whose routers pass on what they are sent:
whether they are one is known from the first that welcomes this process. If they become one later, what is consumed goes
over to the links that the process has in a mesh, and these links are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from rpcmq.client.event_link import EventLink
from rpcmq.client.mesh_probe import are_mesh, is_in_mesh
from rpcmq.client.process import Process
from rpcmq.client.router_subscriptions import RouterSubscriptions
from rpcmq.config import ClientConfig
from rpcmq.transport.connection import Connection
from rpcmq.transport.home import Home, Housed
from rpcmq.transport.key_files import curve_for
from rpcmq.transport.shell import ClientShell
from rpcmq.wire.bodies import CONSUMER_ROLE

__all__ = ["RouterLink", "RouterLinks", "ServingLink"]

log = logging.getLogger("rpcmq.client")


class ServingLink(Housed, Protocol):
    """A link over which something is consumed: that of a client, or one of its :class:`RouterLinks`."""

    @property
    def process(self) -> Process:
        """The engines of the link."""


class RouterLink:
    """A link to one router, on behalf of ``client``, which it keeps from being closed as garbage.

    Attributes:
        process: the engines of the link.
    """

    __slots__ = ("_client", "process", "shell")

    def __init__(self, client: Housed, process: Process) -> None:
        self._client = client
        self.process = process
        self.shell: ClientShell = client.shell

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._client.home


class RouterLinks:
    """The links over which a process consumes at each of its routers, made when they are first needed.

    Args:
        process: the link over which it calls.
        event_link: makes the link for events, if there is none.

    Attributes:
        consumers: functions by which consumers go over to the link over which the process calls, in a mesh.
    """

    def __init__(self, process: Process, event_link: Callable[[], EventLink]) -> None:
        self._caller = process
        self._event_link = event_link
        self.consumers: list[Callable[[], object]] = []
        self._processes: list[Process] = []
        self._subscriptions: RouterSubscriptions | None = None
        self._in_mesh: bool | None = None
        self._watched: list[Connection] = []

    @property
    def in_mesh(self) -> bool:
        """Whether it is known that the routers are a mesh: nothing is consumed over these links."""
        return bool(self._in_mesh)

    def follow_mesh(self, connections: Sequence[Connection], timeout: float) -> bool:
        """Return whether the routers are a mesh: the caller's link, and that for events, are then used for everything.

        The routers that welcome this process first decide, until all that it is linked to are a mesh.

        Args:
            connections: to each router, over which to ask them.
            timeout: seconds to wait for a router.

        Raises:
            RpcError: no router is there, as :func:`rpcmq.client.mesh_probe.is_in_mesh` has it.
        """
        if self._in_mesh is None:
            uplink = self._caller.uplink
            known = uplink.router is not None
            found = uplink.moves.mesh is not None if known else is_in_mesh(connections, self._caller.shell, timeout)
            if self._in_mesh is None:  # nobody else has asked meanwhile
                self._in_mesh = found
                if found:
                    self._caller.shell.run_together(self._take_closers())
        if not self._in_mesh:
            # That of the caller, too: at a router outside the mesh of others it would have none of theirs.
            for connection in (*connections, self._caller.connection):
                if connection not in self._watched:
                    self._watched.append(connection)
                    connection.uplink.moves.on_change.append(self._mesh_changed)
            self._mesh_changed()
        return self._in_mesh

    def _mesh_changed(self) -> None:
        if not self._in_mesh and are_mesh(self._watched):
            self._in_mesh = True
            self._caller.shell.spawn(self._go_over)

    def _go_over(self) -> None:
        """Have all that is consumed over these links consumed over those of a mesh, and close these."""
        log.warning("the routers %s are a mesh now: one of them is used", ", ".join(self._caller.config.router))
        if self._processes:
            self._caller.tasks.recent.replace([process.tasks.recent for process in self._processes])
        going: list[Callable[[], object]] = list(self.consumers)
        if self._subscriptions is not None:
            going.append(partial(self._subscriptions.go_over, self._event_link()))
        if going:
            self._caller.shell.run_together(going)
        self._caller.shell.run_together(self._take_closers())

    def _take_closers(self) -> list[Callable[[], None]]:
        closers = self.closers(0.0)
        self._processes, self._subscriptions = [], None
        return closers

    def processes(self) -> Sequence[Process]:
        """The engines of the links: one for each router, in the order of the setting."""
        if not self._processes:
            caller = self._caller
            self._processes = made = [
                Process(one, caller.codec, caller.shell, CONSUMER_ROLE, caller.payloads) for one in self.configs()
            ]
            for process in made:
                process.tasks.recent.share(made[0].tasks.recent)
        return self._processes

    @property
    def serves(self) -> bool:
        """Whether there are registrations, or tasks run."""
        return any(process.tasks.registrations for process in self._processes)

    def configs(self) -> list[ClientConfig]:
        """The configuration of the process, for each of its routers alone."""
        caller = self._caller
        return [replace(caller.config, router=(url,), identity=caller.identity) for url in caller.config.router]

    def subscriptions(self) -> RouterSubscriptions:
        """The subscriptions, over links of the other queue type, one for each router as well."""
        if self._subscriptions is None:
            caller = self._caller
            links = [EventLink(one, caller, curve_for(caller.keys), CONSUMER_ROLE) for one in self.configs()]
            for link in links[1:]:
                link.share_recent(links[0])
            self._subscriptions = RouterSubscriptions(caller.config, links, caller.shell)
        return self._subscriptions

    def closers(self, linger_seconds: float | None) -> list[Callable[[], None]]:
        """Functions that close the links, each as :meth:`Process.close` does."""
        made: list[Callable[[], None]] = [partial(process.close, linger_seconds) for process in self._processes]
        return made if self._subscriptions is None else [*self._subscriptions.closers(linger_seconds), *made]
