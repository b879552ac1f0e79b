"""The queue server: queues over one store, served to those who put, and given to those who work."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from secrets import token_hex
from socket import gethostname
from time import monotonic
from typing import Any, NamedTuple

import gevent
from gevent.event import Event

from rpcmq.client import Client, Service
from rpcmq.client.queue.protocol import CHANGE, CLAIMS, LOOK, OPERATORS, PERIODIC, QUEUES, SETTINGS, all_queues
from rpcmq.core.queue.queues import Queues
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.errors import RpcError, UsageError
from rpcmq.queue_server.claim import Claim, Claimed
from rpcmq.queue_server.clock import CLOCK, QueueClock
from rpcmq.queue_server.declarations import Declarations
from rpcmq.queue_server.dispatcher import Dispatcher
from rpcmq.queue_server.endpoints import AllQueues, OneQueue
from rpcmq.queue_server.fair_turns import Turns, caller_now
from rpcmq.queue_server.observer import Observer
from rpcmq.queue_server.operators import ChangeEndpoint, LookEndpoint
from rpcmq.queue_server.periodic import PeriodicItems
from rpcmq.queue_server.store_process import StoreProcess
from rpcmq.queue_server.untold_deaths import UntoldDeaths
from rpcmq.queue_server.watch import Watch
from rpcmq.server.log import log_event
from rpcmq.store.contract import Note, Recovered

__all__ = ["QueueServer"]

log = logging.getLogger("rpcmq.queue")

#: Requests under way at the same time, of each queue; more wait in the router. Of these 10,000 may wait for the ends of
#: items, so that puts never wait for those who do.
_REQUESTS = 10_000 + 4096
#: The longest sleep between two looks at the time (seconds).
_LONGEST = 1.0
#: Pause between two looks whether something has ended (seconds).
_LOOK = 0.01
#: The longest that the end of what is at the disk is waited for (seconds).
_LAST = 2.0
#: Seconds in which a router must be there when the server starts.
_ROUTER = 60.0
#: Pause before a queue that could not be served is served again (seconds); the same where there was no room for it.
_PAUSE, _NO_ROOM = 1.0, 10.0
#: The note with the id of the store.
_STORE_ID = "store id"
#: Queues that are served at the most: a process has 256 registrations.
_MOST_QUEUES = 250
#: Seconds for which a queue is kept for whoever has opened it, and has put nothing yet.
_OPEN = 10.0
#: Seconds after which such a queue is forgotten, also where there is room.
_UNUSED = 60.0


class _Opened(NamedTuple):
    """The opening of a queue: when it was, and by whom."""

    since: float
    caller: bytes


class QueueServer:
    """Serves the queues in a store.

    Args:
        client: of the router that it belongs to.
        owner: the name of that router.
        store: that has opened, with the content ``recovered``.
        heir: name of the router that stands in for ``owner``, which is gone: what is put without an owner in mind goes
            to that one; empty: this is the owner's own queue server.
        tells_deaths: the router is told of items that have died of what no worker tells: it has a dispatch log.
    """

    def __init__(
        self, client: Client, owner: str, store: StoreProcess, recovered: Recovered, heir: str = "",
        tells_deaths: bool = False,
    ) -> None:  # fmt: skip
        self._client = client
        self._owner = owner
        self._clock = QueueClock(recovered.clock, recovered.notes.get(CLOCK, b""))
        self.store = store
        self._heir = heir
        self._ready: dict[str, WorkQueue] = {}
        self._wake = Event()
        self._is_over = False
        self._dispatchers: dict[str, Dispatcher] = {}
        self._services: dict[str, Service] = {}
        #: Queues that were opened to be put into, in their order.
        self._opened: dict[str, _Opened] = {}
        #: Queues that are to be served as soon as they can be.
        self._awaited: set[str] = set()
        self._closing = 0
        #: Greenlets that tell other queue servers of something, or the dispatch log of deaths.
        self._telling: list[gevent.Greenlet[..., None]] = []
        self._watched: dict[str, Watch] = {}
        self.observer = Observer(self._watched)
        self._turns = Turns()
        self._claim = Claim(client, owner, self._store_id(recovered))
        self._deaths = UntoldDeaths(client, owner) if tells_deaths else None
        self.queues = Queues(self.store, recovered, monotonic(), self._clock, self._wake.set)
        self.queues.on_ready = self._on_ready
        self._known = self.queues.names()
        self._declarations = Declarations(self.queues, client, owner, recovered.notes)
        self.periodic = PeriodicItems(self.queues, client, owner, recovered.notes, self._wake.set)

    def _store_id(self, recovered: Recovered) -> str:
        """The id of the store, which it has from its first opening on."""
        if id := recovered.notes.get(_STORE_ID):
            return id.decode()
        made = token_hex(8)
        self.store.apply([Note(_STORE_ID, made.encode())], lambda verdicts: None)
        return made

    def _on_ready(self, queue: WorkQueue) -> None:
        self._ready[queue.name] = queue
        self._wake.set()

    def open(self, name: str) -> None:
        """Serve the queue ``name`` for whoever is about to put; one that was opened for nothing makes room.

        Raises:
            UsageError: too many queues are served, and each is used.
        """
        if name not in self._dispatchers:
            self._make_room()
            self._opened[name] = _Opened(monotonic(), caller_now())
        self.serve(name)

    def _open_elsewhere(self, name: str) -> str:
        """Open the queue ``name`` at the router that this stands in at; return its owner."""
        message = {"method": "open", "args": {"queue": name}}
        return str(self._client.call(None, all_queues(self._heir), message, _ROUTER, mandatory=True))

    def _make_room(self) -> None:
        """Have room for one more queue: in place of one that nobody has used in time, or whose opener has many such.

        Raises:
            UsageError: too many are served, and each is used.
        """
        if len(self._dispatchers) + self._closing < _MOST_QUEUES:
            return
        before = monotonic() - _OPEN
        for name in [name for name in self._opened if name not in self._dispatchers or not self._is_blank(name)]:
            del self._opened[name]
        crowd = _crowd([each.caller for each in self._opened.values()], caller_now())
        for name, opened in self._opened.items():
            if (opened.since <= before or opened.caller == crowd) and name in self._services:
                del self._opened[name]
                self._close(name)
                return
        raise UsageError(
            f"{self._owner} serves {len(self._dispatchers)} queues, and {_MOST_QUEUES} are the most: put items of "
            "several kinds into one queue, or at another owner"
        )

    def _forget_unused(self, now: float) -> None:
        """Forget queues that were opened long ago, and are blank, so that nobody sees names that are only a mistake."""
        while self._opened and next(iter(self._opened.values())).since <= now - _UNUSED:
            name = next(iter(self._opened))
            del self._opened[name]
            self._close_unused(name)

    def _close_unused(self, name: str) -> None:
        """Serve the queue ``name`` no more, if it is blank."""
        # Between the two it is being opened.
        if name in self._dispatchers and name in self._services and self._is_blank(name):
            self._opened.pop(name, None)
            gevent.spawn(self._close, name)

    def _is_blank(self, name: str) -> bool:
        return self.queues.is_blank(name) and not self.periodic.rows(name)

    def _close(self, name: str) -> None:
        """Serve the queue ``name``, which is blank, no more, unless it is put into meanwhile."""
        self._dispatchers.pop(name).stop(0.0)
        self._watched.pop(name)
        self._closing += 1
        self._services.pop(name).stop(_LAST)
        self._closing -= 1
        if name in self._dispatchers:
            return
        if self._is_blank(name):
            self.queues.forget(name)
        else:
            self._on_ready(self.queues.queue(name))

    def _serve_known(self) -> None:
        """Serve the queues of the store, those that have items before others."""
        names = sorted(self._known, key=lambda name: (not self.queues.has_items(name), name))
        for name in names[:_MOST_QUEUES]:
            self.serve(name)
        if left := names[_MOST_QUEUES:]:
            text = (
                f"{len(left)} queues of {self._owner} are not served, and their items wait: {_MOST_QUEUES} are the "
                f"most; the first of them is {left[0]!r}. Empty others, or give another owner their items"
            )
            log_event(log, logging.ERROR, "queues not served", text, queues=len(left))

    def serve(self, name: str) -> None:
        """Serve the queue ``name``, unless it is served."""
        if name in self._dispatchers:
            return
        queue = self.queues.queue(name)
        dispatcher = self._dispatchers[name] = Dispatcher(
            queue, self._client, self._owner, partial(self._on_ready, queue)
        )
        self._watched[name] = Watch(queue, dispatcher, self.store, self._client)
        if self._deaths is not None:
            queue.on_untold_death = partial(self._deaths.add, name)
        service = Service(
            name, OneQueue(
                name, self._owner, self.queues, self._clock, self._declarations.declare, self._turns, self.periodic,
                lambda: caller_now() == self._client.process.uplink.origin, lambda: self.store.lost,
            ),
            host=self._owner, client=self._client, exchange=QUEUES, concurrency=_REQUESTS,
        )  # fmt: skip
        try:
            service.start(_ROUTER)
        except BaseException:
            self._dispatchers.pop(name)
            self._watched.pop(name)
            raise
        self._services[name] = service
        self._on_ready(queue)

    def start(self) -> None:
        """Serve what is there, for those who put and for operators.

        Raises:
            Claimed: another queue server serves the name of the owner, with a store of its own.
        """
        if not self.store.has_lock:
            self._claim.check()
            self._serve_others(CLAIMS, self._claim.endpoint())
            self._telling.append(gevent.spawn(self._claim.keep_up, self._without_claims, self._wake.set))
        if self._deaths is not None:
            self._telling.append(gevent.spawn(self._deaths.keep_up))
        self._serve_known()
        everything = Service(
            all_queues().topic, AllQueues(
                self._owner, self.open, self.queues.has, self.periodic.is_known, lambda: self.store.problem,
                self._open_elsewhere if self._heir else None,
            ),
            host=self._owner, client=self._client, exchange=QUEUES,
        )  # fmt: skip
        everything.start(_ROUTER)
        self._services[""] = everything
        self._serve_operators()

    def run(self) -> None:
        """Give items to workers until :meth:`stop`, or until the store cannot be used any more.

        Raises:
            Claimed: the name of the owner is another one's.
        """
        while not self._is_over and not self.store.refusal:
            if self._claim.lost:
                raise Claimed(self._claim.lost)
            now = monotonic()
            deadline = min(self.queues.next_deadline(), self.periodic.next_deadline(now))
            self._wake.wait(min(_LONGEST, max(0.001, deadline - now)))
            self._wake.clear()
            self._step()

    def _serve_operators(self) -> None:
        look = LookEndpoint(
            self._about, self.queues, self._watched, self.observer.look, self.store.state, self._turns,
            self.periodic.rows,
        )  # fmt: skip
        change = ChangeEndpoint(
            self.queues, self._watched, self.open, self._close_unused, self.periodic.remove, self._turns
        )
        settings, homes = self._declarations.endpoint(), self.periodic.endpoint()
        endpoints = ((LOOK, look), (CHANGE, change), (SETTINGS, settings), (PERIODIC, homes))
        for topic, endpoint in endpoints:
            self._serve_others(topic, endpoint)
        self._telling += [gevent.spawn(self._declarations.keep_up), gevent.spawn(self.periodic.keep_up)]

    def _serve_others(self, topic: str, endpoint: object) -> None:
        """Serve operators, or other queue servers."""
        service = Service(topic, endpoint, host=self._owner, client=self._client, exchange=OPERATORS)
        service.start(_ROUTER)
        self._services[f"{OPERATORS} {topic}"] = service

    @contextmanager
    def _without_claims(self) -> Iterator[None]:
        """Do not answer whoever asks who serves the name of the owner."""
        # It may be about to be served again.
        if (service := self._services.pop(f"{OPERATORS} {CLAIMS}", None)) is not None:
            service.stop(_LAST)
        try:
            yield
        finally:
            gevent.spawn(self._serve_claims_again)

    def _serve_claims_again(self) -> None:
        while not self._is_over:
            try:
                self._serve_others(CLAIMS, self._claim.endpoint())
                return
            except RpcError as error:
                log.warning("other queue servers are not heard for now: %s", error)
                gevent.sleep(_PAUSE)

    def _about(self) -> dict[str, Any]:
        router = self._client.process.uplink.router
        by = {"router": "" if router is None else router.router, "is_heir": bool(self._heir)}
        return {"owner": self._owner, "by": {**by, "pid": os.getpid(), "host": gethostname()}}

    def _step(self) -> None:
        now = monotonic()
        is_due = self.queues.next_deadline() <= now
        self.queues.tick(now)
        self.periodic.tick(now)
        self._forget_unused(now)
        self._note_clock(now)
        ready, self._ready = self._ready, {}
        for name in {**self._dispatchers, **ready} if is_due else ready:
            if (dispatcher := self._dispatchers.get(name)) is not None:
                dispatcher.pump()
            elif not self._is_over and name not in self._awaited:
                # Its first item came by way of the database, or it was declared elsewhere.
                self._awaited.add(name)
                gevent.spawn(self._serve_later, name)

    def _note_clock(self, now: float) -> None:
        # A store that takes nothing now is told when it does again.
        if not self.store.waits_for and (note := self._clock.note(now)) is not None:
            self.store.apply([note], lambda verdicts: None)

    def _serve_later(self, name: str) -> None:
        """Serve the queue ``name``, or try to until that succeeds; the log says why it does not, and not each time."""
        said = ""
        try:
            while not self._is_over and name not in self._dispatchers:
                try:
                    self._make_room()
                    self.serve(name)
                except RpcError as error:
                    if (text := f"queue {name!r} is not served, and its items wait: {error}") != said:
                        log_event(log, logging.WARNING, "queue not served", text, queue=name)
                        said = text
                    gevent.sleep(_NO_ROOM if isinstance(error, UsageError) else _PAUSE)
        finally:
            self._awaited.discard(name)

    def stop(self, seconds: float | None) -> None:
        """Give no more items, wait for those that run, then take no more either, and end what is at the disk.

        Workers may put items while they finish; others are held back by the router, which is draining, too.

        Args:
            seconds: to wait for what runs, at the most; None: as long as it takes.
        """
        deadline = inf if seconds is None else monotonic() + seconds
        # A router that drains takes none of it, and what it has not taken at the end would be told of as lost.
        gevent.killall(self._telling, block=False)
        while [each for each in self._dispatchers.values() if not each.stop(0.0)] and monotonic() < deadline:
            # What the router has not passed on comes back at once, and is not in doubt.
            self._client.process.calls.expire_not_accepted(monotonic())
            self._client.process.connection.schedule()
            gevent.sleep(_LOOK)
        gevent.joinall([gevent.spawn(service.stop, _LAST) for service in self._services.values()])
        self.queues.close()
        deadline = monotonic() + _LAST
        while self.store.unanswered and not self.store.waits_for and monotonic() < deadline:
            self._wake.wait(_LOOK)
        self.observer.stop()
        self._is_over = True
        self._wake.set()


def _crowd(callers: Sequence[bytes], caller: bytes) -> bytes | None:
    """The one of ``callers`` who has opened most, if that is more than an equal share of all, and not ``caller``."""
    ((most, count),) = Counter(callers).most_common(1) or [(caller, 0)]
    return most if most != caller and count > _MOST_QUEUES // len({*callers, caller}) else None
