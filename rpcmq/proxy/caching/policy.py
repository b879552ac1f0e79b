"""Settings of the cache, which neither a request nor a response may exceed."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CachePolicy"]


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Choices of a cache where the RFCs leave it one. Times are seconds, sizes bytes.

    Attributes:
        name: in Cache-Status (RFC 9211), a token or any text.
        heuristic_fraction: of the time since Last-Modified for which a response without explicit freshness is fresh
            (RFC 9111 section 4.2.2); 0: such a response is stale at once.
        max_heuristic: bound of that.
        negative: status -> freshness of a response with that status and without explicit freshness, in place of the
            heuristic: ``{404: 10.0}``.
        stale_while_revalidate: after its freshness, a response is served while it is being revalidated, where the
            response does not say how long (RFC 5861 section 3).
        stale_if_error: after its freshness, a response is served where the origin fails, where the response does not
            say how long (RFC 5861 section 4).
        stale_if_disconnected: the same where the origin cannot be reached or does not answer (RFC 9111 section 4.2.4).
        stale_beside_s_maxage: whether ``stale-while-revalidate`` and ``stale-if-error`` count beside ``s-maxage``,
            which forbids stale responses (RFC 9111 section 5.2.2.10), though content networks use them together.
        max_stale_life: bound of these, and of the time for which a stale response is stored in order to be revalidated.
        max_fresh_life: bound of the freshness that an origin may give.
        request_directives: whether Cache-Control of requests counts (RFC 9111 section 5.2.1: advisory). A request may
            then have the origin asked though a fresh response is stored.
        targets: fields that stand above Cache-Control, the most special first (RFC 9213).
        max_body: a larger response is passed on and not stored.
        max_head: a response with a larger head is passed on and not stored.
        max_ranges: a request for more ranges of a body is answered with all of it (RFC 9110 section 14.2 and 17.15).
        range_fill: a request for one range that begins before this byte fetches the whole body, which is stored; one
            that begins later is passed on.
        ignored_query: names of arguments in the query that do not tell resources apart, such as ``utm_source``;
            ``utm_*`` stands for all that begin so.
        sorts_query: whether the order of the query's arguments does not tell resources apart.
        stores_cookies: whether a response that sets a cookie may be stored without ``public`` or ``s-maxage``.
        uncacheable_seconds: for this long after a response that could not be stored, requests for it do not wait for
            one another.
        max_variants: most responses for one key that differ by Vary.
    """

    name: str = "rpcmq"
    heuristic_fraction: float = 0.1
    max_heuristic: float = 86400.0
    negative: dict[int, float] = field(default_factory=dict)
    stale_while_revalidate: float = 0.0
    stale_if_error: float = 0.0
    stale_if_disconnected: float = 3600.0
    stale_beside_s_maxage: bool = False
    max_stale_life: float = 7 * 86400.0
    max_fresh_life: float = 365 * 86400.0
    request_directives: bool = True
    targets: tuple[str, ...] = ("CDN-Cache-Control",)
    max_body: int = 1 << 30
    max_head: int = 64 << 10
    max_ranges: int = 16
    range_fill: int = 1 << 20
    ignored_query: tuple[str, ...] = ()
    sorts_query: bool = False
    stores_cookies: bool = False
    uncacheable_seconds: float = 10.0
    max_variants: int = 64
