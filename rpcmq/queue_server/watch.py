"""Whether the items of a queue move; if not, since when, and what they wait for. Logged where that lasts."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any, Protocol

from rpcmq.client import Client
from rpcmq.client.queue.protocol import to_workers
from rpcmq.core.queue.story import IN_DOUBT, LOST
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.errors import CallError, NoConsumer, RpcError
from rpcmq.queue_server.dispatcher import Dispatcher
from rpcmq.server.log import log_event

__all__ = ["WaitingStore", "Watch"]

log = logging.getLogger("rpcmq.queue")

#: Seconds between two lines of the log about a queue that stands still.
_LOGGED = 60.0
#: Seconds without movement from which on somebody may ask what the items wait for.
_STILL = 1.0
#: The ends of attempts after which an item may be dead, and those of items that are not tried any more.
_ENDS = ("failed", LOST, IN_DOUBT, "rejected", "expired", "damaged", "refused")
_UNTRIED = {"expired": "expired", "damaged": "damaged", "refused": "refused, whose id another item has"}
#: Seconds in which a worker that is free answers, and for which an answer is believed.
_PING, _BELIEVED = 0.5, 1.0


class WaitingStore(Protocol):
    """A store, which may not answer at present."""

    @property
    def problem(self) -> str:
        """The reason; empty: nothing is the matter."""

    @property
    def lost(self) -> str:
        """The reason for which nothing more is to be put into it; empty: it may be."""


class Watch:
    """Watches the queue of ``dispatcher``."""

    def __init__(self, queue: WorkQueue, dispatcher: Dispatcher, store: WaitingStore, client: Client) -> None:
        self._queue = queue
        self._dispatcher = dispatcher
        self._store = store
        self._client = client
        self._since: float | None = None
        self._logged = float("-inf")
        self._counted = queue.counters.copy()
        self._workers, self._asked = "", float("-inf")

    @property
    def waiting(self) -> int:
        """The number of items that could be worked at."""
        return self._queue.ready + self._dispatcher.unbegun

    def still(self, now: float) -> float:
        """Seconds since which items wait and none of the queue has moved; 0: they move, or there is none."""
        if not self.waiting:
            self._since = None
        elif self._since is None or self._dispatcher.progress.moved > self._since:
            self._since = max(self._dispatcher.progress.moved, now if self._since is None else self._since)
        return 0.0 if self._since is None else max(0.0, now - self._since)

    def observe(self, now: float) -> dict[str, Any]:
        """Its :meth:`row`. Items that have died since the last time are logged; once a minute, that it stands still.

        To be called each second or so.
        """
        row = self.row(now)
        self._log_dead()
        if self._is_alarming(row["still"]) and now - self._logged >= _LOGGED:
            self._logged = now
            name, items, why = self._queue.name, row["ready"], row["why"]
            text = f"queue {name!r} stands still: {items} item(s) wait, none has moved for {row['still']:.0f} s: {why}"
            fields = {"queue": name, "items": items, "seconds": round(row["still"]), "why": why}
            log_event(log, logging.WARNING, "queue stands still", text, **fields)
        return row

    def _log_dead(self) -> None:
        """Log how many items have died since the last time, not each of them: they may be many."""
        counters = self._queue.counters
        ends = {name: counters[name] - self._counted[name] for name in _ENDS}
        dead, self._counted = counters["dead"] - self._counted["dead"], counters.copy()
        if dead:
            name = self._queue.name
            attempts = ", ".join(f"{count} {end}" for end, count in ends.items() if count and end not in _UNTRIED)
            reasons = [f"attempts: {attempts}"] if attempts else []
            reasons += [f"{ends[end]} {text}" for end, text in _UNTRIED.items() if ends[end]]
            of = "; ".join(reasons)
            text = f"queue {name!r}: {dead} item(s) died{f' ({of})' if of else ''}: rpcmq queue dead {name}"
            log_event(log, logging.WARNING, "items dead", text, queue=name, items=dead, **ends)

    def why(self, now: float) -> str:
        """Say what the items that could be worked at wait for; empty: nothing. May ask whether there are workers."""
        queue, dispatcher = self._queue, self._dispatcher
        if problem := self._store.problem:
            return f"the store does not answer: {problem}"
        if self._store.lost:
            return self._store.lost
        if queue.is_paused:
            return f"paused by an operator: rpcmq queue resume {queue.name}"
        if not self.waiting or self.still(now) < _STILL:
            return ""
        if dispatcher.refusal:
            return f"no router takes them: {dispatcher.refusal}"
        if dispatcher.unbegun or dispatcher.awaits_worker:
            return self._ask_workers(now)
        limit = queue.policy.concurrency
        if limit and queue.running >= limit:
            return f"{queue.running} are worked at, as many as the queue's setting concurrency allows"
        if queue.is_over_rate(now):
            return f"as many begin as the queue's setting rate allows: {queue.policy.rate:g} a second"
        if (seconds := queue.in_doubt(now)) > 0:
            return f"the queue server was killed, and workers may still have them: given again in {seconds:.0f} s"
        return "they wait for others that have the same key, or are read from the store"

    def _ask_workers(self, now: float) -> str:
        if now - self._asked >= _BELIEVED:
            self._workers = self._state_of_workers()
            self._asked = monotonic()
        return self._workers

    def _state_of_workers(self) -> str:
        message = {"method": "rpcmq.ping", "args": {}}
        address = to_workers(self._queue.name)
        try:
            self._client.call(None, address, message, _PING, mandatory=True, retry=False)
        except NoConsumer:
            return f"no worker on queue {self._queue.name}"
        except CallError:
            return "its workers are busy"
        except RpcError as error:
            return f"its workers cannot be reached: {error}"
        return "its workers are busy"

    def row(self, now: float) -> dict[str, Any]:
        """The state of the queue and its numbers of items, and the reason for which they wait."""
        unbegun, still = self._dispatcher.unbegun, self.still(now)
        figures = self._queue.figures(now)
        why = self.why(now)
        return {
            "state": self._state(still),
            **figures,
            # What is on its way to workers is not worked at yet.
            "ready": figures["ready"] + unbegun,
            "running": figures["running"] - unbegun,
            "still": round(still, 1),
            "why": why,
            "times": self._dispatcher.progress.times(),
        }

    def _is_alarming(self, still: float) -> bool:
        alarm = self._queue.policy.alarm
        return 0 < alarm <= still

    def _state(self, still: float) -> str:
        if self._queue.is_paused:
            return "paused"
        if self._is_alarming(still):
            return "stands still"
        if still >= _STILL:
            return "waits"
        if self._queue.is_draining:
            return "drains"
        return "works" if self.waiting or self._queue.running else "idle"
