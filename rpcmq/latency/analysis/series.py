"""A series: all that is known of the records that share a key. It is what statistics and reports work on.

Series are made by Spark from the dispatch log, and merge without loss: whatever is coarser, in time or in what it
groups by, is the sum of what is finer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rpcmq.histogram import Histogram

__all__ = ["DIMENSIONS", "MEASURES", "METHOD", "Key", "Series", "merged"]

#: Dimensions by which records can be grouped; columns of the dispatch log.
DIMENSIONS = ("router", "exchange", "topic", "method", "kind", "server", "client", "outcome", "error_class")
#: The dimensions that name a method.
METHOD = ("exchange", "topic", "method")
#: Durations of which histograms are kept (microseconds): in all, all that was not at the server, at the server.
MEASURES = ("total", "queue", "service")

#: Values of the dimensions that the records have in common.
Key = Mapping[str, str | None]


@dataclass(slots=True)
class Series:
    """The aggregate of the records with ``key``.

    Attributes:
        key: dimension -> value; a server is None where nobody had the message.
        window: when its time window begins, seconds since 1970; None: no window, all of the time asked for.
        outcomes: how many ended how, by the outcomes' names; the sum is the number of records.
        errors_by_class: of those that did not end well, how many by outcome and class of what the method raised, as far
            as both are known and were asked for.
        total, queue, service: durations in microseconds of the records that have them.
        handler_us: sum of the handlers' times, microseconds.
        handlers: records whose handler's time is known.
        network_us, reply_us: sums over the records whose handler's time and way back are known, microseconds: the way
            there with the wait in the service outside the method, and the way back.
        request_bytes, reply_bytes: sums.
        between_us: sum of the ways to other routers and back, where that is known, microseconds; not in ``service``.
    """

    key: Key
    window: int | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    total: Histogram = field(default_factory=Histogram)
    queue: Histogram = field(default_factory=Histogram)
    service: Histogram = field(default_factory=Histogram)
    handler_us: int = 0
    handlers: int = 0
    network_us: int = 0
    reply_us: int = 0
    request_bytes: int = 0
    reply_bytes: int = 0
    between_us: int = 0
    errors_by_class: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(self.outcomes.values())

    @property
    def errors(self) -> int:
        """Records that did not end well."""
        return self.records - self.outcomes.get("ok", 0)

    def add(self, other: Series) -> None:
        """Add what ``other`` has; the key stays."""
        for outcome, count in other.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        for name, count in other.errors_by_class.items():
            self.errors_by_class[name] = self.errors_by_class.get(name, 0) + count
        self.total.merge(other.total)
        self.queue.merge(other.queue)
        self.service.merge(other.service)
        self.handler_us += other.handler_us
        self.handlers += other.handlers
        self.network_us += other.network_us
        self.reply_us += other.reply_us
        self.request_bytes += other.request_bytes
        self.reply_bytes += other.reply_bytes
        self.between_us += other.between_us


def merged(series: Iterable[Series], by: Collection[str], windows: bool = False) -> list[Series]:
    """``series`` with the dimensions ``by`` only, in the order in which they first come.

    Args:
        series: what is to be merged; its keys have all of ``by``.
        by: the dimensions to keep.
        windows: whether to keep the windows apart.
    """
    found: dict[tuple[object, ...], Series] = {}
    for each in series:
        window = each.window if windows else None
        key = (window, *(each.key[name] for name in by))
        into = found.get(key)
        if into is None:
            into = found[key] = Series({name: each.key[name] for name in by}, window)
        into.add(each)
    return list(found.values())
