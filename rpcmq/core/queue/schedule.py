"""Periodic items: those that are due by their cron expressions, each with an id of its own, so that none is put twice.

Whoever puts an item for each time asks now and then what has become due, and puts it with the id that it is given:
however many ask, and whatever dies in between, an id is put once. Ids are remembered for a day, so that nothing is made
up for that was missed for longer than half of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

__all__ = ["Due", "Periodic", "Schedule"]

#: Times that were missed are made up for if they are not older (milliseconds), and of each item so many, the last ones.
_BACK, _MOST = 12 * 3600 * 1000, 100
#: Bytes of a name, so that there is room for the time in an id.
_NAME_BYTES = 200


class Periodic(NamedTuple):
    """An item that is to be put again and again.

    Attributes:
        name: the ids begin with it.
        cron: five fields as those of crontab(5): minute, hour, day of the month, month, day of the week.
        timezone: of the expression. A time that a change of the clocks leaves out, or has twice, is due once.
    """

    name: str
    cron: str
    timezone: str = "UTC"


class Due(NamedTuple):
    """An item that is to be put now.

    Attributes:
        name: of the periodic item.
        id: such as ``name@2026-11-23T12:00:00Z``.
        at: the time for which it is (milliseconds of the wall clock).
    """

    name: str
    id: bytes
    at: int


class Schedule:
    """The periodic items ``entries``. Times are milliseconds of the wall clock.

    Raises:
        ValueError: one of them cannot be; the text names it.
    """

    def __init__(self, entries: Iterable[Periodic]) -> None:
        self._entries = [(entry, _zone(entry)) for entry in entries]
        names = [entry.name for entry, _ in self._entries]
        for entry, _ in self._entries:
            if not 0 < len(entry.name.encode()) <= _NAME_BYTES or "@" in entry.name:
                text = f"a text of 1 to {_NAME_BYTES} bytes without an @"
                raise ValueError(f"the name of a periodic item must be {text}, not {entry.name!r}")
            if names.count(entry.name) > 1:
                raise ValueError(f"there is more than one periodic item {entry.name!r}")
            if len(entry.cron.split()) != 5:
                text = f"periodic item {entry.name!r}: {entry.cron!r} is no cron expression: it has not five fields"
                raise ValueError(text)
            try:
                CronSim(entry.cron, datetime.fromtimestamp(0, UTC))
            except CronSimError as error:
                text = f"periodic item {entry.name!r}: {entry.cron!r} is no cron expression: {error}"
                raise ValueError(text) from None

    def due(self, after: int, until: int) -> list[Due]:
        """List the items whose time is later than ``after``, and ``until`` at the latest, in their order.

        Of what was missed it has nothing that is older than 12 hours, and of each item the last 100.
        """
        found: list[Due] = []
        for entry, zone in self._entries:
            last: deque[Due] = deque(maxlen=_MOST)
            for time in _times(entry, zone, max(after, until - _BACK)):
                at = int(time.timestamp() * 1000)
                if at > until:
                    break
                last.append(Due(entry.name, f"{entry.name}@{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}".encode(), at))
            found += last
        return sorted(found, key=lambda due: (due.at, due.name))

    def next(self, after: int) -> int:
        """The time at which the next item is due; 0: none will ever be."""
        times = (next(_times(entry, zone, after), None) for entry, zone in self._entries)
        return min((int(time.timestamp() * 1000) for time in times if time is not None), default=0)


def _zone(entry: Periodic) -> ZoneInfo:
    try:
        return ZoneInfo(entry.timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"periodic item {entry.name!r}: there is no time zone {entry.timezone!r}") from None


def _times(entry: Periodic, zone: ZoneInfo, after: int) -> Iterator[datetime]:
    # It goes by whole seconds: what is in this one is the next one's.
    return iter(CronSim(entry.cron, datetime.fromtimestamp(after // 1000, zone)))
