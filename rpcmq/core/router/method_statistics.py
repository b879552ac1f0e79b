"""Counts and latencies of each method of each topic."""

from __future__ import annotations

from rpcmq.core.router.hedge import HedgeCounts
from rpcmq.errors import Outcome
from rpcmq.histogram import Histogram, microseconds

__all__ = ["Statistics"]

_OK = int(Outcome.OK)
#: Number of distinct pending latencies at which statistics are folded into the histogram.
_MAX_UNCOUNTED = 64


class Statistics:
    """Outcomes and latencies of the messages of one address and method.

    Each message, and each copy of one, counts once, when it ends: just as the dispatch log has one record of it, so
    the outcomes are those of its records, and the latency is the histogram of their ``total_us``.
    """

    __slots__ = (
        "_answered", "_latency", "_outcomes", "calls", "casts", "hedges", "method", "name", "run", "run_seconds",
    )  # fmt: skip

    def __init__(self, name: str, method: str) -> None:
        self.name = name
        self.method = method
        self.calls = 0
        self.casts = 0
        #: Of the calls that several consumers may have; None: there were none.
        self.hedges: HedgeCounts | None = None
        #: Seconds -> how many of OK took so long, until they are counted. All that is answered in one
        #: wake-up and came in one took the same time, so a busy router counts many at a time.
        self._answered: dict[float, int] = {}
        #: The number of calls in a row that were OK after the same time, not yet added to the others.
        self.run = 0
        self.run_seconds = -1.0
        self._outcomes: dict[int, int] = {}
        self._latency = Histogram()

    def answered(self, seconds: float) -> None:
        """Count a message that ended with OK, ``seconds`` after it came."""
        if seconds != self.run_seconds:
            self._end_run()
            self.run_seconds = seconds
            if len(self._answered) >= _MAX_UNCOUNTED:
                self._count()
        self.run += 1

    def _end_run(self) -> None:
        if self.run:
            self._answered[self.run_seconds] = self._answered.get(self.run_seconds, 0) + self.run
            self.run = 0

    def ended(self, outcome: int, seconds: float) -> None:
        """Count a message that ended with ``outcome``, ``seconds`` after it came."""
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
        self._latency.record(microseconds(seconds))

    @property
    def outcomes(self) -> dict[int, int]:
        """Number of messages by outcome."""
        self._count()
        return self._outcomes

    @property
    def latency(self) -> Histogram:
        """Whole microseconds from receipt in the router to the end, however that came."""
        self._count()
        return self._latency

    def _count(self) -> None:
        self._end_run()
        answered, self._answered = self._answered, {}
        for seconds, count in answered.items():
            self._latency.record(microseconds(seconds), count)
        if answered:
            self._outcomes[_OK] = self._outcomes.get(_OK, 0) + sum(answered.values())
