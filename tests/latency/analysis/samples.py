"""Series of simulated durations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.series import Series


def histogram(values: Iterable[float]) -> Histogram:
    """Of whole microseconds, as routers write them."""
    made = Histogram()
    different, counts = np.unique(np.round(np.asarray(list(values))).astype(int), return_counts=True)
    for value, count in zip(different.tolist(), counts.tolist(), strict=True):
        made.record(value, count)
    return made


def lognormal(chance: np.random.Generator, count: int, median: float = 5000, sigma: float = 1.0) -> Any:
    return chance.lognormal(np.log(median), sigma, count)


def series(
    values: Iterable[float],
    method: str = "boot",
    *,
    topic: str = "compute",
    exchange: str = "",
    window: int | None = None,
    queue: Iterable[float] = (),
    errors: int = 0,
    outcome: str = "timeout",
    **key: str | None,
) -> Series:
    """Records that took ``values`` in all and at the server; the last ``errors`` of them did not end well."""
    total = histogram(values)
    ended = {"ok": total.count - errors} | ({outcome: errors} if errors else {})
    made = Series({"exchange": exchange, "topic": topic, "method": method} | key, window, ended, total)
    made.queue, made.service = histogram(queue), histogram(values)
    return made


def joined(parts: Iterable[Series]) -> Series:
    """All of ``parts`` as one without a window."""
    parts = list(parts)
    made = Series(parts[0].key)
    for each in parts:
        made.add(each)
    return made
