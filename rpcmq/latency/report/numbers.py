"""Figures of a series: quantiles with their intervals, stages, rates."""

from __future__ import annotations

from dataclasses import dataclass

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.intervals import interval, smallest_count
from rpcmq.latency.analysis.series import Series
from rpcmq.latency.report.model import Report

__all__ = ["QUANTILES", "STAGES", "Quantile", "known", "mean", "quantile", "seconds_of", "stages"]

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
#: Stages of a message's time, in order: name and description (see ``stages``).
STAGES = {
    "queued": ("queued", "not at a server: waiting in routers, for a free server, between attempts"),
    "between": ("between routers", "to the server's router and back, and waiting in either to be read"),
    "network": (
        "network, and service's queue",
        "from the router to the service, and waiting there outside the method",
    ),
    "handler": ("handler", "in the method, as the service reports"),
    "reply": ("reply", "the way back: from the service's sending of its answer to the router"),
    "rest": (
        "rest",
        "at the server or its router, and not told apart: the service did not report its times to this one",
    ),
}


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of durations, microseconds.

    Attributes:
        value: by nearest rank, within 1.1 %.
        low, high: what the true one lies between, with 95 % confidence.
    """

    value: float
    low: float
    high: float


def known(histogram: Histogram, q: float) -> bool:
    """Return whether there are records enough to speak of the quantile ``q``."""
    return histogram.count >= smallest_count(q)


def quantile(histogram: Histogram, q: float) -> Quantile | None:
    """The quantile ``q``; None: n too small."""
    ends = interval(histogram, q)
    value = histogram.quantile(q) if ends else None
    return None if ends is None or value is None else Quantile(value, *ends)


def mean(histogram: Histogram) -> float | None:
    """The mean (microseconds); None if nothing was recorded."""
    return histogram.sum / histogram.count if histogram.count else None


def stages(series: Series) -> dict[str, float]:
    """The sum of the durations (microseconds) by stage, see ``STAGES``; they add up to the whole."""
    left = series.service.sum
    found = {"queued": series.queue.sum, "between": float(series.between_us)}
    # Of two clocks: the handlers' times, which are the service's, may seem to be more than there is. The two others are
    # limited record by record.
    for name, spent in (("network", series.network_us), ("reply", series.reply_us), ("handler", series.handler_us)):
        found[name] = max(0.0, min(spent, left))
        left -= found[name]
    found["rest"] = left
    return {name: found[name] for name in STAGES}


def seconds_of(report: Report) -> float:
    """Return the length of the report's range (seconds), at least one window; 0 if there are no records."""
    if report.since is None or report.until is None:
        return 0.0
    return max(report.until - report.since, 1.0)
