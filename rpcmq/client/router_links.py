"""The links of a client to its routers over which it consumes: one to each.

Where a client has several routers, its calls and what it publishes go to one of them at a time, over a link that moves
on when that router is gone (:mod:`rpcmq.core.process.router_choice`). What it consumes may be sent at any of them, so
that has links of its own, each of which stays with its router: they are made when the first consumer needs them, and
one that fails affects no other. So at the router that it also calls at, a process has two links under one identity; the
HELLO of those that only consume says so.

Where there is one router, all goes over one link. So it does with linked routers, which pass on what they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from rpcmq.client.event_link import EventLink
from rpcmq.client.process import Process
from rpcmq.client.router_subscriptions import RouterSubscriptions
from rpcmq.config import ClientConfig
from rpcmq.transport.home import Home, Housed
from rpcmq.transport.key_files import curve_for
from rpcmq.transport.shell import ClientShell
from rpcmq.wire.bodies import CONSUMER_ROLE

__all__ = ["RouterLink", "RouterLinks", "ServingLink"]


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
    """

    def __init__(self, process: Process) -> None:
        self._caller = process
        self._processes: list[Process] = []
        self._subscriptions: RouterSubscriptions | None = None

    def processes(self) -> Sequence[Process]:
        """The engines of the links: one for each router, in the order of the setting."""
        if not self._processes:
            caller = self._caller
            self._processes = made = [
                Process(one, caller.codec, caller.shell, CONSUMER_ROLE, caller.payloads) for one in self.configs()
            ]
            for process in made:
                process.tasks.share_recent(made[0].tasks)
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
            for link in links:
                link.share_recent(links[0])
            self._subscriptions = RouterSubscriptions(caller.config, links, caller.shell)
        return self._subscriptions

    def closers(self, linger_seconds: float | None) -> list[Callable[[], None]]:
        """Functions that close the links, each as :meth:`Process.close` does."""
        made: list[Callable[[], None]] = [partial(process.close, linger_seconds) for process in self._processes]
        return made if self._subscriptions is None else [*self._subscriptions.closers(linger_seconds), *made]
