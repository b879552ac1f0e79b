"""The reasons for which a queue takes no item: nothing was put, and the text says what to do."""

from __future__ import annotations

__all__ = ["Draining", "Refused"]


class Refused(Exception):
    """Nothing was put; the text says why."""


class Draining(Refused):
    """The queue takes no new items."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} takes no new items: it is draining; resume it to put again")
