"""The subscriptions of a process at each of several routers: what is published at any of them reaches it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from rpcmq.client.event_link import EventLink
from rpcmq.client.event_subscription import BaseSubscription, SubscriptionOwner
from rpcmq.client.joining import Joining
from rpcmq.config import ClientConfig
from rpcmq.errors import RouterUnreachable, RpcError
from rpcmq.transport.connection import Connection
from rpcmq.transport.home import Housed
from rpcmq.transport.shell import ClientShell

__all__ = ["RouterSubscriptions"]

log = logging.getLogger("rpcmq.client")

S = TypeVar("S", bound=BaseSubscription)


class RouterSubscriptions:
    """Subscriptions that are registered at each of several routers.

    An event comes from the one router at which it was published. It comes again only if that one was killed before its
    publisher knew that it had it: the copy is marked, and recognised by its key.
    Routers of a mesh pass events on: there a subscription is over one link (:mod:`rpcmq.client.router_links`).

    Args:
        config: of the client.
        links: one to each router, over which nothing is published.
        shell: their loop.
    """

    def __init__(self, config: ClientConfig, links: Sequence[EventLink], shell: ClientShell) -> None:
        self._config = config
        #: The links in use: another one, once the routers have become a mesh.
        self._links = links
        self._made = links
        self._shell = shell
        self._joining: dict[BaseSubscription, Joining[EventLink]] = {}
        self._windows: dict[BaseSubscription, int] = {}

    @property
    def connections(self) -> list[Connection]:
        """The connections to the routers."""
        return [link.connection for link in self._made]

    def subscribe(
        self, client: Housed, pattern: str, new_subscription: Callable[[SubscriptionOwner, Housed, str], S], window: int
    ) -> S:
        """See :meth:`Client.subscribe`: returns when a router sends events, and the others do or have had a second.

        The others are asked when they are there.

        Args:
            new_subscription: makes it, from this, ``client`` and ``pattern``.

        Raises:
            UsageError: a wrong argument.
            RouterUnreachable: no router is there.
            IdentityTaken: another live process has this identity.
            CallError: no router takes it.
        """
        for link in self._links:
            link.check(pattern, window)
        subscription = new_subscription(self, client, pattern)
        joining = Joining({link: link.connection for link in self._links}, self._shell.event())
        self._joining[subscription], self._windows[subscription] = joining, window
        try:
            for link in self._links:
                self._shell.spawn(self._join, joining, link, subscription, window)
            joining.wait(self._config.connect_timeout)
        except BaseException:
            subscription.end()
            raise
        for url, reason in joining.missing():
            log.error("no events for %s come from the router %s: %s; still trying", pattern, url, reason)
        return subscription

    def _join(self, joining: Joining[EventLink], link: EventLink, subscription: BaseSubscription, window: int) -> None:
        try:
            link.connection.wait_ready(self._config.connect_timeout)
            if joining.has_ended():
                return
            link.add(subscription, window)
            link.confirm(subscription.pattern, window)
        except RouterUnreachable:
            if not joining.has_ended():
                link.add(subscription, window)
        except RpcError as error:
            joining.mark_refused(link, error)
        else:
            joining.mark_joined(link)

    def go_over(self, link: EventLink) -> None:
        """The routers have become a mesh: have ``link`` subscribe at one of them, and then the others no more."""
        former, self._links = self._links, [*self._links, link]
        link.share_recent(former[0])
        for subscription, window in list(self._windows.items()):
            self._joining[subscription].stop()
            link.add(subscription, window)
        try:
            link.connection.wait_ready(None)
            for subscription, window in list(self._windows.items()):
                link.confirm(subscription.pattern, window)
        except RpcError as error:
            log.error("no events come from the router %s: %s", link.connection.url, error)
        self._links = [link]
        for other in former:
            for subscription in list(self._windows):
                other.remove(subscription)

    def remove(self, subscription: BaseSubscription) -> None:
        """``subscription`` was closed."""
        self._joining.pop(subscription).stop()
        del self._windows[subscription]
        for link in self._links:
            link.remove(subscription)

    def closers(self, linger_seconds: float | None) -> list[Callable[[], None]]:
        """Functions that close the links, each as :meth:`EventLink.close` does."""
        return [partial(link.close, linger_seconds) for link in self._made]
