"""The reasons for which a queue takes no item: nothing was put, and the text says what to do."""

from __future__ import annotations

from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.tally import Tally

__all__ = ["Draining", "Full", "Refused", "fullness"]


class Refused(Exception):
    """Nothing was put; the text says why."""


class Draining(Refused):
    """The queue takes no new items."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} takes no new items: it is draining; resume it to put again")


class Full(Refused):
    """The queue keeps as many items, or bytes, as its settings allow.

    Attributes:
        setting, limit: the setting that limits it, and its value.
    """

    def __init__(self, queue: str, setting: str, limit: int, kept: str, dead: int) -> None:
        super().__init__(
            f"queue {queue!r} is full ({setting} = {limit}): it keeps {kept}, {dead} dead items included;"
            f" add workers, drop what is dead, or set {setting} higher"
        )
        self.setting, self.limit = setting, limit


def fullness(queue: str, tally: Tally, policy: Policy, items: int, size: int) -> Full | None:
    """The reason for which so many new items, of ``size`` bytes, have no room in ``queue``; None: they have."""
    kept, kept_bytes = tally.items + tally.dead + tally.coming, tally.bytes + tally.coming_bytes
    if kept + items > policy.max_items:
        return Full(queue, "max_items", policy.max_items, f"{kept} items", tally.dead)
    if kept_bytes + size > policy.max_bytes:
        return Full(queue, "max_bytes", policy.max_bytes, f"items of {kept_bytes} bytes", tally.dead)
    return None
