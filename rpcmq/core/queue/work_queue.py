"""One work queue: items go to workers, the higher priority and the older first, and come back until they are done.

An item is given under a *fence*, the epoch of the store and a counter that only grows. Whatever is said of it under an
older one changes nothing. It is the store's truth that counts: an item is done, postponed or dead once that is durable;
until then it is given to nobody.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import inf
from typing import Any

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.queue.ages import Ages
from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.given_item import Given, Key
from rpcmq.core.queue.lanes import Lanes
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.port import StorePort
from rpcmq.core.queue.refusals import Draining, Refused, fullness
from rpcmq.core.queue.results import DEAD, DONE, Outcome, Results
from rpcmq.core.queue.series import Series
from rpcmq.core.queue.story import IN_DOUBT, LOST, Ending, Story
from rpcmq.core.queue.suspects import Suspects
from rpcmq.core.queue.tally import Tally, size_of
from rpcmq.store.contract import Bury, Change, Damaged, Done, Lane, Postpone, Recovered, Release, Stored, Verdict

__all__ = ["Given", "WorkQueue"]


class WorkQueue:
    """The items of one queue.

    Args:
        name: of the queue.
        epoch: of the store.
        opened: monotonic seconds at which the store was opened.
        wall: turns monotonic seconds into milliseconds of the wall clock.
        is_clean: the former life of the queue server has ended in order, so that no worker has an item.
        counter: of fences, which all queues over the store share: an item may be moved from one to another.
        lanes: the greatest number that may have been given in a former life, of each lane that there is.
    """

    def __init__(
        self, name: str, store: StorePort, policy: Policy, epoch: int, opened: float, wall: Callable[[float], int],
        is_clean: bool, lanes: dict[Lane, int], counter: Iterator[int],
    ) -> None:  # fmt: skip
        self.name = name
        self._store = store
        self._policy = policy
        self._epoch = epoch
        self.wall = wall
        self._counter = counter
        doubt_until = -inf if is_clean else opened + policy.lease
        self._opened = wall(opened)
        self.lanes = Lanes(name, store, lanes, doubt_until, lambda: self.on_ready())  # noqa: PLW0108 it is set later
        self.tally = Tally()
        self.counters: Counter[str] = Counter()
        self._ages = Ages(name, store)
        #: The ends of items, for those who ask.
        self.results = Results(name, store, self._is_given, self.counters)
        #: By fence.
        self._given: dict[tuple[int, int], Given] = {}
        self._series, self._suspects = Series(), Suspects()
        #: Items that are not to be given, because they are being taken away, and whether their turn came meanwhile.
        self._held: dict[Key, Stored | None] = {}
        #: Items that are next: they were not begun, or one of their series has ended.
        self._released: deque[Stored] = deque()
        self._rate = TokenBucket(policy.rate, opened) if policy.rate else None
        self._next_token = -inf
        #: Nothing is given; nothing new is taken.
        self.is_paused = self.is_draining = False
        #: Called when there may be something to take.
        self.on_ready: Callable[[], object] = lambda: None
        #: Called when an item was postponed; and when one has died of what no worker has told, with the outcome.
        self.on_postponed: Callable[[Lane], object] = lambda lane: None
        self.on_untold_death: Callable[[str], object] = lambda outcome: None

    # --- policy ------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The settings."""
        return self._policy

    def set_policy(self, now: float, policy: Policy) -> None:
        """Go on with other settings."""
        self._policy = policy
        self._rate = TokenBucket(policy.rate, now) if policy.rate else None

    @property
    def running(self) -> int:
        """The number of items that workers have."""
        return len(self._given)

    @property
    def ready(self) -> int:
        """The number of items that could be given, or wait for others of their series only."""
        tally = self.tally
        return max(0, tally.items - tally.later - tally.ending - len(self._given))

    @property
    def waits_for_lost(self) -> bool:
        """Whether nothing of a series is given because a worker that is lost may still run one of its items."""
        return self._series.next_end < inf

    def is_over_rate(self, now: float) -> bool:
        """Return whether the next item waits for its turn by the setting ``rate``."""
        return now < self._next_token

    def in_doubt(self, now: float) -> float:
        """Seconds for which workers may still have what a former life has given; 0: they have not."""
        return max(0.0, self.lanes.doubt_until - now)

    def figures(self, now: float) -> dict[str, Any]:
        """The number of items by state, and in ``oldest`` the age in seconds of the oldest of them, where it is known.

        That of a ready item counts from its put, of one that runs from when it was given, of a dead one from its death.
        """
        wall, oldest, ready = self.wall(now), {}, self.ready
        if at := self._ages.ready(ready, chain(self._released, self._series.waiting, self.lanes.heads()), self.lanes):
            oldest["ready"] = max(0, wall - at) / 1000
        if self._given:
            oldest["running"] = now - next(iter(self._given.values())).since
        if at := self._ages.dead(self.tally.dead):
            oldest["dead"] = max(0, wall - at) / 1000
        return {
            "ready": ready,
            "postponed": self.tally.later,
            "running": len(self._given),
            "dead": self.tally.dead,
            "bytes": self.tally.bytes,
            "oldest": oldest,
            "is_paused": self.is_paused,
            "is_draining": self.is_draining,
            "counters": dict(self.counters),
        }

    # --- items -------------------------------------------------------------------------------

    def refusal(self, items: int, size: int) -> Refused | None:
        """The reason for which so many new items, of ``size`` bytes, may not be put; None: there is none."""
        return Draining(self.name) if self.is_draining else fullness(self.name, self.tally, self._policy, items, size)

    def accepted(self, item: Stored) -> None:
        """A new item is in the store; :attr:`on_ready` is to be called after the last of them."""
        self.tally.items += 1
        self.tally.bytes += len(item.body)
        self.lanes.accepted(item)

    def postponed(self, of: Lane, number: int, size: int) -> None:
        """A new item of ``size`` bytes is in the store, which is due later."""
        self.tally.items += 1
        self.tally.bytes += size
        self.tally.postponed += 1
        self.lanes.skipped(of, number)
        self.on_postponed(of)

    def may_have_more(self, of: Lane) -> None:
        """An item of that lane is in the store whose number is not known."""
        self.lanes.may_have_more(of)
        self.on_ready()

    def became_due(self, item: Stored | Damaged, now: float) -> None:
        """A postponed item is due."""
        self.tally.in_hand += 1
        if isinstance(item, Damaged):
            return self._bury_as_it_is(now, item)
        self.lanes.became_due(item)
        self.on_ready()

    def recount(self, content: Recovered) -> None:
        """Take over the numbers of items that the store has."""
        self.tally.recount(self.name, self.lanes, content)
        self.results.size = content.results.get(self.name, 0)

    def take(self, now: float) -> Given | None:
        """The next item for a worker; None: there is none now."""
        if self.is_paused or (self._policy.concurrency and len(self._given) >= self._policy.concurrency):
            return None
        if self._store.waits_for or now < self._next_token:
            return None
        self._released.extend(self._series.over(now))
        if (found := self._next(now)) is None:
            return None
        item, envelope = found
        if self._rate is not None and (pause := self._rate.take(now)):
            self._next_token = now + pause
            self._released.appendleft(item)
            return None
        return self._give(now, item, envelope)

    def _next(self, now: float) -> tuple[Stored, Envelope] | None:
        while self._released or not self._series.is_full:
            item = self._released.popleft() if self._released else self.lanes.pop(now)
            if item is None:
                return None
            if isinstance(item, Damaged):
                self._bury_as_it_is(now, item)
                continue
            if self._held and (key := (item.lane.priority, item.number)) in self._held:
                self._held[key] = item
                continue
            try:
                envelope = Envelope.from_bytes(item.body)
            except ValueError as error:
                self._bury_as_it_is(now, item, text=str(error))
                continue
            if envelope.expires and self.wall(now) >= envelope.expires:
                self._bury_as_it_is(now, item, "expired", "nobody wanted it any more", envelope.unique or None)
            elif envelope.series and now < self.lanes.doubt_until:
                # Nobody knows of which series an item runs since the former life.
                self.lanes.set_aside(item)
            elif envelope.series and envelope.series in self._series:
                self._series.wait(envelope.series, item)
            else:
                return item, envelope
        return None

    def _give(self, now: float, item: Stored, envelope: Envelope) -> Given:
        story, fence = Story.from_bytes(item.state), (self._epoch, next(self._counter))
        attempt, is_last = story.attempts + 1, story.failures + 1 >= self._policy.attempts
        message, expires, series, keep_result, unique = envelope
        given = self._given[fence] = Given(item, fence, attempt, message, series, now, keep_result, is_last, expires)
        if series:
            self._series.begin(series)
        if unique:
            # Before anything else is said of it, so that its end is never durable without that.
            self._store.apply([Release(item.lane, item.number, unique)], lambda verdicts: None)
        self.counters["given"] += 1
        return given

    def next_deadline(self, now: float) -> float:
        """The time at which there may be something to take because time has passed (monotonic seconds)."""
        times = (self._next_token, self.lanes.doubt_until, self._series.next_end)
        return min((each for each in times if each > now), default=inf)

    # --- items that are taken away ---------------------------------------------------------

    @property
    def given(self) -> Iterator[Given]:
        """The items that workers have, the one first that was given first."""
        return iter(self._given.values())

    @property
    def in_memory(self) -> Iterator[Stored]:
        """The items that are ready and come before those that are still in the store only."""
        return chain(self._released, self._series.waiting, self.lanes.due, self.lanes.aside)

    def hold(self, now: float, keys: Iterable[Key]) -> set[Key]:
        """Give none of these items until :meth:`let_go`; return those of which that is sure.

        The others run, or may do so since a former life of the queue server, or are being taken away by others.
        """
        running = {(given.item.lane.priority, given.item.number) for given in self.given}
        held = set(keys) - running - self._held.keys()
        held -= self.lanes.in_doubt(now, held)
        self._held |= dict.fromkeys(held)
        return held

    def may_run(self, now: float, item: Stored | Damaged) -> bool:
        """Return whether a worker may run an item that is held and postponed: since a former life."""
        return now < self.lanes.doubt_until and 0 < item.position.due <= self._opened

    def let_go(self, held: set[Key], gone: set[Key]) -> None:
        """Give the items ``held`` again, but those that are ``gone`` from this queue, durably."""
        items = [*self.lanes.discard(gone), *self._series.discard(gone)]
        items += [item for item in self._released if (item.lane.priority, item.number) in gone]
        self._released = deque(item for item in self._released if (item.lane.priority, item.number) not in gone)
        for key in held:
            item = self._held.pop(key)
            if item is not None:
                (items if key in gone else self._released).append(item)
        self.tally.in_hand -= sum(1 for item in items if item.position.due)
        self.on_ready()

    def _is_given(self, priority: int, number: int) -> bool:
        return any((given.item.lane.priority, given.item.number) == (priority, number) for given in self.given)

    def undead(self, item: Stored | Damaged) -> None:
        """One of the dead items is not there any more."""
        self.tally.dead -= 1
        self.tally.bytes -= size_of(item)
        self._ages.forget_dead()

    # --- ends --------------------------------------------------------------------------------

    def done(
        self, fence: tuple[int, int], then: Callable[[], object] = lambda: None, result: bytes = b"", now: float = 0.0
    ) -> bool:  # fmt: skip
        """The item is done; ``then`` is called when that is durable. False: it is not given under this fence.

        Args:
            result: kept, if that was asked for.
            now: from which on it is kept; where it is not given, from when the item was given.
        """
        if (given := self._given.pop(fence, None)) is None:
            self.counters["too late"] += 1
            return False
        item, tally = given.item, self.tally

        def ended(verdicts: list[Verdict]) -> None:
            tally.ended(item)
            self.results.ended(item, Outcome(DONE, result))
            then()

        changes: list[Change] = [Done(item.lane, item.number, len(item.body))]
        if given.keep_result:
            until = self.wall(now or given.since) + given.keep_result
            changes += self.results.keep(item, until, DONE, result, self._policy.max_result_bytes)
        tally.ending += 1
        self._store.apply(changes, ended)
        self.counters["done"] += 1
        self._free(given)
        return True

    def failed(self, now: float, fence: tuple[int, int], worker: str, text: str, again: float | None = None) -> bool:
        """The item has failed, and is tried again, in ``again`` seconds if that is not None."""
        return self._comes_back(now, fence, Ending(self.wall(now), worker, "failed", text), again)

    def rejected(self, now: float, fence: tuple[int, int], worker: str, text: str) -> bool:
        """The item is not to be tried again."""
        return self._comes_back(now, fence, Ending(self.wall(now), worker, "rejected", text), None)

    def lost(self, now: float, fence: tuple[int, int], worker: str, text: str) -> bool:
        """Nobody knows whether the item runs, or has run: ``worker`` is lost; if empty, nobody knows who it was."""
        # That worker may go on until its lease is over, by its own clock. Nothing else of its series runs till then.
        delay = lease = self._policy.lease
        if (given := self._given.get(fence)) is not None:
            self._series.lost(given.series, now + lease)
            delay = self._suspects.delay(now, lease) if worker else lease
        return self._comes_back(now, fence, Ending(self.wall(now), worker, LOST if worker else IN_DOUBT, text), delay)

    def not_begun(self, fence: tuple[int, int]) -> bool:
        """The item was not begun: it is among the next ones again, and nothing has been tried."""
        if (given := self._given.pop(fence, None)) is None:
            return False
        # Many may come back at once, in any order.
        self._released = deque(
            sorted((given.item, *self._released), key=lambda each: (-each.lane.priority, each.number))
        )
        self._free(given)
        return True

    def _comes_back(self, now: float, fence: tuple[int, int], ending: Ending, again: float | None) -> bool:
        """The attempt has ended as ``ending`` says: the item is dead, or tried again."""
        if (given := self._given.pop(fence, None)) is None:
            self.counters["too late"] += 1
            return False
        self.counters[ending.outcome] += 1
        story = Story.from_bytes(given.item.state).with_ending(ending)
        if self._policy.gives_up(story):
            self._bury(given.item, story, is_told=ending.worker != "" and given.is_end(ending.outcome))
        else:
            delay = self._policy.delay(story.failures) if again is None else again
            self._postpone(given.item, ending.at + max(1, int(delay * 1000)), story)
        self._free(given)
        return True

    def _postpone(self, item: Stored, due: int, story: Story) -> None:
        def postponed(verdicts: list[Verdict]) -> None:
            self.tally.comes_again(item)
            self.on_postponed(item.lane)

        self.tally.ending += 1
        self._store.apply([Postpone(item.lane, item.number, due, story.to_bytes())], postponed)

    def _bury(self, item: Stored | Damaged, story: Story, is_told: bool = False, unique: bytes | None = None) -> None:
        """The item is dead; if it may have a unique key, it lets go of that: empty if nobody knows it."""
        ending = story.endings[-1]

        def buried(verdicts: list[Verdict]) -> None:
            self.tally.ended(item)
            self.tally.dead += 1
            self.tally.bytes += size_of(item)
            self.results.ended(item, Outcome(DEAD, text=story.reason))
            if not is_told:
                self.on_untold_death(ending.outcome)

        self.counters["dead"] += 1
        self.tally.ending += 1
        release = [] if unique is None else [Release(item.lane, item.number, unique)]
        self._store.apply([Bury(item.lane, item.number, ending.at, story.to_bytes()), *release], buried)

    def _bury_as_it_is(
        self, now: float, item: Stored | Damaged, outcome: str = "damaged",
        text: str = "its row in the store is not as it was written", unique: bytes | None = b"",
    ) -> None:  # fmt: skip
        story = Story() if isinstance(item, Damaged) else Story.from_bytes(item.state)
        self.counters[outcome] += 1
        self._bury(item, story.with_ending(Ending(self.wall(now), "", outcome, text)), unique=unique)

    def _free(self, given: Given) -> None:
        """A worker, and the item's series, are free for another one."""
        if given.series and (following := self._series.end(given.series)) is not None:
            self._released.append(following)
        self.on_ready()
