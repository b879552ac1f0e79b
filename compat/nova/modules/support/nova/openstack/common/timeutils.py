"""Times of the services: UTC, without a zone. ``set_time_override`` stops the clock for a test."""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Sequence
from typing import Any

from compat.nova.primitives import PERFECT_TIME_FORMAT
from compat.nova.primitives import strtime as _strtime

TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"
ISO8601_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

_Time = datetime.datetime


class _Clock:
    """``utcnow``: a function with the attribute ``override_time``, a time or a list of times to give in turn."""

    override_time: Any = None

    def __call__(self) -> _Time:
        """The time, or what a test made of it."""
        if isinstance(self.override_time, list):
            first: _Time = self.override_time.pop(0)
            return first
        if self.override_time:
            fixed: _Time = self.override_time
            return fixed
        return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


utcnow = _Clock()


def utcnow_ts() -> int:
    """Seconds since 1970."""
    return calendar.timegm(utcnow().timetuple())


def iso8601_from_timestamp(timestamp: float) -> str:
    """Seconds since 1970 as text."""
    return isotime(datetime.datetime.fromtimestamp(timestamp, datetime.UTC).replace(tzinfo=None))


def isotime(at: _Time | None = None, subsecond: bool = False) -> str:
    """Text such as ``2012-03-04T05:06:07Z``, of now if not said otherwise."""
    at = at or utcnow()
    text = at.strftime(f"{TIME_FORMAT}.%f" if subsecond else TIME_FORMAT)
    zone = at.tzinfo.tzname(None) if at.tzinfo else "UTC"
    return text + ("Z" if zone in ("UTC", "UTC+00:00") else (zone or "")[3:])


def parse_isotime(timestr: str) -> _Time:
    """The time that ISO 8601 text says, with its zone.

    Raises:
        ValueError: it says none.
    """
    try:
        at = datetime.datetime.fromisoformat(timestr)
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return at if at.tzinfo else at.replace(tzinfo=datetime.UTC)


def strtime(at: _Time | None = None, fmt: str = PERFECT_TIME_FORMAT) -> str:
    """Text such as ``2012-03-04T05:06:07.000008``, of now if not said otherwise."""
    at = at or utcnow()
    return _strtime(at) if fmt == PERFECT_TIME_FORMAT else at.strftime(fmt)


def parse_strtime(timestr: str, fmt: str = PERFECT_TIME_FORMAT) -> _Time:
    """The time that :func:`strtime` wrote.

    Raises:
        ValueError: it has another form.
    """
    return datetime.datetime.strptime(timestr, fmt)


def normalize_time(timestamp: _Time) -> _Time:
    """The same time in UTC and without a zone."""
    offset = timestamp.utcoffset()
    return timestamp if offset is None else timestamp.replace(tzinfo=None) - offset


def _time_of(value: _Time | str) -> _Time:
    return normalize_time(parse_isotime(value) if isinstance(value, str) else value)


def is_older_than(before: _Time | str, seconds: float) -> bool:
    """Return whether ``before`` is more than ``seconds`` ago."""
    return utcnow() - _time_of(before) > datetime.timedelta(seconds=seconds)


def is_newer_than(after: _Time | str, seconds: float) -> bool:
    """Return whether ``after`` is more than ``seconds`` ahead."""
    return _time_of(after) - utcnow() > datetime.timedelta(seconds=seconds)


def is_soon(dt: _Time, window: float) -> bool:
    """Return whether ``dt`` comes within ``window`` seconds."""
    return normalize_time(dt) <= utcnow() + datetime.timedelta(seconds=window)


def delta_seconds(before: _Time, after: _Time) -> float:
    """Seconds between the two."""
    return total_seconds(after - before)


def total_seconds(delta: datetime.timedelta) -> float:
    """Seconds of ``delta``."""
    return delta.total_seconds()


def set_time_override(override_time: _Time | Sequence[_Time] | None = None) -> None:
    """Stop the clock at a time, or have it give these in turn."""
    utcnow.override_time = override_time or datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def advance_time_delta(timedelta: datetime.timedelta) -> None:
    """Move a stopped clock on."""
    assert utcnow.override_time is not None, "the clock is not stopped"
    if isinstance(utcnow.override_time, list):
        utcnow.override_time = [at + timedelta for at in utcnow.override_time]
    else:
        utcnow.override_time += timedelta


def advance_time_seconds(seconds: float) -> None:
    """Move a stopped clock on."""
    advance_time_delta(datetime.timedelta(seconds=seconds))


def clear_time_override() -> None:
    """Let the clock go again."""
    utcnow.override_time = None


def marshall_now(now: _Time | None = None) -> dict[str, int]:
    """A time as a dict of numbers."""
    now = now or utcnow()
    names = ("day", "month", "year", "hour", "minute", "second", "microsecond")
    return {name: getattr(now, name) for name in names}


def unmarshall_time(tyme: dict[str, int]) -> _Time:
    """The time that :func:`marshall_now` took apart."""
    return datetime.datetime(**tyme)  # type: ignore[arg-type]
