"""Decisions of the cache: what a front end or fetcher is to do with a request, and then with its response."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.messages import RequestHead, ResponseHead

__all__ = [
    "Answer",
    "BodyPlan",
    "Decision",
    "Deliver",
    "Forward",
    "ForwardReason",
    "Outcome",
    "Refresh",
    "Resend",
    "Serve",
    "Span",
    "goes_back",
    "plan_size",
]


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes ``start`` (with) to ``stop`` (without) of a body."""

    start: int
    stop: int


BodyPlan = tuple[bytes | Span, ...]
"""A body to send, piece by piece: bytes as they are, and spans of the stored or passing body, the spans in any
order.
"""


def plan_size(plan: BodyPlan) -> int:
    """Return the bytes of the body that ``plan`` describes."""
    return sum(len(piece) if isinstance(piece, bytes) else piece.stop - piece.start for piece in plan)


def goes_back(plan: BodyPlan) -> bool:
    """Return whether ``plan`` has a part of the body after a later one, or twice: no body is cut so while it passes."""
    spans = [piece for piece in plan if isinstance(piece, Span)]
    return any(later.start < earlier.stop for earlier, later in pairwise(spans))


class ForwardReason(Enum):
    """Reasons for which a request goes to the origin: values of ``fwd`` in Cache-Status (RFC 9211 section 2.2)."""

    BYPASS = "bypass"
    METHOD = "method"
    URI_MISS = "uri-miss"
    VARY_MISS = "vary-miss"
    MISS = "miss"
    REQUEST = "request"
    STALE = "stale"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Forward:
    """The origin has to be asked.

    Attributes:
        key: the normalised URL.
        client_request: as it came from the client.
        request: the request to send to the origin; fields of the connection are not yet dropped.
        reason: why.
        candidates: stored responses that the conditions in ``request`` are about; a 304 makes one of them fresh.
        may_store: whether a response may be stored at all.
        may_collapse: whether the request may wait for the response to another one with the same key, or other ones for
            its.
        stale: the stored response to be served where the origin fails, if it is still allowed then.
    """

    key: str
    client_request: RequestHead
    request: RequestHead
    reason: ForwardReason
    candidates: tuple[StoredResponse, ...] = ()
    may_store: bool = False
    may_collapse: bool = False
    stale: StoredResponse | None = None


@dataclass(frozen=True, slots=True)
class Serve:
    """A stored response answers the request.

    Attributes:
        entry: the stored response.
        response: the head for the client, with Age, Cache-Status and Content-Length.
        body: the pieces of the stored body that follow it; none for HEAD and 304. None: all of it as it comes, whatever
            its size is, which only a body that is still on its way can need (see :func:`rpcmq.proxy.caching.follow`).
        revalidate: a request to be sent to the origin when the client has been answered, and whose outcome only the
            store gets (RFC 5861 section 3); None: none.
    """

    entry: StoredResponse
    response: ResponseHead
    body: BodyPlan | None
    revalidate: Forward | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The cache itself answers the request, with a response that is stored nowhere."""

    response: ResponseHead
    body: bytes


Decision = Serve | Answer | Forward
"""Ways to treat a request."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The origin's response goes to the client.

    Attributes:
        response: its head for the client, without the fields of the connection and with Cache-Status.
        store: the head under which the body is to be stored while it passes, from its first byte to its last; None: it
            is not to be.
        body: pieces of the origin's body for the client; None: all of it as it comes, whatever its size is. The store
            gets all of it in any case.
        invalidates: keys of which all stored responses are to be purged (RFC 9111 section 4.4).
        uncacheable_for: seconds for which requests for the same key need not wait for one another: they could not
            share this one.
    """

    response: ResponseHead
    store: StoredResponse | None = None
    body: BodyPlan | None = None
    invalidates: tuple[str, ...] = ()
    uncacheable_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Refresh:
    """The origin has confirmed a stored response, or told something new about it: the store is to have its new head.

    Attributes:
        entry: the stored response with its new head, and with the body that it had.
        serve: the answer for the client.
    """

    entry: StoredResponse
    serve: Serve


@dataclass(frozen=True, slots=True)
class Resend:
    """The origin has confirmed what is not stored: ask it again, without conditions; the body that came is dropped."""

    forward: Forward


Outcome = Deliver | Refresh | Serve | Answer | Resend
"""Ways to treat a response of the origin, or the lack of one. With all but Deliver the origin's body is dropped."""
