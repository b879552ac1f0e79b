"""One work queue: items go to workers, the higher priority and the older first, and come back until they are done.

An item is given under a *fence*, the epoch of the store and a counter that only grows. Whatever is said of it under an
older one changes nothing. It is the store's truth that counts: an item is done, postponed or dead once that is durable;
until then it is given to nobody.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.lane_reader import LaneReader
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.port import StorePort
from rpcmq.core.queue.story import Ending, Story
from rpcmq.store.contract import Bury, Change, Damaged, Done, Lane, Note, Postpone, Stored, Verdict

__all__ = ["Given", "WorkQueue"]

#: Numbers of a lane up to which items may be given, without saying so to the store first.
_AHEAD = 1000
#: Items that wait for others of their series, at the most: more wait in the lane, with all that is behind them.
_MOST_WAITING = 1000
#: The name of a lane's horizon in the store begins with this.
HORIZON = "horizon"


@dataclass(frozen=True)
class Given:
    """An item that a worker has.

    Attributes:
        item: as it was read.
        fence: (epoch, counter).
        attempt: from 1 on.
        message: for the worker.
        series: of its items runs one at a time; empty: it has none.
    """

    item: Stored
    fence: tuple[int, int]
    attempt: int
    message: bytes
    series: bytes


class WorkQueue:
    """The items of one queue.

    Args:
        name: of the queue.
        epoch: of the store.
        opened: monotonic seconds at which the store was opened.
        wall: turns monotonic seconds into milliseconds of the wall clock.
        is_clean: the former life of the router has ended in order, so that no worker has an item.
        lanes: the greatest number that may have been given in a former life, of each lane that there is.
    """

    def __init__(
        self, name: str, store: StorePort, policy: Policy, epoch: int, opened: float, wall: Callable[[float], int],
        is_clean: bool, lanes: dict[Lane, int],
    ) -> None:  # fmt: skip
        self.name = name
        self._store = store
        self._policy = policy
        self._epoch = epoch
        #: Turns monotonic seconds into milliseconds of the wall clock.
        self.wall = self._wall = wall
        self._counter = 0
        self._doubt_until = -inf if is_clean else opened + policy.lease
        self._lanes: dict[int, _Lane] = {}
        for lane, horizon in sorted(lanes.items(), reverse=True):
            doubtful = LaneReader(store, lane, until=horizon)
            self._lanes[lane.priority] = _Lane(LaneReader(store, lane, horizon), doubtful, horizon)
        #: By fence.
        self._given: dict[tuple[int, int], Given] = {}
        self._series: set[bytes] = set()
        self._waiting: dict[bytes, deque[Stored]] = {}
        self._waiting_items = 0
        #: Items that are next: they were not begun, or one of their series has ended.
        self._released: deque[Stored] = deque()
        self._rate: TokenBucket | None = None
        self._next_token = -inf
        self.is_paused = False
        self.counters: Counter[str] = Counter()
        #: Called when there may be something to take.
        self.on_ready: Callable[[], object] = lambda: None

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

    # --- items -------------------------------------------------------------------------------

    def accepted(self, item: Stored) -> None:
        """A new item is in the store."""
        lane = self._lane(item.lane)
        lane.reader.accepted(item)
        self.on_ready()

    def postponed(self, of: Lane, number: int) -> None:
        """A new item is in the store, which is due later."""
        self._lane(of).reader.skipped(number)
        self.on_postponed()

    def may_have_more(self, of: Lane) -> None:
        """An item of that lane is in the store whose number is not known."""
        self._lane(of).reader.may_have_more()
        self.on_ready()

    def became_due(self, item: Stored | Damaged, now: float) -> None:
        """A postponed item is due."""
        if isinstance(item, Damaged):
            self._bury_damaged(now, item)
            return
        self._lane(item.lane).due.append(item)
        self.on_ready()

    def _lane(self, of: Lane) -> _Lane:
        lane = self._lanes.get(of.priority)
        if lane is None:
            lane = self._lanes[of.priority] = _Lane(LaneReader(self._store, of, has_more=False), None, 0)
            self._lanes = dict(sorted(self._lanes.items(), reverse=True))
        return lane

    def take(self, now: float) -> Given | None:
        """The next item for a worker; None: there is none now."""
        if self.is_paused or (self._policy.concurrency and len(self._given) >= self._policy.concurrency):
            return None
        if self._store.waits_for or now < self._next_token:
            return None
        item = self._next(now)
        if item is None:
            return None
        if self._rate is not None and (pause := self._rate.take(now)):
            self._next_token = now + pause
            self._released.appendleft(item)
            return None
        return self._give(item)

    def _next(self, now: float) -> Stored | None:
        while self._waiting_items < _MOST_WAITING or self._released:
            item = self._head(now)
            if item is None:
                return None
            if isinstance(item, Damaged):
                self._bury_damaged(now, item)
                continue
            envelope = Envelope.from_bytes(item.body)
            if envelope.expires and self._wall(now) >= envelope.expires:
                self._end(now, item, Ending(self._wall(now), "", "expired", "nobody wanted it any more"))
            elif envelope.series and envelope.series in self._series:
                self._waiting.setdefault(envelope.series, deque()).append(item)
                self._waiting_items += 1
            else:
                return item
        return None

    def _head(self, now: float) -> Stored | Damaged | None:
        """Remove and return the item whose turn it is."""
        if self._released:
            return self._released.popleft()
        is_over = now >= self._doubt_until
        for priority, lane in self._lanes.items():
            if is_over and lane.due:
                return lane.due.popleft()
            if is_over and lane.doubtful is not None and (item := lane.doubtful.head) is not None:
                lane.doubtful.pop()
                return item
            item = lane.reader.head
            if item is not None and self._may_be_given(priority, lane, item.number):
                lane.reader.pop()
                return item
        return None

    def _may_be_given(self, priority: int, lane: _Lane, number: int) -> bool:
        """Whether the store knows that ``number`` may have been given; it is told in time, for many at once."""
        if number > lane.asked - _AHEAD // 2:
            lane.asked = asked = number + _AHEAD
            name = f"{HORIZON} {priority} {self.name}"

            def known(verdicts: list[Verdict]) -> None:
                lane.horizon = asked
                self.on_ready()

            self._store.apply([Note(name, asked.to_bytes(8))], known)
        return number <= lane.horizon

    def _give(self, item: Stored) -> Given:
        envelope = Envelope.from_bytes(item.body)
        self._counter += 1
        attempt = Story.from_bytes(item.state).attempts + 1
        fence = self._epoch, self._counter
        given = Given(item, fence, attempt, envelope.message, envelope.series)
        self._given[given.fence] = given
        if given.series:
            self._series.add(given.series)
        self.counters["given"] += 1
        return given

    def next_deadline(self, now: float) -> float:
        """The time at which there may be something to take because time has passed (monotonic seconds)."""
        return min((each for each in (self._next_token, self._doubt_until) if each > now), default=inf)

    # --- ends --------------------------------------------------------------------------------

    def done(self, fence: tuple[int, int], then: Callable[[], object] = lambda: None) -> bool:
        """The item is done; ``then`` is called when that is durable. False: it is not given under this fence."""
        given = self._given.pop(fence, None)
        if given is None:
            self.counters["too late"] += 1
            return False
        self._store.apply([Done(given.item.lane, given.item.number)], lambda verdicts: then())
        self.counters["done"] += 1
        self._free(given)
        return True

    def failed(self, now: float, fence: tuple[int, int], worker: str, text: str, again: float | None = None) -> bool:
        """The item has failed, and is tried again, in ``again`` seconds if that is not None."""
        return self._comes_back(now, fence, Ending(self._wall(now), worker, "failed", text), again)

    def rejected(self, now: float, fence: tuple[int, int], worker: str, text: str) -> bool:
        """The item is not to be tried again."""
        return self._comes_back(now, fence, Ending(self._wall(now), worker, "rejected", text), None)

    def lost(self, now: float, fence: tuple[int, int], worker: str, text: str) -> bool:
        """Nobody knows whether the item runs, or has run: its worker is lost."""
        # That worker may go on until its lease is over, by its own clock.
        return self._comes_back(now, fence, Ending(self._wall(now), worker, "lost", text), self._policy.lease)

    def not_begun(self, fence: tuple[int, int]) -> bool:
        """The item was not begun: it is the next one again, and nothing has been tried."""
        given = self._given.pop(fence, None)
        if given is None:
            return False
        self._released.appendleft(given.item)
        self._free(given)
        return True

    def _comes_back(self, now: float, fence: tuple[int, int], ending: Ending, again: float | None) -> bool:
        given = self._given.pop(fence, None)
        if given is None:
            self.counters["too late"] += 1
            return False
        self.counters[ending.outcome] += 1
        self._end(now, given.item, ending, again)
        self._free(given)
        return True

    def _end(self, now: float, item: Stored, ending: Ending, again: float | None = None) -> None:
        """The attempt, or the item, has ended as ``ending`` says: it is dead, or tried again."""
        story = Story.from_bytes(item.state).with_ending(ending)
        policy = self._policy
        is_dead = (
            ending.outcome in ("rejected", "expired")
            or story.failures >= policy.attempts
            or story.losses >= policy.losses
            or (ending.outcome == "lost" and policy.on_lost == "park")
        )
        change: Change
        if is_dead:
            change = Bury(item.lane, item.number, ending.at, story.to_bytes())
            self.counters["dead"] += 1
        else:
            delay = policy.delay(story.failures) if again is None else again
            change = Postpone(item.lane, item.number, ending.at + max(1, int(delay * 1000)), story.to_bytes())
        self._store.apply([change], lambda verdicts: self.on_postponed())

    def _bury_damaged(self, now: float, item: Damaged) -> None:
        ending = Ending(self._wall(now), "", "damaged", "its row in the store is not as it was written")
        story = Story().with_ending(ending).to_bytes()
        self._store.apply([Bury(item.lane, item.number, ending.at, story)], lambda verdicts: None)
        self.counters["damaged"] += 1

    def _free(self, given: Given) -> None:
        """A worker, and the item's series, are free for another one."""
        if given.series:
            self._series.discard(given.series)
            waiting = self._waiting.get(given.series)
            if waiting:
                self._waiting_items -= 1
                self._released.append(waiting.popleft())
            if not waiting:
                self._waiting.pop(given.series, None)
        self.on_ready()

    #: Called when an item was postponed.
    on_postponed: Callable[[], object] = staticmethod(lambda: None)


class _Lane:
    """One lane: the items that are next, and how far they may be given."""

    def __init__(self, reader: LaneReader, doubtful: LaneReader | None, horizon: int) -> None:
        self.reader = reader
        #: Items that may have run in a former life of the router, and may still do.
        self.doubtful = doubtful
        #: The store knows that items up to this number may have been given; and it was told so of these.
        self.horizon = self.asked = horizon
        #: Items that are due.
        self.due: deque[Stored] = deque()
