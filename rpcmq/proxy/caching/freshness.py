"""Age and freshness (RFC 9111 section 4.2), and the time for which stale responses are of use (RFC 5861)."""

from __future__ import annotations

from dataclasses import dataclass

from rpcmq.proxy.caching.dates import parse_date
from rpcmq.proxy.caching.directives import Directives, parse_seconds, response_directives
from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.messages import Headers, ResponseHead

__all__ = [
    "HEURISTIC_STATUSES",
    "StaleLife",
    "has_explicit_freshness",
    "has_validator",
    "initial_age",
    "lifetime",
    "stale_life",
    "useful_stale_seconds",
]

HEURISTIC_STATUSES = frozenset((200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501))
"""Statuses that are cacheable by default (RFC 9110 section 15.1)."""


@dataclass(frozen=True, slots=True)
class StaleLife:
    """Seconds after its freshness for which a response may be served: while it is revalidated, and where the origin
    fails.

    Attributes:
        is_forbidden: whether it may not be served without a successful validation, whatever a client or the policy
            would have.
        revalidating: seconds of stale-while-revalidate.
        error: seconds of stale-if-error, for which a response of status 500, 502, 503 or 504 does not count.
        disconnected: the same where the origin gives no response.
    """

    is_forbidden: bool
    revalidating: float
    error: float
    disconnected: float


def initial_age(headers: Headers, requested_at: float, responded_at: float) -> float:
    """Return the age that a response had when it came (RFC 9111 section 4.2.3).

    Of several values in Age the first counts, and one that is no number of seconds does not (section 5.1).
    """
    date = parse_date(headers.get("date"), responded_at)
    apparent = max(0.0, responded_at - date) if date is not None else 0.0
    value = headers.get("age")
    age = parse_seconds(value.partition(",")[0].strip()) if value is not None else None
    delay = max(0.0, responded_at - requested_at)
    # A date has no fractions of a second: an apparent age below that is none.
    return max(apparent if apparent >= 1.0 else 0.0, (age or 0) + delay)


def has_explicit_freshness(headers: Headers, policy: CachePolicy) -> bool:
    """Return whether the origin says for how long the response is fresh, if not in words that make sense."""
    directives, is_targeted = response_directives(headers, policy)
    if "s-maxage" in directives or "max-age" in directives:
        return True
    return not is_targeted and "expires" in headers


def lifetime(head: ResponseHead, responded_at: float, policy: CachePolicy) -> float:
    """Return the freshness lifetime of a response, in seconds (RFC 9111 section 4.2.1); 0: it is stale at once.

    A lifetime that cannot be read is none.
    """
    headers = head.headers
    directives, is_targeted = response_directives(headers, policy)
    if directives.is_bare("no-cache"):
        return 0.0
    for name in ("s-maxage", "max-age"):
        seconds = directives.seconds(name, invalid=0.0)
        if seconds is not None:
            return min(seconds, policy.max_fresh_life)
    date = parse_date(headers.get("date"), responded_at)
    generated = responded_at if date is None else date
    if not is_targeted and "expires" in headers:
        expires = parse_date(headers.get("expires"), responded_at)
        return 0.0 if expires is None else min(max(0.0, expires - generated), policy.max_fresh_life)
    if head.status in policy.negative:
        return min(policy.negative[head.status], policy.max_fresh_life)
    if head.status not in HEURISTIC_STATUSES and "public" not in directives:
        return 0.0
    modified = parse_date(headers.get("last-modified"), responded_at)
    if modified is None or modified > generated:
        return 0.0
    return min((generated - modified) * policy.heuristic_fraction, policy.max_heuristic)


def stale_life(headers: Headers, policy: CachePolicy) -> StaleLife:
    """Return the times for which a response with ``headers`` may be served stale (RFC 9111 section 4.2.4, RFC 5861)."""
    directives, _ = response_directives(headers, policy)
    if any(name in directives for name in ("must-revalidate", "proxy-revalidate")) or directives.is_bare("no-cache"):
        return StaleLife(True, 0.0, 0.0, 0.0)
    if "s-maxage" in directives:
        if not policy.stale_beside_s_maxage:
            return StaleLife(True, 0.0, 0.0, 0.0)
        revalidating, error = (_stale(directives, name, 0.0, policy) for name in _STALE)
        return StaleLife(False, revalidating, error, error)
    revalidating = _stale(directives, _STALE[0], policy.stale_while_revalidate, policy)
    error = _stale(directives, _STALE[1], policy.stale_if_error, policy)
    return StaleLife(False, revalidating, error, max(error, min(policy.stale_if_disconnected, policy.max_stale_life)))


def has_validator(headers: Headers) -> bool:
    """Return whether a response can be asked about again."""
    return "etag" in headers or "last-modified" in headers


def useful_stale_seconds(headers: Headers, policy: CachePolicy) -> float:
    """Return the seconds for which a response is worth to be stored after its freshness."""
    if has_validator(headers):
        return policy.max_stale_life
    life = stale_life(headers, policy)
    return max(life.revalidating, life.error, life.disconnected)


def remaining(entry: StoredResponse, now: float) -> float:
    """Return the seconds for which ``entry`` will be fresh; less than 0: for how long it has been stale."""
    left = entry.fresh_for - entry.age(now)
    return min(left, entry.purged_at - now, 0.0) if entry.purged_at else left


_STALE = ("stale-while-revalidate", "stale-if-error")


def _stale(directives: Directives, name: str, default: float, policy: CachePolicy) -> float:
    seconds = directives.seconds(name, invalid=0.0)
    return min(default if seconds is None else seconds, policy.max_stale_life)
