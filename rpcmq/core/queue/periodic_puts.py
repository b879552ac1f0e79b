"""Puts periodic items when their times come, each time once, whatever dies in between.

The time for which an item was put last is noted in the commit that puts it: so both are there, or neither is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from rpcmq.core.queue.periodic import Periodic, PeriodicKey, item_id
from rpcmq.core.queue.queues import NewItem, Queues
from rpcmq.core.queue.refusals import Refused
from rpcmq.core.queue.schedule import Schedule
from rpcmq.store.contract import PERIODIC, Change, Note, Verdict

__all__ = ["MOST", "MOST_BYTES", "PeriodicPuts"]

#: Periodic items of one owner, and the bytes that they take in its store.
MOST, MOST_BYTES = 1000, 16 << 20
#: The name of the note with the time of the last item begins with this.
_LAST = "last of periodic "
#: Of the times that were missed so many are made up for, the last ones, where that is wanted for all of them.
_MOST_MISSED = 100
#: A time that passed no longer ago is not missed, though the queue server was being started again (milliseconds).
_JUST_PASSED = 60_000
#: A time of the last item that is so much later than now is that of a clock that was wrong (milliseconds).
_WRONG = 12 * 3600 * 1000
#: A queue that takes nothing is asked again so much later (milliseconds).
_AGAIN = 5000
#: In place of the digest of the message, which may have changed: the id alone says for which time an item is.
_DIGEST = b"periodic"
#: Makes a time that is none of a schedule, whose are whole seconds: nothing was put for it.
_BEGIN = 1
_NEVER = 1 << 62


class PeriodicPuts:
    """The periodic items of one owner.

    Args:
        notes: of the store, as it was opened.
        begins: monotonic seconds before which nothing is put.
        clock: milliseconds of the wall clock.
        warn: called with what people should know.
        on_earlier: called when :meth:`next_deadline` may be earlier than it was.
    """

    def __init__(
        self, queues: Queues, notes: Mapping[str, bytes], begins: float, clock: int, warn: Callable[[str], object],
        on_earlier: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._queues = queues
        self._begins = begins
        self._warn = warn
        self._on_earlier = on_earlier
        self._clock = clock
        self._entries: dict[PeriodicKey, _Entry] = {}
        for name, raw in notes.items():
            if name.startswith(PERIODIC):
                last = int.from_bytes(notes.get(_LAST + name[len(PERIODIC) :], b""))
                try:
                    periodic = Periodic.from_bytes(raw)
                except (TypeError, ValueError, KeyError) as error:
                    warn(f"{name!r} is not put: another version has kept it: {error}")
                    continue
                self._entries[periodic.key] = _Entry(periodic, len(raw), last or clock | _BEGIN)
        #: The clock at which something is to be done.
        self._due = 0

    def __len__(self) -> int:
        """Their number."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Return whether there is one of that name."""
        return key in self._entries

    def declare(self, periodic: Periodic, clock: int, beside: Note, then: Callable[[dict[str, Any]], object]) -> None:
        """Put ``periodic`` at its times from now on; ``then`` gets its row when that is durable, with ``beside``.

        One that is there under the same name is replaced. If its times are the same, what was missed of them is not
        forgotten.

        Raises:
            ValueError: it cannot be, or there are too many.
        """
        key, raw = periodic.key, periodic.to_bytes()
        before = self._entries.get(key)
        others = [entry for entry in self._entries.values() if entry is not before]
        if len(others) >= MOST or sum(entry.size for entry in others) + len(raw) > MOST_BYTES:
            raise ValueError(f"an owner has {MOST} periodic items at the most, of {MOST_BYTES} bytes together")
        schedule = periodic.schedule()
        if not schedule.next(clock):
            raise ValueError(f"{periodic.cron!r} has no time in the next 50 years")
        changes = [Note(PERIODIC + _name(key), raw), beside]
        if before is not None and before.has_times_of(periodic):
            entry = _Entry(periodic, len(raw), before.last)
            # What is on its way for the former one is on its way for this one.
            entry.asked = before.asked
        else:
            entry = _Entry(periodic, len(raw), clock | _BEGIN)
            changes.append(Note(_LAST + _name(key), entry.last.to_bytes(8)))
        self._entries[key] = entry
        self._due = 0
        self._queues.store.apply(changes, lambda verdicts: then(entry.row()))
        self._on_earlier()

    def remove(self, key: PeriodicKey, beside: Note, then: Callable[[bool], object]) -> None:
        """Put the items of ``key`` no more; ``then`` is told when that is durable whether there were any."""
        was_there = self._entries.pop(key, None) is not None
        changes: list[Change] = [beside]
        if was_there:
            changes += [Note(PERIODIC + _name(key), b""), Note(_LAST + _name(key), b"")]
        self._queues.store.apply(changes, lambda verdicts: then(was_there))

    def rows(self, queue: str = "") -> list[dict[str, Any]]:
        """All about each of them, or about those of ``queue``, in their order."""
        entries = sorted(self._entries.items())
        return [entry.row() for key, entry in entries if not queue or key.queue == queue]

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float, clock: int) -> None:
        """Put what is due at ``now`` by the clock, which may have been set."""
        was_put_back = clock < self._clock
        self._clock = clock
        if now < self._begins or not (was_put_back or clock >= self._due):
            return
        for entry in list(self._entries.values()):
            if entry.last > clock + _WRONG:
                warn = f"{_shown(entry.periodic.key)} begins anew: it was put for a time that is far from now"
                self._warn(f"{warn}, so the clock was wrong")
                entry.begin_after(clock | _BEGIN)
            if clock >= entry.due:
                self._put(now, clock, entry)
        self._due = min((entry.due for entry in self._entries.values()), default=_NEVER)

    def next_deadline(self, now: float, clock: int) -> float:
        """The time of the next :meth:`tick` (monotonic seconds); once the clock is set it may be an earlier one."""
        if not self._entries:
            return inf
        return max(self._begins, now + (self._due - clock) / 1000)

    def _put(self, now: float, clock: int, entry: _Entry) -> None:
        times, last = entry.passed(clock)
        periodic = entry.periodic
        note = Note(_LAST + _name(periodic.key), last.to_bytes(8))
        expires = self._queues.wall(now) + max(1, int(periodic.expires * 1000)) if periodic.expires else 0
        items = [
            NewItem(
                periodic.message, _DIGEST, item_id(periodic.name, at), priority=periodic.priority, expires=expires,
                series=periodic.series.encode(), unique=periodic.unique.encode(),
            )
            for at in times
        ]  # fmt: skip
        entry.asked = last

        def put(verdicts: list[Verdict]) -> None:
            for at, verdict in zip(times, verdicts, strict=True):
                if verdict.is_other:
                    id = item_id(periodic.name, at).decode()
                    self._warn(f"{_shown(periodic.key)} is not put: an item that was put otherwise has the id {id!r}")
            self._answered(periodic.key, last, "", clock)

        def refused(refusal: Refused) -> None:
            self._answered(periodic.key, last, str(refusal), clock)

        self._queues.put(now, periodic.queue, items, put, refused, [note])

    def _answered(self, key: PeriodicKey, last: int, refusal: str, clock: int) -> None:
        entry = self._entries.get(key)
        if entry is None or entry.asked != last:
            return  # it was removed, or declared anew, meanwhile
        entry.asked = 0
        if refusal:
            if not entry.refusal:
                self._warn(f"{_shown(key)} is not put: {refusal}")
            entry.refuse(refusal, clock + _AGAIN)
        else:
            entry.begin_after(last)
        self._due = min(self._due, entry.due)
        self._on_earlier()


