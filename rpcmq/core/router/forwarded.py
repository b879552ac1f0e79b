"""Requests that another router answers for, and its wish for more room.

The router at which a request entered is its *owner*: it answers for the request until that ends. Another one has it
only while one of its consumers does, as a :class:`Forwarded`: it never waits there. While an owner has requests that
nobody takes, each router with consumers for them has a :class:`Ticket` of it, which waits among the requests of that
router itself, and so gets its turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpcmq.core.router.model import Consumer, Link, Request, Topic

__all__ = ["Elsewhere", "Forwarded", "Ticket"]


class Forwarded(Request):
    """A request that a neighbour owns, with a consumer of this router."""

    __slots__ = ("owner",)

    #: The link to its owner.
    owner: Link


@dataclass(slots=True, eq=False)
class Ticket:
    """The wish of a neighbour to send requests, which waits for a consumer here in their stead."""

    #: The link to the neighbour.
    owner: Link
    #: Requests for which it has no room.
    count: int
    #: Number of the latest request here that is older; see :attr:`rpcmq.core.router.model.Request.number`.
    number: int


class Elsewhere(Consumer):
    """The consumers of a neighbour, as one: it has the requests of this router that were given to them."""

    __slots__ = ("report",)

    #: Of the request that ended last: its key, server and identity of its consumer (None: not known), and the
    #: microseconds for which it was at the neighbour (0: not known).
    report: tuple[bytes, tuple[str, str] | None, int] | None

    def __init__(self, link: Link, tag: int, topic: Topic, credit: int) -> None:
        super().__init__(link, tag, topic, "", credit)
        self.report = None

    def report_of(self, key: bytes) -> tuple[tuple[str, str] | None, int]:
        """The last two of the report of the request ``key``, which ends now; None and 0 if there is none."""
        return self.report[1:] if self.report is not None and self.report[0] == key else (None, 0)


@dataclass(slots=True)
class Room:
    """Credit of a consumer, kept for one request of a neighbour."""

    consumer: Consumer
    #: The time at which it was told (monotonic seconds).
    since: float
