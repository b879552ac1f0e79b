"""Dates of HTTP (RFC 9110 section 5.6.7)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

__all__ = ["format_date", "parse_date"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(" + "|".join(_MONTHS) + ")"
_TIME = r"([0-2][0-9]):([0-5][0-9]):([0-6][0-9])"
#: Characters of the longest date, "Wednesday, 02-Sep-26 10:00:00 GMT", and some more; clients send dates of any length.
_LONGEST = 40
# A cache matches dates in any case, though they are written in one (RFC 9111 section 4.2).
_IMF = re.compile(rf"[a-z]{{3}}, ([0-3][0-9]) {_MONTH} ([0-9]{{4}}) {_TIME} GMT", re.IGNORECASE)
_RFC850 = re.compile(rf"[a-z]{{6,9}}, ([0-3][0-9])-{_MONTH}-([0-9]{{2}}) {_TIME} GMT", re.IGNORECASE)
_ASCTIME = re.compile(rf"[a-z]{{3}} {_MONTH} ([ 0-3][0-9]) {_TIME} ([0-9]{{4}})", re.IGNORECASE)


def parse_date(text: str | None, now: float) -> float | None:
    """Return the time that ``text`` says in one of HTTP's three formats; None: it is no such date, or there is none.

    ``now`` tells the century of a year that has two digits. A zone other than GMT is no date (RFC 9111 section 4.2).
    """
    if not text or len(text) > _LONGEST:
        return None
    if found := _RFC850.fullmatch(text):
        return _two_digit_year(found, now)
    return _parse(text)


@lru_cache(maxsize=1024)
def format_date(second: int) -> str:
    """Return ``second``, of the wall clock, as a date of HTTP."""
    when = datetime.fromtimestamp(second, UTC)
    day, month = _DAYS[when.weekday()], _MONTHS[when.month - 1]
    return f"{day}, {when.day:02} {month} {when.year:04} {when.hour:02}:{when.minute:02}:{when.second:02} GMT"


@lru_cache(maxsize=4096)
def _parse(text: str) -> float | None:
    if found := _IMF.fullmatch(text):
        day, month, year, *time = found.groups()
    elif found := _ASCTIME.fullmatch(text):
        month, day, *time, year = found.groups()
    else:
        return None
    return _timestamp(int(year), month, day, time)


def _two_digit_year(found: re.Match[str], now: float) -> float | None:
    day, month, digits, *time = found.groups()
    this_year = datetime.fromtimestamp(now, UTC).year
    year = this_year - this_year % 100 + int(digits)
    # More than fifty years ahead is the most recent year in the past with these digits.
    return _timestamp(year - 100 if year > this_year + 50 else year, month, day, time)


def _timestamp(year: int, month: str, day: str, time: list[str]) -> float | None:
    hour, minute, second = map(int, time)
    try:
        # A leap second is the one before it.
        when = datetime(year, _MONTHS.index(month.title()) + 1, int(day), hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return when.timestamp()
