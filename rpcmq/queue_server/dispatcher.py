"""Gives the items of one queue to its workers, who are called like any service, and takes back how each has ended."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from rpcmq.client import Client
from rpcmq.client.queue.messages import Message
from rpcmq.client.queue.protocol import DONE, REJECTED, WorkAnswer, WorkOrder, to_workers
from rpcmq.client.told_call import call_and_tell
from rpcmq.core.queue.item_ids import id_of
from rpcmq.core.queue.work_queue import Given, WorkQueue
from rpcmq.errors import CallError, CallTimeout, LinkLost, NoConsumer, PayloadError, RpcError
from rpcmq.queue_server.progress import Progress
from rpcmq.queue_server.work_answers import LONGEST, answer_of

__all__ = ["Dispatcher"]

log = logging.getLogger("rpcmq.queue")

#: Items that are on their way to workers, and not known to be begun, at the most; and their bytes.
_WINDOW, _WINDOW_BYTES = 64, 8 << 20
#: Pause before an item is offered again that no router has taken, or no worker begun (seconds), and the least that a
#: worker may ask for.
_PAUSE, _LEAST_PAUSE = 1.0, 0.05

_PING = {"method": "rpcmq.ping", "args": {}}


class Dispatcher:
    """Gives the items of ``queue`` to workers.

    While there is no worker, no item is on its way, and all of them wait in the queue: there an item can be cancelled,
    and expires. A ping waits for the first worker instead.

    Args:
        owner: the name of the router that this queue server belongs to.
        wake: called where :meth:`pump` is to be called soon.

    Attributes:
        progress: how its items move.
        refusal: the reason for which no router takes an item at present; empty: nothing is the matter.
        awaits_worker: whether a ping waits for a worker.
    """

    def __init__(self, queue: WorkQueue, client: Client, owner: str, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._queue = queue
        self._client = client
        self._owner = owner
        self._address = to_workers(queue.name)
        self._count = 0
        #: Items that are not known to be begun, in the order in which they were given, with their bytes.
        self._unbegun: OrderedDict[int, int] = OrderedDict()
        self._unbegun_bytes = 0
        self._running = 0
        self._idle = Event()
        self._is_stopped = False
        #: Whether the topic has been served since the last item for which nobody was there.
        self._has_workers = False
        self.awaits_worker = False
        self.progress = Progress(monotonic())
        self.refusal = ""

    @property
    def unbegun(self) -> int:
        """The number of items that are on their way to workers, and not known to be begun."""
        return len(self._unbegun)

    def pump(self) -> None:
        """Give as many items as there are, and as may be on their way. To be called in a greenlet."""
        while not self._is_stopped and len(self._unbegun) < _WINDOW and self._unbegun_bytes < _WINDOW_BYTES:
            if not self._client.process.uplink.origin:
                # Nothing waits here for a router: other queues are pumped, too.
                gevent.spawn_later(_PAUSE, self._wake)
                return
            if not self._has_workers:
                self._await_worker()
                return
            given = self._queue.take(monotonic())
            if given is None:
                return
            self._count += 1
            self._give(self._count, given)

    def _await_worker(self) -> None:
        if self.awaits_worker or not self._queue.ready:
            return
        try:
            call_and_tell(self._client, self._address, _PING, LONGEST, self._met)
        except RpcError as error:
            self._refused(error)
        else:
            self.awaits_worker = True

    def _met(self, result: Callable[[], Any]) -> None:
        """A worker has answered, or the ping has ended otherwise."""
        self.awaits_worker = False
        try:
            result()
        except CallError as error:
            self._refused(error)
            return
        except RpcError:
            pass  # whatever it says, it is there
        self.refusal = ""
        self._has_workers = True
        self._wake()

    def _refused(self, error: RpcError) -> None:
        """No router takes the ping, or it was lost with its worker: try again."""
        self.refusal = str(error)
        gevent.spawn_later(_PAUSE, self._wake)

    def _give(self, number: int, given: Given) -> None:
        self._unbegun[number] = size = len(given.message)
        self._unbegun_bytes += size
        self._running += 1
        order = self._order(given, self.progress.is_reported(number))
        message = {"method": _called(order.method), "args": {"order": list(order)}}
        tell = partial(self._begun, number) if order.tell else None
        try:
            then = partial(self._ended, number, given)
            call_and_tell(
                self._client, self._address, message, LONGEST, then, tell,
                mandatory=True, again=False, tried=given.attempt - 1,
            )  # fmt: skip
        except PayloadError as error:
            self._queue.failed(monotonic(), given.fence, "", f"{type(error).__name__}: {error}")
            self._free(number)
        except RpcError as error:
            self._not_offered(number, given, error)

    def _begun(self, number: int, _: object = None) -> None:
        """The item ``number`` was begun, and so were, or nearly, those that were given before it."""
        self.progress.begun(monotonic())
        unbegun = self._unbegun
        while unbegun and (first := next(iter(unbegun))) <= number:
            self._unbegun_bytes -= unbegun.pop(first)
        self._wake()

    def _ended(self, number: int, given: Given, result: Callable[[], Any]) -> None:
        try:
            answer = answer_of(result)
            if not answer.is_begun:
                # Its worker has heard nothing for long, and may be given it again before it does; or it has expired.
                pause = _PAUSE if answer.again is None else min(max(_LEAST_PAUSE, answer.again), _PAUSE)
                gevent.spawn_later(pause, self._offer_again, number, given)
                return
            self._answered(given, answer)
        except NoConsumer:
            self._has_workers = False
            self._queue.not_begun(given.fence)
        except (LinkLost, CallTimeout) as error:
            self._not_answered(given, error)
        except CallError as error:
            if error.details.get("started") != "yes":
                # No router has taken it: full, draining, or no right.
                self._not_offered(number, given, error)
                return
            # It has run, and what its worker has said of that cannot be used.
            self._queue.failed(monotonic(), given.fence, "", f"{type(error).__name__}: {error}")
        except Exception as error:
            # Whatever a worker says, the item comes back.
            self._queue.failed(monotonic(), given.fence, "", f"{type(error).__name__}: {error}")
        self._free(number)

    def _not_offered(self, number: int, given: Given, error: RpcError) -> None:
        self.refusal = str(error)
        log.warning("queue %r: an item could not be offered: %s", self._queue.name, error)
        gevent.spawn_later(_PAUSE, self._offer_again, number, given)

    def _offer_again(self, number: int, given: Given) -> None:
        self._queue.not_begun(given.fence)
        self._free(number)

    def _free(self, number: int) -> None:
        """The item ``number`` is not on its way any more, and nobody works at it."""
        self._unbegun_bytes -= self._unbegun.pop(number, 0)
        self._running -= 1
        if not self._running:
            self._idle.set()
        self._wake()

    def _order(self, given: Given, tell: bool) -> WorkOrder:
        item, message = given.item, Message.from_bytes(given.message)
        now = monotonic()
        wall = self._queue.wall(now)
        age = max(0.0, wall - item.at) / 1000
        unwanted_left = max(0.0, LONGEST - (given.expires - wall) / 1000) if given.expires else 0.0
        return WorkOrder(
            self._queue.name, self._owner, id_of(item), given.attempt, given.fence, age, self._queue.policy.lease,
            # Who puts checks it; but in a database anybody may write, and no item stops the others of its queue.
            str(message.method, "utf-8", "replace"), message.format, message.body, tell, given.keep_result > 0,
            given.is_last, unwanted_left, now if given.expires else 0.0,
        )  # fmt: skip

    def _answered(self, given: Given, answer: WorkAnswer) -> None:
        now = monotonic()
        self.refusal = ""
        self.progress.ended(now, self._queue.wall(now), given.item, answer.seconds, answer.outcome == DONE)
        if answer.outcome == DONE:
            result = bytes((answer.format,)) + answer.result if given.keep_result else b""
            self._queue.done(given.fence, result=result, now=now)
        elif answer.outcome == REJECTED:
            self._queue.rejected(now, given.fence, answer.worker, answer.text)
        else:
            self._queue.failed(now, given.fence, answer.worker, answer.text, answer.again)

    def _not_answered(self, given: Given, error: CallError) -> None:
        if error.details.get("started") == "no":
            self._queue.not_begun(given.fence)
            return
        # It is the worker that is lost, if one is named, unless its router has not waited for it.
        worker = "" if "router" in error.details else str(error.details.get("server", ""))
        self._queue.lost(monotonic(), given.fence, worker, str(error))

    def stop(self, seconds: float) -> bool:
        """Give no more, and wait for what runs; return whether all has ended."""
        self._is_stopped = True
        if self._running:
            self._idle.clear()
            self._idle.wait(seconds)
        return not self._running


def _called(method: str) -> str:
    """The method of a worker that is called for an item: the item's own, so that views and logs show it."""
    return method if method.isidentifier() and not method.startswith("_") else "run"
