"""The promises of a work queue, checked on what its producers and workers have written down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path

from rpcmq.drill.history import Event, merged
from tests.faults.queue_roles import Seen

__all__ = ["Attempt", "Found", "History", "check", "read_history"]

#: Faults after which a process does nothing more.
_DEADLY = ("kill",)
#: Part of the mean by which the shares of equal workers may differ from it.
_UNEQUAL = 0.2


@dataclass(frozen=True)
class Attempt:
    """One run of a handler.

    Attributes:
        worker: the life of the process.
        ended: when it ended, or its process was killed; inf: it has not.
        outcome: ``ok`` or ``failed``; empty: its process was killed, or it has not ended.
        left: seconds of its lease when it ended.
        count: 1, 2, ... of the attempts that its queue server knows of.
        is_late: its lease was over when it began: its worker had been stopped, or cut off, meanwhile.
    """

    item: str
    worker: str
    fence: tuple[int, int]
    owner: str
    key: str | None
    began: float
    ended: float = inf
    outcome: str = ""
    left: float = 0.0
    count: int = 1
    is_late: bool = False


@dataclass
class History:
    """What happened, in order.

    Attributes:
        accepted: the owner and the number of each item whose producer has a receipt.
        unknown: items that may be in a queue.
        effects: the number of times that each item had its effect.
        dead: items that the queue has given up.
        left: items that are still in a queue.
    """

    events: Sequence[Event]
    effects: Mapping[str, int] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    left: int = 0

    def __post_init__(self) -> None:
        """Sort it."""
        self.accepted = {
            event.id: (event.fields["owner"], event.fields["number"])
            for event in self.events
            if event.what == Seen.ACCEPTED
        }
        self.refused = {event.id for event in self.events if event.what == Seen.REFUSED}
        self.put = {event.id for event in self.events if event.what == Seen.PUTTING}
        self.whole = max((event.at for event in self.events if event.what == Seen.WHOLE), default=0.0)
        self.kills = {
            event.fields["target"]: event.at
            for event in self.events
            if event.what == Seen.FAULT and event.id in _DEADLY
        }
        self.attempts = list(_attempts(self.events, self.kills))

    @property
    def done(self) -> dict[str, float]:
        """When each item that was done was done first."""
        found: dict[str, float] = {}
        for attempt in self.attempts:
            if attempt.outcome == "ok":
                found[attempt.item] = min(attempt.ended, found.get(attempt.item, inf))
        return found

    def shares(self, since: float | None = None) -> dict[str, int]:
        """The number of items that each worker has done since then; by default since all was whole."""
        since = self.whole if since is None else since
        done = Counter(
            each.worker.partition("#")[0] for each in self.attempts if each.outcome == "ok" and each.began >= since
        )
        return dict(sorted(done.items()))

    def seconds_to_drain(self) -> float:
        """Seconds from when all was whole to the end of the last item, but for those that were put to be shared."""
        until = min((event.at for event in self.events if event.what == Seen.EQUAL), default=inf)
        return max((at for at in self.done.values() if at < until), default=self.whole) - self.whole


class Found(list[str]):
    """What does not hold, in words."""


def read_history(folder: Path, effects: Iterable[str] = (), dead: Iterable[str] = (), left: int = 0) -> History:
    """The history of all processes in ``folder``."""
    return History(list(merged(sorted(folder.glob("*.history")))), Counter(effects), frozenset(dead), left)


def check(history: History) -> Found:
    """Everything in ``history`` that a queue must not do."""
    found = Found()
    done = history.done
    for item in history.accepted.keys() - done.keys() - history.dead:
        found.append(f"lost: {item} was accepted, and is neither done nor dead")
    for item in history.refused & done.keys() - history.accepted.keys():
        found.append(f"refused: {item} was refused, and was worked at")
    for item in {each.item for each in history.attempts} - history.put:
        found.append(f"from nowhere: {item} was worked at, and nobody has put it")
    if history.left:
        found.append(f"not drained: {history.left} items are left")
    for item, count in history.effects.items():
        if count > 1:
            found.append(f"effects: {item} had its effect {count} times")
    for item in done.keys() - history.effects.keys():
        found.append(f"effects: {item} is done without its effect")
    found += _never_ended(history)
    found += _held_twice(history)
    found += _overlapping(history)
    found += _out_of_order(history)
    found += _unequal(history)
    return found


def _attempts(events: Sequence[Event], kills: Mapping[str, float]) -> Iterable[Attempt]:
    ends = {
        (event.process, event.id, tuple(event.fields["fence"])): event for event in events if event.what == Seen.END
    }
    for event in events:
        if event.what != Seen.BEGIN:
            continue
        fence = tuple(event.fields["fence"])
        end = ends.get((event.process, event.id, fence))
        about = (event.id, event.process, fence, event.fields["owner"], event.fields["key"], event.at)
        if end is None:
            ending = (kills.get(event.process, inf), "", 0.0)
        else:
            ending = (end.at, end.fields["outcome"], end.fields["left"])
        yield Attempt(*about, *ending, event.fields["attempt"], event.fields.get("left", inf) <= 0)


def _never_ended(history: History) -> Iterable[str]:
    for each in history.attempts:
        if each.ended == inf:
            yield f"never ended: {each.item} at {each.worker}, which was not killed"


def _held_twice(history: History) -> Iterable[str]:
    """One fence, or one attempt, of an item at two workers."""
    fences: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for each in history.attempts:
        fences[each.owner, each.fence].append(f"{each.item} at {each.worker}")
    for (owner, fence), who in fences.items():
        if len(who) > 1:
            yield f"fence: {fence} of {owner} was held by {' and by '.join(who)}"


def _overlapping(history: History) -> Iterable[str]:
    """Two attempts of one item, or of one series, at the same time, though the first one had its lease."""
    groups: dict[tuple[str, ...], list[Attempt]] = defaultdict(list)
    for each in history.attempts:
        groups["item", each.item].append(each)
        if each.key is not None:
            groups["series", each.owner, each.key].append(each)
    hurt = _hurt(history.events)
    for name, attempts in groups.items():
        attempts.sort(key=lambda each: each.began)
        for at, one in enumerate(attempts):
            for other in attempts[at + 1 :]:
                if other.began >= one.ended:
                    break
                stale, valid = sorted((one, other), key=lambda each: each.fence)
                if not _had_lost_its_lease(stale, valid.began, hurt):
                    yield (
                        f"at the same time: {' '.join(name)}: {stale.item} at {stale.worker} under {stale.fence}, "
                        f"{stale.began:.3f} to {stale.ended:.3f}, with {stale.left:g} s of its lease left, and "
                        f"{valid.item} at {valid.worker} under {valid.fence} from {valid.began:.3f}"
                    )


def _out_of_order(history: History) -> Iterable[str]:
    """Items of one series that were begun before others of it that were put before them, at the same owner.

    One that may have been given before, to a worker that was killed, is tried again after its turn; and what was given
    in time to a worker that was stopped begins there when it goes on.
    """
    first: dict[str, Attempt] = {}
    for each in history.attempts:
        if each.is_late:
            continue
        if each.item not in first or each.began < first[each.item].began:
            first[each.item] = each
    series: dict[tuple[str, str], list[tuple[int, Attempt]]] = defaultdict(list)
    for item, attempt in first.items():
        owner, number = history.accepted.get(item, ("", 0))
        # A receipt of a put that was repeated has no number.
        if attempt.key is not None and attempt.count == 1 and owner == attempt.owner and number:
            series[owner, attempt.key].append((number, attempt))
    for (owner, key), row in series.items():
        row.sort(key=lambda each: each[0])
        for (number, one), (later, other) in pairwise(row):
            if other.began < one.began:
                yield (
                    f"out of order: series {key} of {owner}: {other.item}, its number {later}, was begun at "
                    f"{other.began:.3f}, before {one.item}, its number {number}, at {one.began:.3f}"
                )


def _unequal(history: History) -> Iterable[str]:
    """Workers that have done more than a fifth less, or more, than the mean, since they were equal."""
    for event in history.events:
        if event.what == Seen.EQUAL:
            shares = dict.fromkeys(event.fields["workers"], 0) | history.shares(event.at)
            mean = sum(shares.values()) / len(shares)
            if any(abs(share - mean) > _UNEQUAL * mean for share in shares.values()):
                yield f"shares: equal workers have done {shares}"


def _had_lost_its_lease(one: Attempt, other_began: float, hurt: Mapping[str, list[tuple[float, float]]]) -> bool:
    if one.outcome:
        return one.left <= 0
    # It was killed before it could say so: it must have been silent for some time.
    return any(begin < other_began and end > one.began for begin, end in hurt.get(one.worker, ()))


def _hurt(events: Sequence[Event]) -> dict[str, list[tuple[float, float]]]:
    """The times in which each process was stopped, or was cut off, or had no router."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    open_: dict[tuple[str, str], float] = {}
    for event in events:
        if event.what == Seen.FAULT:
            open_[event.id, event.fields["target"]] = event.at
        elif event.what == Seen.HEALED:
            begin = open_.pop((event.id, event.fields["target"]), None)
            if begin is not None:
                found[event.fields["target"]].append((begin, event.at))
    for (_, target), begin in open_.items():
        found[target].append((begin, inf))
    return found
