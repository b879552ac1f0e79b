"""Requests that another router answers for, and its wish for more room.

The router at which a request entered is its *owner*: it answers for the request until that ends. Another one has it
only while one of its consumers does, as a :class:`Forwarded`: it never waits there. While an owner has requests that
nobody takes, each router with consumers for them has a :class:`Ticket` of it, which waits among the requests of that
router itself, and so gets its turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpcmq.core.router.model import Link, Request

__all__ = ["Forwarded", "Ticket"]


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
