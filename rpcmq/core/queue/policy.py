"""The policy of a queue: attempts, back-off, leases, limits. Made by its declaration, and changed while it runs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from rpcmq.core.common.text import shorten
from rpcmq.core.queue.story import IN_DOUBT, LOST, Story

__all__ = ["ON_LOST", "Policy"]

#: The choices of :attr:`Policy.on_lost`.
ON_LOST = ("redeliver", "park")
#: Bound of all integers.
_MOST = 1 << 53


@dataclass(frozen=True)
class Policy:
    """The settings of one queue. Times are seconds.

    Attributes:
        attempts: an item that has failed so often is dead.
        backoff, backoff_factor, backoff_most: an item that has failed once is tried again after ``backoff``, then after
            so many times the time before, and after ``backoff_most`` at the latest.
        lease: for so long a worker goes on with an item without hearing from its router. So it is given to another one
            after that time at the earliest, once its worker is lost or its router has died.
        on_lost: ``redeliver`` tries an item again whose worker was lost while it ran, ``park`` leaves it to a person,
            among the dead.
        losses: an item that has lost so many workers is dead, whatever ``on_lost`` says. The end of a router, after
            which nobody knows who had the item, does not count.
        concurrency: items that run at the same time; 0: as many as there are workers.
        rate: items that begin in a second; 0: no limit.
        alarm: a queue whose items wait, without one that begins or ends, is said to stand still after that; 0: never.
        max_result_bytes: results of its items that are kept have no more bytes together.
        max_items, max_bytes: the queue keeps no more items, and bytes of them, dead ones included.
    """

    attempts: int = 5
    backoff: float = 1.0
    backoff_factor: float = 2.0
    backoff_most: float = 600.0
    lease: float = 30.0
    on_lost: str = "redeliver"
    losses: int = 3
    concurrency: int = 0
    rate: float = 0.0
    max_items: int = 10_000_000
    max_bytes: int = 16 << 30
    max_result_bytes: int = 64 << 20
    alarm: float = 60.0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: one of them cannot be; the text names it.
        """
        for name, least in (
            ("attempts", 1),
            ("losses", 1),
            ("max_items", 1),
            ("max_bytes", 1),
            ("max_result_bytes", 0),
            ("concurrency", 0),
        ):
            value = getattr(self, name)
            if type(value) is int and value > _MOST:
                raise ValueError(f"{name} must be an integer of at most {_MOST}")
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {shorten(repr(value))}")
        least_times = dict.fromkeys(("backoff", "backoff_most", "rate", "alarm"), 0.0)
        least_times |= {"backoff_factor": 1.0, "lease": 1.0}
        for name, low in least_times.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not low <= value < 1e9:
                raise ValueError(f"{name} must be a number of at least {low:g}, not {shorten(repr(value))}")
        if self.on_lost not in ON_LOST:
            raise ValueError(f"on_lost must be {' or '.join(ON_LOST)}, not {shorten(repr(self.on_lost))}")

    def delay(self, failures: int) -> float:
        """Seconds until an item that has failed so often is tried again."""
        try:
            return float(min(self.backoff_most, self.backoff * self.backoff_factor ** min(failures - 1, 64)))
        except OverflowError:
            return float(self.backoff_most)

    def gives_up(self, story: Story) -> bool:
        """Return whether an item is not tried again after the last attempt of ``story``."""
        if story.failures >= self.attempts or story.losses >= self.losses:
            return True
        outcome = story.endings[-1].outcome
        return outcome == "rejected" or (outcome in (LOST, IN_DOUBT) and self.on_lost == "park")

    def to_bytes(self) -> bytes:
        """The policy as the store keeps it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Policy:
        """The inverse of :meth:`to_bytes`. Settings that this version does not know are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(raw).items() if name in known})
