"""An item that a worker has."""

from __future__ import annotations

from typing import NamedTuple

from rpcmq.store.contract import Stored

__all__ = ["Given", "Key"]

#: Priority and number of an item.
Key = tuple[int, int]


class Given(NamedTuple):
    """An item that a worker has."""

    #: As it was read.
    item: Stored
    #: (epoch, counter).
    fence: tuple[int, int]
    #: From 1 on.
    attempt: int
    #: For the worker.
    message: bytes
    #: Of its items runs one at a time; empty: it has none.
    series: bytes
    #: Monotonic seconds at which it was given.
    since: float
    #: Milliseconds for which its result is kept; 0: it is not.
    keep_result: int = 0
    #: If it fails, it is dead, as the settings are now.
    is_last: bool = False
    #: Milliseconds of the wall clock after which nobody wants it; 0: for ever.
    expires: int = 0

    def is_end(self, outcome: str) -> bool:
        """Return whether its worker knows that it is dead when it has ended so."""
        return outcome == "rejected" or (outcome == "failed" and self.is_last)
