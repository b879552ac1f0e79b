"""Calls that several servers had, by method: what the further ones have bought, and what they cost.

It is told by the records of deliveries that did not answer the call (``schema.DELIVERIES``), beside that of the call. A
server that was told to stop has a record that ends then: what it would have taken is nowhere, so that times of first
servers that were overtaken are lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.series import METHOD, Key

__all__ = ["COUNTS", "DURATIONS", "HedgedCalls", "hedged_of", "total_of"]

#: Numbers of a method, as engines give them.
COUNTS = ("calls", "hedged", "extra", "won", "not_begun", "ran_on", "finished", "differing", "failed", "extra_us")
#: Durations of a method, as engines give them: of calls that another server than the first has answered.
DURATIONS = ("answered", "first", "gained")


@dataclass(slots=True)
class HedgedCalls:
    """The calls of one method of which some were given to more than one server.

    Attributes:
        key: exchange, topic and method; of a total nothing.
        calls: all calls of the method.
        hedged: those that more than one server had.
        extra: deliveries beside one for each call.
        won: calls that another server than the first has answered.
        not_begun: of the deliveries that answered nothing, those that were cancelled before they were begun.
        ran_on: those that were cancelled when they ran.
        finished: those that were let finish, to compare results.
        differing: of these, those with another result than the one that was used.
        failed: those that failed, or were lost.
        extra_us: time that all of them were at their servers (microseconds).
        answered: how long calls took that another server than the first has answered (microseconds).
        first: how long the first server had taken when it was done, or was told to stop: at least what the call would
            have taken without the other one.
        gained: the differences.
    """

    key: Key = field(default_factory=dict)
    calls: int = 0
    hedged: int = 0
    extra: int = 0
    won: int = 0
    not_begun: int = 0
    ran_on: int = 0
    finished: int = 0
    differing: int = 0
    failed: int = 0
    extra_us: int = 0
    answered: Histogram = field(default_factory=Histogram)
    first: Histogram = field(default_factory=Histogram)
    gained: Histogram = field(default_factory=Histogram)


def hedged_of(counts: Iterable[Mapping[str, Any]], durations: Iterable[Mapping[str, Any]]) -> list[HedgedCalls]:
    """The hedged calls by method, those with the most extra deliveries first.

    Args:
        counts: ``COUNTS`` of each method.
        durations: for each bucket of each of ``DURATIONS`` of a method: its name (``measure``), the bucket's ``index``
            (None: of those that took no time), how ``many``, and their ``sum``, ``least`` and ``most``.
    """
    found: dict[tuple[str, ...], HedgedCalls] = {}
    for row in counts:
        key = {name: row[name] for name in METHOD}
        found[tuple(key.values())] = each = HedgedCalls(key)
        for name in COUNTS:
            setattr(each, name, int(row[name] or 0))
    for row in durations:
        index, many = row["index"], row["many"]
        part = Histogram.of_counts(
            {} if index is None else {index: many}, many if index is None else 0, row["sum"], row["least"], row["most"]
        )
        getattr(found[tuple(row[name] for name in METHOD)], row["measure"]).merge(part)
    return sorted(found.values(), key=lambda each: (-each.extra, *each.key.values()))


def total_of(hedged: Iterable[HedgedCalls]) -> HedgedCalls:
    """All of ``hedged`` together."""
    whole = HedgedCalls()
    for each in hedged:
        for name in COUNTS:
            setattr(whole, name, getattr(whole, name) + getattr(each, name))
        for name in DURATIONS:
            getattr(whole, name).merge(getattr(each, name))
    return whole
