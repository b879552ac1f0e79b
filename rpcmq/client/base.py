"""A client without its verbs: its connection, the loop that it lives in, forks, and its end."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self
from weakref import finalize

from rpcmq.client.event_link import EventLink
from rpcmq.client.process import Process
from rpcmq.client.process_choice import process_in
from rpcmq.client.router_links import RouterLinks
from rpcmq.client.router_subscriptions import RouterSubscriptions
from rpcmq.client.sender import Sender
from rpcmq.client.shown_names import shown_as
from rpcmq.config import ClientConfig
from rpcmq.payload import Codec
from rpcmq.transport.home import Home, at_home
from rpcmq.transport.key_files import curve_for
from rpcmq.transport.originals import allocate_lock

__all__ = ["BaseClient"]


class _Links:
    """A client's links, and where they live."""

    def __init__(self, home: Home, process: Process) -> None:
        self.home = home
        self.shell = home.shell
        self.process = process
        self.sender = Sender(process)
        self.event_link: EventLink | None = None
        self.at_routers = RouterLinks(process, self.events)
        self._forget_at_thread_end = home.when_the_thread_ends(partial(self.close, 0.0))

    def events(self) -> EventLink:
        """The link for events, which is made when it is first needed; at home."""
        if self.event_link is None:
            process = self.process
            self.event_link = EventLink(process.config, process, curve_for(process.keys))
        return self.event_link

    def close(self, linger_seconds: float | None = None) -> None:
        """See :meth:`Client.close`; at home."""
        self._forget_at_thread_end()
        closers: list[Callable[[], object]] = [
            *self.at_routers.closers(linger_seconds),
            partial(self.process.close, linger_seconds),
        ]
        if self.event_link is not None:
            closers.insert(0, partial(self.event_link.close, linger_seconds))
        if len(closers) == 1:
            self.process.close(linger_seconds)
        elif not self.home.shell.can_wait:
            for close in closers:
                close()
        else:
            # All wait for their routers, and at the same time.
            self.home.shell.run_together(closers)

    def close_soon(self) -> None:
        """Close from the garbage collector, in any thread."""
        connection = self.process.connection
        if not connection.closed and not connection.abandoned and self.home.alive:
            self.home.post(self.close)


@shown_as("Client")
class BaseClient(ABC):
    """The connection of a client; its verbs are those of the classes that derive from it.

    Args:
        config: router, identity, limits and times.
        codec: encodes and decodes payloads.
    """

    def __init__(self, config: ClientConfig, codec: Codec) -> None:
        self.config = config
        self._codec = codec
        self._given_identity = config.identity
        self._opening = allocate_lock()
        #: Whether :meth:`close` was called: not where the end of the program has closed the connection.
        self.was_closed = False
        self._links = self._open()
        self.shell = self._links.home.shell

    @abstractmethod
    def _new_home(self) -> Home:
        """Choose where the client is to live. Called when it is made, and in a child that a fork has left it to."""

    def _open(self) -> _Links:
        home = self._new_home()
        return home.run(self._open_at, home)

    def _open_at(self, home: Home) -> _Links:
        links = _Links(home, process_in(home.shell, self.config, self._codec))
        finalize(self, links.close_soon).atexit = False
        return links

    def _reopened(self) -> _Links:
        """Open new links in a forked child, in place of its parent's."""
        if self._given_identity:
            self.config = replace(self.config, identity=f"{self._given_identity}/{os.getpid()}")
        links = self._open()
        # Nothing in here may wait: the greenlet that would run meanwhile is of the same thread.
        with self._opening:
            if self._links.process.connection.abandoned:
                self._links = links
                self.shell = links.home.shell
            return self._links

    def __repr__(self) -> str:
        # Of what there is: not even in the child of a fork does this connect.
        process = self._links.process
        state = ""
        if process.connection.abandoned:
            state = ", of the parent process"
        elif process.connection.closed:
            state = ", closed"
        return f"<{type(self).__name__} {process.identity!r} at {', '.join(self.config.router)}{state}>"

    @property
    def home(self) -> Home:
        """The home of this client."""
        links = self._links
        return links.home if not links.process.connection.abandoned else self._reopened().home

    @property
    def usable(self) -> bool:
        """Whether the thread of this client's loop is still alive."""
        return self.home.usable

    @property
    def process(self) -> Process:
        """The engines under this client, to be used in its home only. After a fork: new ones."""
        links = self._links
        return links.process if not links.process.connection.abandoned else self._reopened().process

    @property
    def sender(self) -> Sender:
        """The sender of the verbs, to be used in the client's home only. After a fork: a new one."""
        links = self._links
        return links.sender if not links.process.connection.abandoned else self._reopened().sender

    def event_link(self) -> EventLink:
        """The link for events, which is made when it is first needed; at home."""
        process, links = self.process, self._links
        process.connection.check_open()
        # Verbs that were used before come first.
        process.do_posted()
        return links.events()

    def subscriptions(self) -> EventLink | RouterSubscriptions:
        """The subscriptions of this process: over the link for events, or over one to each of several routers."""
        links = self.consumer_links()
        if len(self.config.router) == 1 or links.in_mesh:
            return self.event_link()
        self.process.connection.check_open()
        self.process.do_posted()
        subscriptions = links.subscriptions()
        in_mesh = links.follow_mesh(subscriptions.connections, self.config.connect_timeout)
        return self.event_link() if in_mesh else subscriptions

    def consumer_links(self) -> RouterLinks:
        """The links over which this process consumes at each of several routers; at home."""
        links = self._links
        return links.at_routers if not links.process.connection.abandoned else self._reopened().at_routers

    @property
    def identity(self) -> str:
        """The name under which the router knows this process."""
        return self.process.identity

    @property
    def at_risk(self) -> int:
        """Casts and events that the router may not have; of a client that was closed, those that may be lost."""
        links = self._links
        at_risk = links.process.connection.at_risk
        return at_risk if links.event_link is None else at_risk + links.event_link.connection.at_risk

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.process.connection.closed

    @at_home
    def connect(self, timeout: float | None = None) -> None:
        """Wait until the router has welcomed this process.

        Args:
            timeout: seconds; default: ``connect_timeout``.

        Raises:
            RouterUnreachable: it has not.
            IdentityTaken: another live process has this identity.
        """
        self.process.connection.wait_ready(self.config.connect_timeout if timeout is None else timeout)

    def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye. Calls in flight end with LinkLost; casts and events are handed to the router first.

        Args:
            linger_seconds: how long to wait at most until the router has them; default: the setting of that name,
                1 second. It is logged how many it has not, as far as it has said, because it is away or silent, or
                their queue is full.

        A client that was not closed is closed when the interpreter exits, and at the end of a ``multiprocessing``
        child. ``os._exit`` and a signal that is not handled skip that, so close before them.
        """
        self.was_closed = True
        links = self._links
        if not links.process.connection.abandoned and links.home.alive:
            links.home.end(links.close, linger_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
