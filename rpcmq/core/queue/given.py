"""An item that a worker has."""

from __future__ import annotations

from dataclasses import dataclass

from rpcmq.store.contract import Stored

__all__ = ["Given", "Key"]

#: Priority and number of an item.
Key = tuple[int, int]


@dataclass(frozen=True)
class Given:
    """An item that a worker has.

    Attributes:
        item: as it was read.
        fence: (epoch, counter).
        attempt: from 1 on.
        message: for the worker.
        series: of its items runs one at a time; empty: it has none.
        since: monotonic seconds at which it was given.
    """

    item: Stored
    fence: tuple[int, int]
    attempt: int
    message: bytes
    series: bytes
    since: float
