"""The times of a cron expression, in a time zone: the next one, and those that have passed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

__all__ = ["LONGEST_CRON", "Schedule"]

#: Bytes of an expression.
LONGEST_CRON = 200
#: The values of a field, by the text with which it is refused.
_VALUES = {
    "Bad second": "0 to 59",
    "Bad minute": "0 to 59",
    "Bad hour": "0 to 23",
    "Bad day-of-month": "1 to 31, in one of its months at least",
    "Bad month": "1 to 12, or JAN to DEC",
    "Bad day-of-week": "0 to 7, from Sunday to Sunday, or SUN to SAT",
}
#: Times that have passed are looked for in spans that grow: the first (milliseconds), and how many times each next one.
_FIRST_SPAN, _GROWTH = 120_000, 4


class Schedule:
    """The times of ``cron``, milliseconds of the wall clock.

    Args:
        cron: five fields as those of crontab(5): minute, hour, day of the month, month, day of the week; or six, the
            first of them the second.
        zone: of the expression, such as ``Europe/Berlin``. A time that a change of the clocks leaves out, or has
            twice, is there once.

    Raises:
        ValueError: they cannot be; the text says why.
    """

    def __init__(self, cron: str, zone: str = "UTC") -> None:
        if not isinstance(cron, str) or len(cron.encode()) > LONGEST_CRON:
            raise ValueError(f"a cron expression is a text of at most {LONGEST_CRON} bytes")
        if len(cron.split()) not in (5, 6):
            text = "it must have five fields (minute hour day month weekday), or six with the second first"
            raise ValueError(f"{cron!r} is no cron expression: {text}")
        self._cron = cron
        try:
            CronSim(cron, datetime.fromtimestamp(0, UTC))
        except CronSimError as error:
            raise ValueError(f"{cron!r} is no cron expression: {_told(str(error))}") from None
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise ValueError(f"there is no time zone {str(zone)[:80]!r} on the machine of the queue server") from None

    def next(self, after: int) -> int:
        """The first time later than ``after``; 0: there is none in the 50 years after that."""
        return next(self._times(after), 0)

    def passed(self, after: int, until: int, most: int) -> list[int]:
        """The last ``most`` times that are later than ``after``, and ``until`` at the latest, in their order."""
        span = _FIRST_SPAN
        while True:
            begin = max(after, until - span)
            last: deque[int] = deque(maxlen=most)
            for time in self._times(begin):
                if time > until:
                    break
                last.append(time)
            if begin == after or len(last) == most:
                return list(last)
            span *= _GROWTH

    def shown(self, time: int) -> str:
        """``time`` on the clocks of the time zone."""
        return datetime.fromtimestamp(time / 1000, self._zone).isoformat(timespec="seconds")

    def _times(self, after: int) -> Iterator[int]:
        for found in CronSim(self._cron, datetime.fromtimestamp(after // 1000, self._zone)):
            # Where the clocks were put back, a time of the first of both hours may come after one of the second.
            if (time := int(found.timestamp() * 1000)) > after:
                yield time


def _told(error: str) -> str:
    """The text of a refusal, with the values that there are."""
    values = _VALUES.get(error)
    return f"{error}: there are {values}" if values else error