class _Entry:
    """A periodic item, and how far it was put.

    Attributes:
        size: bytes that it takes in the store.
        last: the time for which it was put last, or from which on it is put.
        asked: the same once the store has answered; 0: nothing is on its way.
        refusal: the reason for which it is not put; empty: there is none.
    """

    def __init__(self, periodic: Periodic, size: int, last: int) -> None:
        self.periodic = periodic
        self.size = size
        self.asked = 0
        self.refusal = ""
        self._schedule: Schedule | None = None
        try:
            self._schedule = periodic.schedule()
        except ValueError as error:
            # It was declared on a machine, or by a version, that knew its times.
            self.refusal = str(error)
        self.begin_after(last)

    def begin_after(self, last: int) -> None:
        """It was put for all times up to ``last``."""
        self.last = last
        self._next = self._schedule.next(last) if self._schedule is not None else 0
        self._due = self._next
        if self._schedule is not None:
            self.refusal = ""

    def refuse(self, refusal: str, again: int) -> None:
        """Its queue has not taken it; it is tried again at the time ``again``."""
        self.refusal, self._due = refusal, again

    @property
    def due(self) -> int:
        """The clock at which it is to be put."""
        return _NEVER if self.asked or not self._due else self._due

    def has_times_of(self, periodic: Periodic) -> bool:
        """Return whether ``periodic`` has the same times."""
        return (periodic.cron, periodic.zone) == (self.periodic.cron, self.periodic.zone)

    def passed(self, clock: int) -> tuple[list[int], int]:
        """The times for which it is to be put now, and the last one that has passed."""
        assert self._schedule is not None
        missed = self.periodic.missed
        times = self._schedule.passed(self.last, clock, _MOST_MISSED if missed == "all" else 1)
        last = times[-1] if times else self.last
        if missed == "skip" and last < clock - _JUST_PASSED:
            times = []
        return times, last

    def row(self) -> dict[str, Any]:
        """All about it, its times on the clocks of its zone."""
        periodic, schedule = self.periodic, self._schedule
        return {
            "queue": periodic.queue,
            "name": periodic.name,
            "cron": periodic.cron,
            "zone": periodic.zone,
            "missed": periodic.missed,
            "next": schedule.shown(self._next) if schedule is not None and self._next else None,
            "last": schedule.shown(self.last) if schedule is not None and not self.last & _BEGIN else None,
            "why": self.refusal,
        }


def _shown(key: PeriodicKey) -> str:
    return f"periodic item {key.name!r} of queue {key.queue!r}"


def _name(key: PeriodicKey) -> str:
    # No name has a line feed.
    return f"{key.queue}\n{key.name}"
