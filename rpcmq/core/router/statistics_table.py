"""The statistics of all addresses and methods that are known, bounded in number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rpcmq.core.router.hedge import TOTALS
from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.steps import Steps

__all__ = ["OTHER", "StatisticsTable"]

#: The name under which names and methods beyond the bounds are counted.
OTHER = "(other)"
#: Statistics that are added up in one step.
_COUNTED = 100


class StatisticsTable:
    """The statistics of each address and method; totals go on counting what was forgotten."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows: dict[tuple[str, str], Statistics] = {}
        #: Counters inherited from forgotten methods.
        self._forgotten_calls = self._forgotten_casts = 0
        self._forgotten_outcomes: Counter[int] = Counter()
        self._forgotten_hedges: Counter[str] = Counter(dict.fromkeys(TOTALS, 0))

    def __iter__(self) -> Iterator[Statistics]:
        return iter(self._rows.values())

    def of(self, name: str, method: str) -> Statistics:
        """The statistics of ``method`` at the address ``name``; beyond the bounds those of all others."""
        rows = self._rows
        if len(rows) >= self._settings.max_methods:
            method = OTHER
            if (name, method) not in rows and len(rows) >= 2 * self._settings.max_methods:
                name = OTHER
        statistics = rows.get((name, method))
        if statistics is None:
            statistics = rows[name, method] = Statistics(name, method)
        return statistics

    def forget(self, name: str, method: str) -> None:
        """Forget ``method`` at the address ``name``, but for the totals."""
        statistics = self._rows.pop((name, method), None)
        if statistics is not None:
            self._forgotten_calls += statistics.calls
            self._forgotten_casts += statistics.casts
            self._forgotten_outcomes.update(statistics.outcomes)
            if statistics.hedges is not None:
                self._forgotten_hedges.update(statistics.hedges.totals())

    def totals(self) -> Steps[dict[str, Any]]:
        """Calls and casts since the start, how many messages ended with each outcome, by its number, and hedges."""
        calls, casts = self._forgotten_calls, self._forgotten_casts
        outcomes, hedges = Counter(self._forgotten_outcomes), Counter(self._forgotten_hedges)
        # What is forgotten meanwhile is in this list still.
        for number, statistics in enumerate(list(self._rows.values()), 1):
            calls += statistics.calls
            casts += statistics.casts
            outcomes.update(statistics.outcomes)
            if statistics.hedges is not None:
                hedges.update(statistics.hedges.totals())
            if not number % _COUNTED:
                yield
        return {"calls": calls, "casts": casts, "outcomes": outcomes, "hedges": dict(hedges)}
