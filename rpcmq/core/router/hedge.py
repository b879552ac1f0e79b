"""Calls that several consumers may have: the state of one, and the counts of a method's.

They are given to more consumers by :mod:`rpcmq.core.router.roundrobin.hedging`; the ends of their deliveries are in
:mod:`rpcmq.core.router.roundrobin.hedged_ends`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["MOST_PAIRS", "TOTALS", "Hedge", "HedgeCounts"]

#: The counts of a method that are also counted of all together.
TOTALS = ("calls", "deliveries", "won", "cancelled", "failed", "compared", "disagreed")

#: Pairs of servers whose different results are counted one by one, of each method.
MOST_PAIRS = 100
#: Extra deliveries that a method may have before it was called often enough to have earned them.
_FIRST_TOKENS = 10.0
#: Pause before another attempt at a further delivery, at most (seconds); a delay may be longer.
_LONGEST_PAUSE = 30.0


class Hedge:
    """A call that may be given to several consumers.

    Attributes:
        delay: seconds that one has it before the next is given it.
        due: when it is looked at next (monotonic seconds); None: not at a time of its own.
        pause: seconds until this is tried again, where it could not be.
        left: how many more it may be given to.
        came_back: whether a delivery of it came back that nobody had begun.
        exception_wins: whether what a handler raises ends it, though others have it.
        was_withheld: whether it was counted that a consumer could not be given it.
        first: the consumer that had it first.
        last: the delivery that its record in the dispatch log is about, where it has ended without an answer.
        sample: the delivery that is let finish though the call has ended.
        digest: of the result that the call ended with, where there is a sample.
        winner: who gave that.
    """

    __slots__ = (
        "came_back", "delay", "digest", "due", "exception_wins", "first", "last", "left", "pause", "sample",
        "was_withheld", "winner",
    )  # fmt: skip

    def __init__(self, consumers: int, delay: float, exception_wins: bool) -> None:
        self.delay = delay
        self.pause = max(delay, 0.01)
        self.left = consumers - 1
        self.exception_wins = exception_wins
        self.was_withheld = self.came_back = False
        self.due: float | None = None
        self.first: object = None
        self.last: object = None
        self.sample: object = None
        self.digest = b""
        self.winner = ""

    def next_pause(self) -> float:
        """Seconds until it is tried again; twice as long each time, up to half a minute."""
        pause, self.pause = self.pause, min(2 * self.pause, max(self.delay, _LONGEST_PAUSE))
        return pause


class HedgeCounts:
    """Counts of the calls of one method that several consumers may have.

    Attributes:
        calls: those whose callers have asked for it.
        deliveries: those beside the first of each call.
        won: calls that another consumer than the first has answered.
        cancelled: deliveries that were withdrawn because another consumer was faster.
        failed: deliveries that failed, or were lost, while another consumer had the call.
        withheld: calls that could not be given to another consumer when that was due, by reason.
        compared: results of consumers that were not the first, compared with the one that was used.
        disagreed: those that differed.
        pairs: of these, by the servers of the two.
    """

    __slots__ = (
        "_calls_seen", "_tokens", "calls", "cancelled", "compared", "deliveries", "disagreed", "failed", "pairs",
        "withheld", "won",
    )  # fmt: skip

    def __init__(self, calls_before: int) -> None:
        self.calls = self.deliveries = self.won = self.cancelled = self.failed = 0
        self.compared = self.disagreed = 0
        self.withheld: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._tokens = _FIRST_TOKENS
        self._calls_seen = calls_before

    def affords(self, calls: int, budget: float, burst: int) -> bool:
        """Return whether another delivery is within the budget.

        Args:
            calls: of the method so far.
            budget: extra deliveries for each of them.
            burst: most that may be made at once.
        """
        self._tokens = min(max(burst, _FIRST_TOKENS), self._tokens + (calls - self._calls_seen) * budget)
        self._calls_seen = calls
        return budget > 0 and self._tokens >= 1.0

    @property
    def tokens(self) -> float:
        """Deliveries that the budget allows now."""
        return self._tokens

    def spend(self) -> None:
        """Another delivery was made that the budget is to bound."""
        self._tokens -= 1.0

    def take_back(self, is_free: bool) -> None:
        """A delivery has come back, and nobody has begun it.

        Args:
            is_free: the budget is not to bound it.
        """
        self.deliveries -= 1
        if not is_free:
            self._tokens += 1.0

    def totals(self) -> Counter[str]:
        """The counts that are added up over all methods, by name."""
        return Counter({name: getattr(self, name) for name in TOTALS})

    def note_difference(self, winner: str, other: str) -> None:
        """The results of the servers ``winner`` and ``other`` differ."""
        self.disagreed += 1
        if (winner, other) in self.pairs or len(self.pairs) < MOST_PAIRS:
            self.pairs[winner, other] += 1

    def to_dict(self) -> dict[str, Any]:
        """The counts, for a view."""
        return {
            **self.totals(),
            "withheld": dict(self.withheld),
            "disagreeing": [[winner, other, count] for (winner, other), count in self.pairs.most_common(10)],
        }
