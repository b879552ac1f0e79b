"""Values as text for readers: durations, numbers, shares, sizes, times, names."""

from __future__ import annotations

from datetime import UTC, datetime

from rpcmq.printable import printable

__all__ = [
    "between",
    "bytes_text",
    "clock",
    "count",
    "duration",
    "length",
    "name",
    "percent",
    "rate",
    "share",
    "short_count",
    "span",
    "split",
    "time",
    "total",
    "visible",
]

_LATENCY = (("µs", 1.0), ("ms", 1e3), ("s", 1e6))
_MILLIONS = (("M", 1.0), ("G", 1e3), ("T", 1e6))
#: From here on a number is written in millions where room is short.
_MANY = 10_000_000
_SIZES = (("B", 1.0), ("KiB", 1024.0), ("MiB", 1024.0**2), ("GiB", 1024.0**3), ("TiB", 1024.0**4))
_LENGTHS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
#: Characters of a name that readers get to see.
_LONGEST_NAME = 120


def split(microseconds: float | None) -> tuple[str, str]:
    """A latency as number and unit (µs, ms, s), three digits; two empty texts for None."""
    return ("", "") if microseconds is None else _scaled(microseconds, _LATENCY)


def duration(microseconds: float | None) -> str:
    """A latency: ``840 µs``, ``12.3 ms``, ``30.0 s``; empty for None."""
    return " ".join(split(microseconds)).strip()


def total(microseconds: float) -> str:
    """A sum of latencies: as ``duration`` below 100 s, else as ``length``."""
    return length(microseconds / 1e6) if microseconds >= 100e6 else duration(microseconds)


def between(low: float, high: float) -> str:
    """Two latencies that something lies between: ``11.9-12.8 ms``, with a long dash."""
    (first, unit), (last, last_unit) = split(low), split(high)
    return f"{first}\N{EN DASH}{last} {unit}" if unit == last_unit else f"{first} {unit}\N{EN DASH}{last} {last_unit}"


def bytes_text(size: float | None) -> str:
    """A size: ``812 B``, ``1.53 KiB``; empty for None."""
    return "" if size is None else " ".join(_scaled(size, _SIZES))


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> tuple[str, str]:
    step = units[1][1]
    for unit, size in units[:-1]:
        # Rounded to three digits, 999.6 belongs to the next unit.
        if value / size < step - 0.5:
            return _three(value / size, whole=size == 1), unit
    unit, size = units[-1]
    return _three(value / size), unit


def _three(value: float, whole: bool = False) -> str:
    if whole and value == int(value):
        return f"{value:.0f}"
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def count(number: float) -> str:
    """A whole number: ``1,234,567``."""
    return f"{number:,.0f}"


def short_count(number: float) -> str:
    """A number that may be large: ``1,234,567``, but ``12.3 M``."""
    return count(number) if number < _MANY else " ".join(_scaled(number / 1e6, _MILLIONS))


def rate(records: float, seconds: float | None) -> str:
    """Records a second: ``41.2/s``; empty if there is no time to divide by."""
    if not seconds:
        return ""
    value = records / seconds
    if value >= _MANY:
        return f"{short_count(value)}/s"
    return "<0.01/s" if 0 < value < 0.005 else f"{_three(value)}/s"


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole``: ``0.31 %``; empty if ``whole`` is 0."""
    return share(part / whole) if whole else ""


def share(value: float) -> str:
    """A share from 0 to 1: ``0.31 %``. Only what is nothing is called 0 %, only what is all 100 %."""
    value *= 100
    if value in (0, 100):
        return f"{value:.0f} %"
    if value < 0.01:
        return "<0.01 %"
    if 99.95 <= value < 100:
        return f"{min(value, 99.99):.2f} %"
    return f"{value:.2f} %" if value < 9.995 else f"{value:.1f} %"


def length(seconds: float) -> str:
    """A length of time in its two largest units: ``1 h 20 min``, ``45 s``."""
    places = [size for _, size in _LENGTHS]
    largest = next((number for number, size in enumerate(places) if round(seconds) >= size), len(places) - 1)
    shown = _LENGTHS[largest : largest + 2]
    left = round(seconds / shown[-1][1]) * shown[-1][1]
    parts = []
    for unit, size in shown:
        number, left = divmod(left, size)
        parts += [f"{number} {unit}"] if number else []
    return " ".join(parts) or "0 s"


def time(seconds: float) -> str:
    """A time of day, UTC: ``2026-03-02 06:00:00``."""
    return _utc(seconds).strftime("%Y-%m-%d %H:%M:%S")


def clock(seconds: float) -> str:
    """A time of day to the millisecond, UTC: ``2026-03-02 06:00:00.250``."""
    return _utc(seconds).isoformat(" ", "milliseconds").removesuffix("+00:00")


def span(since: float, until: float) -> str:
    """A range of time; the day is said once if it is one."""
    first, last = time(since), time(until)
    return f"{first} to {last[11:] if first[:10] == last[:10] else last} UTC"


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def name(value: object, longest: int = _LONGEST_NAME) -> str:
    """A name that came from elsewhere: nothing in it is invisible or turns the text around, and it has an end."""
    text = "" if value is None else str(value)
    return visible(text if len(text) <= longest else text[: longest - 1] + "…")


def visible(text: str) -> str:
    """``text`` with what cannot be seen written out: control characters, those that turn the direction of writing."""
    return printable(text)
