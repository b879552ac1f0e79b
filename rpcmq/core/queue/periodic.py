"""An item that is put again and again: what it is, and how a queue's store keeps it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from rpcmq.core.common.text import shorten
from rpcmq.core.queue.schedule import Schedule

__all__ = ["LONGEST_NAME", "MISSED", "MOST_MESSAGE_BYTES", "Periodic", "PeriodicKey", "check_name", "item_id"]

#: The choices of :attr:`Periodic.missed`.
MISSED = ("last", "skip", "all")
#: Bytes of a name, so that there is room for the time in the ids of its items; and of a message.
LONGEST_NAME, MOST_MESSAGE_BYTES = 200, 64 << 10
#: Bound of times (seconds).
_LONGEST = 1e9


class PeriodicKey(NamedTuple):
    """The name of a periodic item, among those of a queue."""

    queue: str
    name: str


@dataclass(frozen=True)
class Periodic:
    """An item that is put at the times of a cron expression.

    Attributes:
        queue, name: where, and which.
        cron, zone: its times; see :class:`rpcmq.core.queue.schedule.Schedule`.
        missed: of the times that have passed while nobody could put it, ``last`` puts the last one, ``skip`` that one
            if it has just passed, ``all`` up to 100 of them.
        priority, expires, series, unique: of the items; ``expires`` in seconds from the put.
        message: for the worker.
    """

    queue: str
    name: str
    cron: str
    zone: str
    missed: str
    priority: int
    expires: float
    series: str
    unique: str
    message: bytes

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: one of them cannot be; the text names it.
        """
        check_name(self.name)
        for name in ("cron", "zone"):
            if type(value := getattr(self, name)) is not str:
                raise ValueError(f"{name} must be a text, not {shorten(repr(value))}")
        if not 0 <= self.expires < _LONGEST:
            raise ValueError(f"expires must be a number of seconds, not {self.expires!r}")
        if self.missed not in MISSED:
            raise ValueError(f"missed must be one of {', '.join(MISSED)}, not {str(self.missed)[:20]!r}")
        if len(self.message) > MOST_MESSAGE_BYTES:
            size, most = len(self.message), MOST_MESSAGE_BYTES
            raise ValueError(f"the message of a periodic item must have {most} bytes at the most, not {size}")

    @property
    def key(self) -> PeriodicKey:
        """Its name."""
        return PeriodicKey(self.queue, self.name)

    def schedule(self) -> Schedule:
        """Its times.

        Raises:
            ValueError: there are none, or none on this machine.
        """
        return Schedule(self.cron, self.zone)

    def to_bytes(self) -> bytes:
        """The periodic item as the store keeps it."""
        return json.dumps(asdict(self) | {"message": b64encode(self.message).decode()}).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Periodic:
        """The inverse of :meth:`to_bytes`."""
        values = json.loads(raw)
        return cls(**values | {"message": b64decode(values["message"])})


def check_name(name: object) -> str:
    """``name`` as that of a periodic item.

    Raises:
        ValueError: it is none.
    """
    # What is printable can be encoded, too.
    if isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= LONGEST_NAME and "@" not in name:
        return name
    text = f"a printable text of 1 to {LONGEST_NAME} bytes without an @"
    raise ValueError(f"the name of a periodic item must be {text}, not {str(name)[:LONGEST_NAME]!r}")


def item_id(name: str, at: int) -> bytes:
    """The id of the item for the time ``at``: whoever puts it for that time, and however often, it is one item."""
    return f"{name}@{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}".encode()
