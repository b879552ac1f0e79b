"""Numbers within sentences."""

from __future__ import annotations

from datetime import UTC, datetime

from rpcmq.latency.analysis.account import Life

__all__ = ["clock", "count", "duration", "share", "unsealed"]


def unsealed(life: Life) -> str:
    """Describe a life of a router that ended without a seal."""
    last = f", wrote last at {clock(life.until)} UTC" if life.until else ""
    parts = [f"{count(life.holes, 'message')} without a record"] if life.holes > 0 else []
    parts += [f"up to {count(life.lost, 'record')} since then"] if life.lost else []
    cost = " and ".join(parts) or "what it had not written yet"
    return f"{life.router}, started {clock(life.boot / 1000)}, ended without a seal{last}: lost are {cost}"


def duration(microseconds: float) -> str:
    """A duration with three digits: ``12.3 ms``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= 0.9995 * size:
            return (
                f"{microseconds / size:,.0f} {unit}"
                if microseconds >= 100 * size
                else f"{microseconds / size:.3g} {unit}"
            )
    return f"{microseconds:.0f} µs"


def share(value: float) -> str:
    """A share as a percentage with two digits or more: ``0.31 %``; only what is nothing is 0 %."""
    percent = value * 100
    if 0 < percent < 0.01:
        return "<0.01 %"
    return f"{percent:.0f} %" if percent == 0 or percent >= 9.95 else f"{percent:.2g} %"


def count(number: int, what: str) -> str:
    """``1,234 records``, ``1 record``."""
    many = "lives" if what == "life" else what + "s"
    return f"{number:,} {what if number == 1 else many}"


def clock(seconds: float) -> str:
    """A time of day, UTC: ``2026-03-02 06:00:30``; windows may be seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
