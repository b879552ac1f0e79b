"""Text for terminals; imports next to nothing, so that every command may use it."""

from __future__ import annotations

from rpcmq.printable import printable

__all__ = ["age", "counted", "microseconds", "plain", "shortened"]


def age(seconds: float | None) -> str:
    """An age for readers."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, what: str) -> str:
    """``number`` of ``what``, an English noun that takes an s."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def plain(value: object) -> str:
    """Return ``value`` as text without terminal control characters."""
    return printable(str(value))


def microseconds(value: float | None) -> str:
    """A latency for readers."""
    if value is None:
        return "-"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 1000 * size else f"{value / size:.0f} {unit}"
    return f"{value:.0f} us"


def shortened(name: str | None, most: int = 64) -> str:
    """Return ``name`` where it has at most ``most`` characters, else its beginning and its end."""
    if name is None or len(name) <= most:
        return name or ""
    end = most // 4
    return f"{name[: most - end - 3]}...{name[-end:]}"
