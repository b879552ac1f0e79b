"""Servers that are slower than their equals.

A server is not compared by its own percentiles: one that gets the heavy methods would look slow. For each method its
records are compared with those that all other servers have of the same method: the others' p95 is the mark, and 5 %
of the server's records should be above it, too (or whatever share of the others' is: many records may have the same
duration). What is above and what should be is added up over the server's methods. If it is like the others, what is
above is binomial; where the others are few, their share is not well known itself, and the distribution is as much
wider.

A server is an outlier if chance would make less than 1 % of all servers that are called so look like that
(Benjamini-Hochberg), *and* it has at least 1.5 times the slow records that it should, *and* its p95 of the method in
which it is worst is at least a tenth above the others': with a million records a difference that is no chance may
still be none that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from rpcmq.latency.analysis.buckets import Ints, middle, on_one_grid
from rpcmq.latency.analysis.series import METHOD, Key, Series

__all__ = ["MARK", "Outlier", "Standing", "outliers", "standings"]

#: The share of the others' records that is below the mark.
MARK = 0.95
#: Smaller than elsewhere, because a server named here will be investigated.
_FALSE_DISCOVERIES = 0.01
_SMALLEST_EXCESS = 1.5
_SMALLEST_SLOWDOWN = 1.1
#: The others need as many of a method to have a p95, and the server to have its own.
_FEWEST = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """A server's records of one method beside those of the others.

    Attributes:
        key: exchange, topic, method, server.
        records: those that the server has.
        above: how many of them are above the mark.
        share: of records that should be; the others' share.
        variance: of the number above the mark, if the server is like the others.
        p95, others_p95: microseconds.
    """

    key: Key
    records: int
    above: int
    share: float
    variance: float
    p95: float
    others_p95: float


@dataclass(frozen=True, slots=True)
class Outlier:
    """A server that is slower than its equals.

    Attributes:
        server: its name.
        topics: where it serves what was compared, exchange and topic.
        records: those that were compared.
        above: how many of them are slower than the others' p95 of their method.
        expected: how many should be.
        p_value: how likely that is by chance, corrected for the number of servers.
        worst: the method in which it has the most too many.
    """

    server: str
    topics: tuple[tuple[str, str], ...]
    records: int
    above: int
    expected: float
    p_value: float
    worst: Standing

    @property
    def excess(self) -> float:
        """The ratio of slow records to the expected number."""
        return self.above / self.expected


def outliers(servers: Iterable[Series]) -> list[Outlier]:
    """The servers that are slower than their equals, those with the most too many slow records first.

    Args:
        servers: by exchange, topic, method and server. Records whose server has no name are passed over.
    """
    found: dict[str, list[Standing]] = {}
    for standing in standings(servers):
        found.setdefault(str(standing.key["server"]), []).append(standing)
    judged = [_sum(server, theirs) for server, theirs in found.items()]
    # Corrected they are no less.
    if not any(each.p_value <= _FALSE_DISCOVERIES for each in judged):
        return []
    # Here and not above: it takes longer to import than most logs to judge.
    from scipy.stats import false_discovery_control

    corrected = false_discovery_control([each.p_value for each in judged])
    slow = [
        Outlier(e.server, e.topics, e.records, e.above, e.expected, float(p_value), e.worst)
        for e, p_value in zip(judged, corrected, strict=True)
        if p_value <= _FALSE_DISCOVERIES
        and e.excess >= _SMALLEST_EXCESS
        and e.worst.p95 >= _SMALLEST_SLOWDOWN * e.worst.others_p95
    ]
    return sorted(slow, key=lambda each: each.expected - each.above)


def standings(servers: Iterable[Series]) -> list[Standing]:
    """Each server beside the others, by method; without those that have no others, or of which there are too few.

    Args:
        servers: by exchange, topic, method and server.
    """
    methods: dict[tuple[str | None, ...], list[Series]] = {}
    for each in servers:
        # None: nobody had it; empty: a process of another router that has not said which.
        if each.key["server"] and each.service.count:
            methods.setdefault(tuple(each.key[name] for name in METHOD), []).append(each)
    return [standing for series in methods.values() if len(series) > 1 for standing in _standings(series)]


def _standings(series: Sequence[Series]) -> Iterable[Standing]:
    grid, counts = on_one_grid(each.service for each in series)
    totals = counts.sum(axis=0)
    for row, each in zip(counts, series, strict=True):
        others = totals - row
        among, records = int(others.sum()), int(row.sum())
        if among < _FEWEST:
            continue
        mark = _place(others)
        above = int(row[mark + 1 :].sum())
        # As if one more of the others were above: a share of nothing is never sure to be zero.
        share = (int(others[mark + 1 :].sum()) + 1) / (among + 1)
        variance = records * share * (1 - share) * (1 + records / among)
        p95 = each.service.quantile(MARK) or 0.0
        yield Standing(each.key, records, above, share, variance, p95, middle(int(grid[mark])))


def _place(counts: Ints) -> int:
    """The bucket that has the p95."""
    return int(np.searchsorted(np.cumsum(counts), MARK * counts.sum() * (1 - 1e-12)))


def _sum(server: str, standings: Sequence[Standing]) -> Outlier:
    records = sum(each.records for each in standings)
    above = sum(each.above for each in standings)
    expected = sum(each.records * each.share for each in standings)
    share = expected / records
    # How much wider it is than the binomial distribution of as many records with that share.
    wider = max(1.0, sum(each.variance for each in standings) / (expected * (1 - share))) if share < 1 else 1.0
    # So many of so many or more, as they would be of fewer records: the function takes fractions.
    some, of = above / wider, records / wider
    p_value = float(betainc(some, of - some + 1, share)) if above else 1.0
    candidates = [each for each in standings if each.records >= _FEWEST] or standings
    worst = max(candidates, key=lambda each: each.above - each.records * each.share)
    topics = {(each.key["exchange"] or "", each.key["topic"] or "") for each in standings}
    return Outlier(server, tuple(sorted(topics)), records, above, expected, p_value, worst)
