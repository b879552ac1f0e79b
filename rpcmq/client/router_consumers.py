"""A consumer at each of several routers: its registrations stand and fall one by one, its workers are shared."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from rpcmq.client.consumer import UNREGISTER_SECONDS, Consumer
from rpcmq.client.router_links import RouterLink
from rpcmq.client.shared_workers import SharedWorkers
from rpcmq.client.verbs import ClientVerbs
from rpcmq.core.process.task import Task
from rpcmq.errors import IdentityTaken, RouterUnreachable, RpcError, UsageError
from rpcmq.transport.home import Home
from rpcmq.transport.shell import WaitableEvent
from rpcmq.wire import Address

__all__ = ["AnyConsumer", "RouterConsumers", "new_consumer"]

log = logging.getLogger("rpcmq.service")

#: Seconds that start() waits for the other routers once one has the registration.
_OTHERS = 1.0
#: Least duration of an attempt to register, and pause before the next one (seconds).
_ATTEMPT, _PAUSE = 30.0, 2.0


def new_consumer(
    client: ClientVerbs,
    address: Address,
    invoke: Callable[[Task, dict[str, Any]], Any],
    *,
    concurrency: int = 64,
    group: str = "",
    direct: bool = False,
) -> AnyConsumer:
    """Make a consumer over ``client``, at its router or at all of its routers. At home; as for :class:`Consumer`.

    Raises:
        UsageError: a wrong argument.
    """
    options: dict[str, Any] = {"concurrency": concurrency, "group": group, "direct": direct}
    if len(client.config.router) == 1:
        return Consumer(client, address, invoke, **options)
    return RouterConsumers(client, address, invoke, **options)


class RouterConsumers:
    """A consumer at each router of ``client``. The methods are those of :class:`Consumer`.

    Each router may deliver as many requests as run at once. What exceeds that in all waits here, in the order in which
    it came.
    """

    def __init__(
        self,
        client: ClientVerbs,
        address: Address,
        invoke: Callable[[Task, dict[str, Any]], Any],
        *,
        concurrency: int,
        group: str,
        direct: bool,
    ) -> None:
        self._client = client
        self.shell = client.shell
        self.address = address
        self._workers = workers = SharedWorkers(self.shell, concurrency)
        self._links = [RouterLink(client, process) for process in client.consumer_links().processes()]
        self._new_consumer = partial(
            Consumer, address=address, invoke=invoke, concurrency=concurrency, group=group, direct=direct,
            new_workers=workers.share,
        )  # fmt: skip
        self._joining = self._new_joining()
        self._started = False

    def _new_joining(self) -> _Joining:
        return _Joining([self._new_consumer(link) for link in self._links], self.shell.event())

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._client.home

    @property
    def started(self) -> bool:
        """Whether :meth:`start` was called, and has not failed."""
        return self._started

    @property
    def unanswered(self) -> bool:
        """Whether all routers have been silent since they were asked to deliver no more."""
        return all(consumer.unanswered for consumer in self._joining.consumers)

    def at(self, task: Task) -> Consumer:
        """The consumer that ``task`` was delivered to."""
        return next(consumer for consumer in self._joining.consumers if consumer.has(task))

    # --- lifecycle --------------------------------------------------------------------------------

    def start(self, timeout: float = 30.0) -> None:
        """Register at all routers; return when one of them delivers, and the others do or have had a second for it.

        Those that do not yet are asked again and again. It is logged that they do not, and when they do.

        Raises:
            RouterUnreachable: no router is there.
            IdentityTaken: another live process has this identity.
            CallError: no router takes the registration.
            UsageError: it was started already.
        """
        if self._started:
            raise UsageError(f"the consumer of {self.address} was started already")
        self._started = True
        joining = self._joining
        for link, consumer in zip(self._links, joining.consumers, strict=True):
            self.shell.spawn(self._join, joining, link, consumer, timeout)
        try:
            deadline = monotonic() + timeout
            joining.wait(lambda: bool(joining.joined) or joining.is_complete, deadline)
            joining.wait(lambda: joining.is_complete, min(deadline, monotonic() + _OTHERS))
            self._check(joining, timeout)
        except BaseException:
            joining.end()
            self.shell.run_together([partial(consumer.stop, 0.0) for consumer in joining.consumers])
            self._joining = self._new_joining()
            self._started = False
            raise
        joining.in_time = False

    def _check(self, joining: _Joining, timeout: float) -> None:
        """Raise unless there is a router that delivers; log which do not."""
        for error in joining.refused.values():
            if not joining.joined or isinstance(error, IdentityTaken):
                raise error
        reasons = {link.process.connection.url: link.process.connection.reason for link in self._links}
        if not joining.joined:
            text = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
            raise RouterUnreachable(f"no router reachable within {timeout:g} s: {text}")
        for link, consumer in zip(self._links, joining.consumers, strict=True):
            if consumer not in joining.joined:
                url = link.process.connection.url
                reason = joining.refused.get(consumer) or reasons[url]
                log.error("%s is not served at the router %s: %s; trying on", self.address, url, reason)

    def _join(self, joining: _Joining, link: RouterLink, consumer: Consumer, timeout: float) -> None:
        """Register at one router, however long that takes."""
        connection = link.process.connection
        while not joining.has_ended():
            try:
                consumer.start(timeout)
            except (RpcError, TimeoutError) as error:
                if joining.has_ended() or connection.closed:
                    return
                if not isinstance(error, RouterUnreachable):
                    joining.refuse(consumer, error)
                    if not joining.in_time:
                        text = "%s is not served at the router %s: %s; trying on"
                        log.error(text, self.address, connection.url, error)
                    if isinstance(error, IdentityTaken):
                        return
                self.shell.sleep(_PAUSE)
                timeout = max(timeout, _ATTEMPT)
            else:
                if joining.has_ended():
                    consumer.stop(0.0)
                elif not joining.in_time:
                    log.warning("%s is served at the router %s now, too", self.address, connection.url)
                joining.join(consumer)
                return

    def leave(self, timeout: float = UNREGISTER_SECONDS) -> None:
        """See :meth:`Consumer.leave`."""
        self._joining.end()
        self.shell.run_together([partial(consumer.leave, timeout) for consumer in self._joining.consumers])

    def stop(self, timeout: float) -> bool:
        """See :meth:`Consumer.stop`."""
        joining = self._joining
        joining.end()
        finished: list[bool] = []
        stops = [lambda consumer=consumer: finished.append(consumer.stop(timeout)) for consumer in joining.consumers]
        self.shell.run_together(stops)
        has_finished = len(finished) == len(stops) and all(finished)
        if has_finished:
            self._workers.close()
        return has_finished


class _Joining:
    """The consumers of one :meth:`RouterConsumers.start`, and how far they are.

    Attributes:
        joined: those that are registered.
        refused: why the routers of others have refused them, when they last asked.
        in_time: whether :meth:`RouterConsumers.start` waits for them still.
    """

    def __init__(self, consumers: list[Consumer], changed: WaitableEvent) -> None:
        self.consumers = consumers
        self._changed = changed
        self.joined: set[Consumer] = set()
        self.refused: dict[Consumer, Exception] = {}
        self.in_time = True
        self._ended = False

    def end(self) -> None:
        """No other is to be registered."""
        self._ended = True

    def has_ended(self) -> bool:
        """Whether no other is to be registered."""
        return self._ended

    @property
    def is_complete(self) -> bool:
        """Whether each router has taken or refused its registration."""
        return len(self.joined) + len(self.refused) == len(self.consumers)

    def join(self, consumer: Consumer) -> None:
        """``consumer`` is registered."""
        self.refused.pop(consumer, None)
        self.joined.add(consumer)
        self._changed.set()

    def refuse(self, consumer: Consumer, error: Exception) -> None:
        """The router of ``consumer`` has refused it with ``error``."""
        self.refused[consumer] = error
        self._changed.set()

    def wait(self, condition: Callable[[], bool], deadline: float) -> None:
        """Wait until ``condition`` holds, but no longer than to ``deadline`` (monotonic seconds)."""
        while not condition() and (left := deadline - monotonic()) > 0:
            self._changed.clear()
            self._changed.wait(left)


#: A consumer at the router, or at each of the routers, of its client.
AnyConsumer = Consumer | RouterConsumers
