"""A consumer at each of several routers: its registrations stand and fall one by one, its workers are shared.

If the routers are a mesh, as is known when the first one welcomes the process, there is one consumer, at one of them;
if they become one later, there is one from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from rpcmq.client.consumer import UNREGISTER_SECONDS, Consumer
from rpcmq.client.joining import Joining
from rpcmq.client.process import Process
from rpcmq.client.prompt_consumer import PromptConsumer
from rpcmq.client.router_links import RouterLink
from rpcmq.client.shared_workers import SharedWorkers
from rpcmq.client.verbs import ClientVerbs
from rpcmq.core.process.task import Task
from rpcmq.errors import IdentityTaken, RouterUnreachable, RpcError, UsageError
from rpcmq.transport.connection import Connection
from rpcmq.transport.home import Home
from rpcmq.wire import Address

__all__ = ["AnyConsumer", "RouterConsumers", "new_consumer", "running_tasks"]

log = logging.getLogger("rpcmq.service")

C = TypeVar("C", bound=Consumer)

#: Least duration of an attempt to register, and pause before the next one (seconds).
_ATTEMPT, _PAUSE = 30.0, 2.0
_NOT_SERVED = "%s is not served at the router %s: %s; still trying"


def new_consumer(
    client: ClientVerbs,
    address: Address,
    invoke: Callable[[Task, dict[str, Any]], Any],
    *,
    concurrency: int = 64,
    group: str = "",
    direct: bool = False,
    beats: bool = True,
    sets_aside: bool = False,
    is_prompt: Callable[[], bool] | None = None,
) -> AnyConsumer:
    """Make a consumer over ``client``, at its router or at all of its routers. At home; as for :class:`Consumer`.

    Args:
        is_prompt: as for :class:`~rpcmq.client.prompt_consumer.PromptConsumer`, of a client in plain threads.

    Raises:
        UsageError: a wrong argument.
    """
    options: dict[str, Any] = {
        "concurrency": concurrency, "group": group, "direct": direct, "beats": beats, "sets_aside": sets_aside
    }  # fmt: skip
    make_one: Callable[..., Consumer] = Consumer
    if is_prompt is not None and client.process.posts:
        make_one = partial(PromptConsumer, is_prompt=is_prompt)
    if len(client.config.router) == 1:
        return make_one(client, address, invoke, **options)
    workers = SharedWorkers(client.shell, concurrency)
    make = partial(make_one, address=address, invoke=invoke, new_workers=workers.share, **options)
    return RouterConsumers(client, address, make, workers.close)


def running_tasks(consumer: Consumer | RouterConsumers[Any]) -> list[Task]:
    """The tasks that were delivered to ``consumer`` and have not ended; from any thread."""
    members = consumer.members if isinstance(consumer, RouterConsumers) else [consumer]
    return [
        task
        for member in members
        for registration in list(member.process.tasks.registrations.values())
        for task in list(registration.running.values())
        if member.has(task)
    ]


class RouterConsumers(Generic[C]):
    """A consumer at each router of ``client``. The methods are those of :class:`Consumer`.

    In a mesh it is one, at the router that the client uses.

    Each router may deliver as many requests as run at once. What exceeds that in all waits here, in the order in which
    it came.

    Args:
        make: makes a consumer over one link; what runs its tasks is shared by all.
        close: called when nothing runs any more.
    """

    def __init__(
        self, client: ClientVerbs, address: Address, make: Callable[[RouterLink], C], close: Callable[[], object]
    ) -> None:
        self._client = client
        self.shell = client.shell
        self.address = address
        self._make = make
        self._close = close
        self._started = False
        #: Consumers that were in use until the routers became a mesh.
        self._former: list[C] = []
        self._renew()

    def _renew(self) -> None:
        """Make consumers that were never started."""
        processes = self._client.consumer_links().processes()
        self._joining = self._new_joining([self._consumer_over(process) for process in processes])
        self._only_one = self._consumer_over(self._client.process)

    def _consumer_over(self, process: Process) -> tuple[C, Connection]:
        return self._make(RouterLink(self._client, process)), process.connection

    def _new_joining(self, consumers: Sequence[tuple[C, Connection]]) -> Joining[C]:
        return Joining(dict(consumers), self.shell.event())

    @property
    def members(self) -> list[C]:
        """The consumers, used or not. Others take their place after a :meth:`start` that has failed."""
        return list(dict.fromkeys((self._only_one[0], *self._used)))

    @property
    def _used(self) -> list[C]:
        return [*self._joining.members, *self._former]

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
        return all(consumer.unanswered for consumer in self._joining.members)

    def at(self, task: Task) -> Consumer:
        """The consumer that ``task`` was delivered to."""
        return next(consumer for consumer in self.members if consumer.has(task))

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
        deadline = monotonic() + timeout
        try:
            joining = self._chosen(timeout)
            for consumer in joining.members:
                self.shell.spawn(self._join, joining, consumer, timeout)
            joining.wait(timeout, deadline)
        except BaseException:
            self.take_back()
            raise
        for url, reason in joining.missing():
            log.error(_NOT_SERVED, self.address, url, reason)
        self._client.consumer_links().consumers.append(self._go_over)

    def _chosen(self, timeout: float) -> Joining[C]:
        """Choose between a consumer at each router, and one in a mesh.

        Raises:
            RpcError: no router is there, as :meth:`start` has it.
        """
        joining = self._joining
        connections = [joining.connection(consumer) for consumer in joining.members]
        in_mesh = self._client.consumer_links().follow_mesh(connections, timeout)
        if in_mesh and not joining.has_ended():
            self._joining = self._new_joining([self._only_one])
        return self._joining

    def _go_over(self) -> None:
        """The routers have become a mesh: consume at one of them, and then at the others no more."""
        former = self._joining
        if former.has_ended() or self._only_one[0] in former.members:
            return
        self._former = former.members
        self._joining = joining = self._new_joining([self._only_one])
        former.stop()
        self._join(joining, self._only_one[0], _ATTEMPT)
        if self._only_one[0].started:
            self.shell.run_together([partial(_retire, consumer) for consumer in self._former])

    def _stay(self) -> None:
        """Go over to a mesh no more."""
        going = self._client.consumer_links().consumers
        if self._go_over in going:
            going.remove(self._go_over)

    def take_back(self) -> None:
        """See :meth:`Consumer.take_back`."""
        self._joining.stop()
        self._stay()
        self.shell.run_together([partial(consumer.stop, 0.0) for consumer in self._used])
        self._former = []
        self._renew()
        self._started = False

    def _join(self, joining: Joining[C], consumer: C, timeout: float) -> None:
        """Register at one router, however long that takes."""
        connection = joining.connection(consumer)
        while not joining.has_ended():
            try:
                consumer.start(timeout)
            except (RpcError, TimeoutError) as error:
                if joining.has_ended() or connection.closed:
                    return
                if not isinstance(error, RouterUnreachable):
                    joining.mark_refused(consumer, error)
                    if not joining.is_waited_for:
                        log.error(_NOT_SERVED, self.address, connection.url, error)
                    if isinstance(error, IdentityTaken):
                        return
                self.shell.sleep(_PAUSE)
                timeout = max(timeout, _ATTEMPT)
            else:
                if joining.has_ended():
                    consumer.stop(0.0)
                elif not joining.is_waited_for:
                    log.warning("%s is served at the router %s now, too", self.address, connection.url)
                joining.mark_joined(consumer)
                return

    def leave(self, timeout: float = UNREGISTER_SECONDS) -> None:
        """See :meth:`Consumer.leave`."""
        self._joining.stop()
        self.shell.run_together([partial(consumer.leave, timeout) for consumer in self._used])

    def stop(self, timeout: float) -> bool:
        """See :meth:`Consumer.stop`."""
        self._joining.stop()
        self._stay()
        finished: list[bool] = []
        stops = [lambda consumer=consumer: finished.append(consumer.stop(timeout)) for consumer in self._used]
        self.shell.run_together(stops)
        has_finished = len(finished) == len(stops) and all(finished)
        if has_finished:
            self._close()
        return has_finished


def _retire(consumer: Consumer) -> None:
    """Let ``consumer`` finish what it runs, however long that takes, and take no more."""
    while not consumer.stop(_ATTEMPT):
        pass


#: A consumer at the router, or at each of the routers, of its client.
AnyConsumer = Consumer | RouterConsumers[Consumer]
