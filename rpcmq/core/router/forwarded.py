"""Requests that another router answers for, and its wish for more room.

The router at which a request entered is its *owner*: it answers for the request until that ends. Another one has it
only while one of its consumers does, as a :class:`Forwarded`: it never waits there. While an owner has requests that
nobody takes, a :class:`Ticket` of it stands in the queue of their address at each router with consumers, among what
waits there itself, and so gets its turn.
"""

from __future__ import annotations

from rpcmq.core.router.model import Link, Request

__all__ = ["Forwarded", "Ticket"]


class Forwarded(Request):
    """A request that a neighbour owns, with a consumer of this router."""

    __slots__ = ("owner",)

    #: The link to its owner.
    owner: Link


class Ticket(Request):
    """The wish of a neighbour to send requests, as an entry of the queue that these would wait in here."""

    __slots__ = ("count", "owner")

    #: The link to the neighbour.
    owner: Link
    #: Requests for which it has no room.
    count: int
