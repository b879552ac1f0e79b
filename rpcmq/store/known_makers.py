"""The ids of items that clients have made: which of each producer's counters were put.

A producer counts its puts 1, 2, 3, ..., so that its counters are one interval but for what is under way, and take no
index. A put that comes again is recognized for as long as its producer is remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from struct import Struct

from rpcmq.store.contract import Maker

__all__ = ["KnownMakers"]

#: Intervals of one producer: more than a client has puts under way, each of which may part one in two.
_MOST_INTERVALS = 4096
#: Producers; the one that was not heard of for longest is forgotten.
_MOST_PRODUCERS = 100_000
#: That a producer was heard of is noted so often (milliseconds).
_NOTED = 1000
_HEAD, _INTERVAL = Struct(">QQI"), Struct(">QQ")


class _Producer:
    __slots__ = ("firsts", "heard", "lasts")

    def __init__(self) -> None:
        self.heard = 0
        #: First and last count of each interval, in their order.
        self.firsts: list[int] = []
        self.lasts: list[int] = []

    def knows(self, count: int) -> bool:
        if not self.lasts or count > self.lasts[-1]:
            return False  # nearly always
        at = bisect_right(self.firsts, count) - 1
        return at >= 0 and count <= self.lasts[at]

    def add(self, count: int) -> None:
        firsts, lasts = self.firsts, self.lasts
        if lasts and count == lasts[-1] + 1:
            lasts[-1] = count  # nearly always
            return
        at = bisect_right(firsts, count)
        if at and count <= lasts[at - 1]:
            return
        joins_before = at > 0 and lasts[at - 1] == count - 1
        joins_after = at < len(firsts) and firsts[at] == count + 1
        if joins_before and joins_after:
            lasts[at - 1] = lasts[at]
            del firsts[at], lasts[at]
        elif joins_before:
            lasts[at - 1] = count
        elif joins_after:
            firsts[at] = count
        else:
            firsts.insert(at, count)
            lasts.insert(at, count)
            if len(firsts) > _MOST_INTERVALS:
                del firsts[0], lasts[0]


class KnownMakers:
    """The counters of all producers that were put.

    Args:
        snapshot: what :meth:`snapshot` has returned in an earlier life.
    """

    def __init__(self, snapshot: bytes = b"") -> None:
        #: The one first that was not heard of for longest.
        self._producers: dict[int, _Producer] = {}
        at = 0
        while at < len(snapshot):
            name, heard, intervals = _HEAD.unpack_from(snapshot, at)
            at += _HEAD.size
            producer = self._producers[name] = _Producer()
            producer.heard = heard
            for _ in range(intervals):
                first, last = _INTERVAL.unpack_from(snapshot, at)
                at += _INTERVAL.size
                producer.firsts.append(first)
                producer.lasts.append(last)

    def __contains__(self, maker: Maker) -> bool:
        """Return whether an item of that id was put."""
        producer = self._producers.get(maker.producer)
        return producer is not None and producer.knows(maker.counter)

    def __len__(self) -> int:
        return len(self._producers)

    def add(self, maker: Maker, at: int) -> None:
        """An item of that id was put at the time ``at`` (milliseconds)."""
        producer = self._producers.get(maker.producer)
        if producer is None:
            if len(self._producers) >= _MOST_PRODUCERS:
                del self._producers[next(iter(self._producers))]
            producer = self._producers[maker.producer] = _Producer()
            producer.heard = at
        elif at - producer.heard >= _NOTED:
            producer.heard = at
            self._producers[maker.producer] = self._producers.pop(maker.producer)
        producer.add(maker.counter)

    def forget_before(self, at: int) -> None:
        """Forget the producers of which nothing was put since ``at`` (milliseconds)."""
        for name in list(takewhile(lambda name: self._producers[name].heard < at, self._producers)):
            del self._producers[name]

    def snapshot(self) -> bytes:
        """All of it as bytes."""
        return b"".join(map(self.snapshot_of, self._producers))

    def snapshot_of(self, name: int) -> bytes:
        """The counters of one producer as bytes; none if it is not known."""
        producer = self._producers.get(name)
        if producer is None:
            return b""
        intervals = [_INTERVAL.pack(*pair) for pair in zip(producer.firsts, producer.lasts, strict=True)]
        return b"".join((_HEAD.pack(name, producer.heard, len(intervals)), *intervals))
