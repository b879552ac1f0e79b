"""All work queues of one owner, over one store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

from rpcmq.core.queue.asker_room import AskerRoom
from rpcmq.core.queue.due_items import DueItems
from rpcmq.core.queue.envelope import Envelope, envelope_bytes
from rpcmq.core.queue.incoming import IncomingItems, by_clock
from rpcmq.core.queue.lanes import HORIZON
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.port import StorePort
from rpcmq.core.queue.refusals import Refused
from rpcmq.core.queue.results import MOST_OF_ALL
from rpcmq.core.queue.story import Ending, Story
from rpcmq.core.queue.work_queue import WorkQueue
from rpcmq.store.contract import (
    CLEAN,
    PERIODIC,
    Damaged,
    Incoming,
    Lane,
    Maker,
    Note,
    Position,
    Put,
    Recovered,
    Refuse,
    Stored,
    Verdict,
)

__all__ = ["DRAINING", "PAUSED", "NewItem", "Queues"]

#: Results whose time is over are forgotten so often (seconds).
_EXPIRY = 60.0
#: The names of notes begin with these.
PAUSED, DRAINING, _POLICY = "paused ", "draining ", "policy "
_NO_MAKER = Maker(0, 0)


class NewItem(NamedTuple):
    """An item that is to be put. Times are milliseconds of the wall clock.

    Attributes:
        message: for the worker.
        digest: of the item as its user knows it: another one with the same id must have the same.
        id: that the user gave; else ``maker`` names the item.
        due: not before this time; 0: at once.
        expires: after this time nobody wants it; 0: for ever.
        series: of its items runs one at a time; empty: no matter.
        put_at: the time at which it was put; 0: now.
        incoming: its place among the incoming items; 0: it is none.
        keep_result: seconds for which its result is kept; 0: it is not.
        unique: while an item with the same one waits, which no worker has had, this one is not put, and is answered as
            known; empty: no matter.
    """

    message: bytes
    digest: bytes = b""
    id: bytes = b""
    maker: Maker = _NO_MAKER
    priority: int = 0
    due: int = 0
    expires: int = 0
    series: bytes = b""
    put_at: int = 0
    incoming: int = 0
    keep_result: float = 0.0
    unique: bytes = b""


class Queues:
    """The queues over ``store``, of which ``recovered`` is the content.

    Args:
        now: monotonic seconds.
        wall: turns monotonic seconds into milliseconds of the wall clock.
        on_earlier: called when :meth:`next_deadline` may be earlier than it was.
    """

    def __init__(
        self, store: StorePort, recovered: Recovered, now: float, wall: Callable[[float], int],
        on_earlier: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.store = store
        self._recovered = recovered
        self._opened = now
        self.wall = wall
        self._is_clean = recovered.epoch == 1 or CLEAN in recovered.notes
        self._queues: dict[str, WorkQueue] = {}
        self._fences = count(1)
        self._asker_room = AskerRoom(MOST_OF_ALL)
        postponed = [lane for lane, number in recovered.postponed.items() if number]
        self._due = DueItems(store, postponed, wall, self._has_room_for_due, self._became_due, on_earlier)
        self._now = now
        self._next_expiry = now
        #: Called with a queue in which there may be something to take.
        self.on_ready: Callable[[WorkQueue], object] = lambda queue: None
        self._horizons: dict[str, dict[Lane, int]] = {}
        for lane in recovered.ready:
            horizon = recovered.notes.get(f"{HORIZON} {lane.priority} {lane.queue}", b"")
            self._horizons.setdefault(lane.queue, {})[lane] = int.from_bytes(horizon)
        about = (PAUSED, DRAINING, _POLICY, PERIODIC)
        noted = (each.split(" ", 1)[1].split("\n")[0] for each in recovered.notes if each.startswith(about))
        for name in [*self._horizons, *noted]:
            self.queue(name)
        store.on_reopened = self._recount
        self._incoming = IncomingItems(store, self._put_incoming, recovered.has_incoming, now, on_earlier)
        if CLEAN in recovered.notes:
            store.apply([Note(CLEAN, b"")], lambda verdicts: None)

    def queue(self, name: str) -> WorkQueue:
        """The queue ``name``, known from now on."""
        queue = self._queues.get(name)
        if queue is None:
            recovered = self._recovered
            raw = recovered.notes.get(_POLICY + name)
            policy = Policy.from_bytes(raw) if raw else Policy()
            queue = self._queues[name] = WorkQueue(
                name, self.store, policy, recovered.epoch, self._opened, self.wall, self._is_clean,
                self._horizons.pop(name, {}), self._fences,
            )  # fmt: skip
            queue.results.room = self._asker_room
            queue.recount(recovered)
            queue.is_paused, queue.is_draining = PAUSED + name in recovered.notes, DRAINING + name in recovered.notes
            queue.on_ready = lambda: self.on_ready(queue)
            queue.on_postponed = queue.lanes.on_room_for_due = self._due.look
        return queue

    def has(self, name: str) -> bool:
        """Return whether the queue ``name`` is known."""
        return name in self._queues

    def names(self) -> list[str]:
        """The names of all queues, in their order."""
        return sorted(self._queues)

    def has_items(self, name: str) -> bool:
        """Return whether there are items in the queue ``name`` that have not ended, dead ones included."""
        tally = self.queue(name).tally
        return bool(tally.items or tally.dead)

    def is_blank(self, name: str) -> bool:
        """Return whether nothing was ever said of the queue ``name``: no item, no result, and no settings."""
        queue = self.queue(name)
        kept = self.has_items(name) or queue.tally.coming or queue.results.size or queue.counters or [*queue.lanes]
        return not (kept or queue.is_paused or queue.is_draining or queue.policy != Policy())

    def forget(self, name: str) -> None:
        """Know the queue ``name`` no more, which is blank; it may be opened again."""
        del self._queues[name]

    @property
    def is_empty(self) -> bool:
        """Whether no queue has an item that has not ended; dead ones have."""
        return not any(queue.tally.items or queue.tally.coming for queue in self._queues.values())

    def _recount(self) -> None:
        """The store was opened again, and may have done what it has not answered: its numbers count."""

        def take(content: Recovered) -> None:
            for queue in self._queues.values():
                queue.recount(content)
                if queue.ready:
                    self.on_ready(queue)  # whoever was free meanwhile was given nothing

        self.store.recount(take)

    def declare(self, now: float, name: str, policy: Policy, then: Callable[[], object]) -> None:
        """Give a queue other settings; ``then`` is called when they are durable."""
        self.queue(name).set_policy(now, policy)
        self.store.apply([Note(_POLICY + name, policy.to_bytes())], lambda verdicts: then())

    def put(
        self, now: float, name: str, items: list[NewItem], then: Callable[[list[Verdict]], object],
        refused: Callable[[Refused], object] | None = None, notes: Sequence[Note] = (),
    ) -> None:  # fmt: skip
        """Put ``items``, all or none; ``then`` is called with the verdicts when they are durable, with ``notes``.

        Where the queue takes no new items ``refused`` is called with the reason, and nothing was put. But if all were
        put before, ``then`` is called: who asks again for want of an answer must not hear that they are not there.

        Raises:
            Refused: the same, where nobody is there to be called: they may have been put before.
        """
        queue, at = self.queue(name), self.wall(now)
        lanes = {priority: Lane(name, priority) for priority in {item.priority for item in items}}
        puts = [
            Put(
                lanes[priority],
                envelope_bytes(message, expires, series, int(keep_result * 1000), unique),
                put_at or at, due if due > at else 0, id, maker, digest, incoming, unique,
            )
            for (
                message, digest, id, maker, priority, due, expires, series, put_at, incoming, keep_result, unique,
            ) in items
        ]  # fmt: skip
        size = sum([len(put.body) for put in puts])
        # What is in the database already takes no more room there.
        refusal = None if items and items[0].incoming else queue.refusal(len(puts), size)
        if refusal is None:
            self._put(queue, puts, size, then, notes)
        elif refused is None:
            raise refusal
        else:
            self._put_nothing(puts, refusal, then, refused, notes)

    def _put(
        self, queue: WorkQueue, puts: list[Put], size: int, then: Callable[[list[Verdict]], object],
        notes: Sequence[Note],
    ) -> None:  # fmt: skip
        tally = queue.tally
        tally.coming += len(puts)
        tally.coming_bytes += size

        def stored(verdicts: list[Verdict]) -> None:
            tally.coming -= len(puts)
            tally.coming_bytes -= size
            del verdicts[len(puts) :]
            for put, verdict in zip(puts, verdicts, strict=True):
                if put.due and verdict.number:
                    queue.postponed(put.lane, verdict.number, len(put.body))
                elif verdict.number:
                    position = Position(0, 0, verdict.number)
                    queue.accepted(Stored(position, put.lane, verdict.number, put.at, put.id, put.maker, put.body, b""))
                elif verdict.is_known:
                    queue.may_have_more(put.lane)
                    if put.due:
                        self._due.look(put.lane)
            queue.on_ready()
            then(verdicts)

        self.store.apply([*puts, *notes], stored)

    def _put_nothing(
        self, puts: list[Put], refusal: Refused, then: Callable[[list[Verdict]], object],
        refused: Callable[[Refused], object], notes: Sequence[Note],
    ) -> None:  # fmt: skip
        def answered(verdicts: list[Verdict]) -> None:
            if not all(verdict.is_known for verdict in verdicts):
                refused(refusal)
            elif not notes:
                then(verdicts)
            else:
                self.store.apply(notes, lambda noted: then(verdicts))

        self.store.known([put._replace(body=b"") for put in puts], answered)

    def _put_incoming(self, now: float, found: Sequence[Incoming], then: Callable[[int], object]) -> None:
        """Put the items that users have put in transactions of their own; ``then`` gets the number of new ones."""
        by_queue: dict[str, list[Incoming]] = {}
        wall = self.wall(now)
        for item in found:
            by_queue.setdefault(item.lane.queue, []).append(by_clock(item, wall))
        open_, new = len(by_queue), 0

        def ended(items: list[Incoming], verdicts: list[Verdict]) -> None:
            nonlocal open_, new
            self._refuse([item for item, verdict in zip(items, verdicts, strict=True) if verdict.is_other])
            open_, new = open_ - 1, new + sum(verdict.number > 0 for verdict in verdicts)
            if not open_:
                then(new)

        for name, items in by_queue.items():
            news = [
                NewItem(
                    item.message, item.digest, item.id, item.maker, item.lane.priority, item.due, item.expires,
                    item.series, item.at, item.place, unique=item.unique,
                )
                for item in items
            ]  # fmt: skip
            self.put(now, name, news, partial(ended, items))

    def _refuse(self, items: list[Incoming]) -> None:
        """Bury incoming items whose ids other items have: nobody waits for an answer."""
        at = self.wall(self._now)
        story = Story().with_ending(Ending(at, "", "rejected", "an item with this id has another content")).to_bytes()
        for item in items:
            body = Envelope(item.message, item.expires, item.series).to_bytes()
            change = Refuse(item.lane, item.place, at, body, story)
            self.store.apply([change], partial(self._refused, self.queue(item.lane.queue), len(body)))

    def _refused(self, queue: WorkQueue, size: int, verdicts: list[Verdict]) -> None:
        if verdicts[0].number:
            queue.counters["dead"] += 1
            queue.counters["refused"] += 1
            queue.tally.dead += 1
            queue.tally.bytes += size
            queue.on_untold_death("refused")

    # --- time --------------------------------------------------------------------------------

    def _has_room_for_due(self, lane: Lane) -> bool:
        return self.queue(lane.queue).lanes.has_room_for_due(lane)

    def _became_due(self, item: Stored | Damaged) -> None:
        self.queue(item.lane.queue).became_due(item, self._now)

    def tick(self, now: float) -> None:
        """Read the items that are due, and those that came into the store by another way."""
        self._now = now
        self._incoming.tick(now)
        self._expire_results(now)
        self._due.tick(now)

    def _expire_results(self, now: float) -> None:
        if now < self._next_expiry:
            return
        self._next_expiry = now + _EXPIRY
        for queue in self._queues.values():
            queue.results.expire(self.wall(now))

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick`, after which any queue may have something to take (monotonic seconds)."""
        deadlines = (queue.next_deadline(self._now) for queue in self._queues.values())
        return min((self._incoming.next_deadline(), self._due.next_deadline(self._now), *deadlines))

    def close(self) -> None:
        """It all ends in order: no worker has an item any more, unless one is left, or is lost with a series."""
        if not any(queue.running or queue.waits_for_lost for queue in self._queues.values()):
            self.store.apply([Note(CLEAN, b"1")], lambda verdicts: None)
