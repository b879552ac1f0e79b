"""Responses that may be stored (RFC 9111 section 3), and their entries."""

from __future__ import annotations

from hashlib import blake2b

from rpcmq.proxy.caching.decisions import Forward
from rpcmq.proxy.caching.directives import Directives, response_directives
from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.freshness import (
    HEURISTIC_STATUSES,
    has_explicit_freshness,
    initial_age,
    lifetime,
    useful_stale_seconds,
)
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.caching.vary import selecting_fields, variant_id, varies_by_all
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead, list_members

__all__ = ["content_length", "new_entry", "obstacle"]

#: Statuses whose requirements on caches this one fulfils (RFC 9111 section 5.2.2.3), beside those of
#: HEURISTIC_STATUSES.
_UNDERSTOOD = (HEURISTIC_STATUSES - {206}) | {302, 303, 307, 400, 401, 403, 500, 502, 503, 504}
#: Statuses that answer a field or a moment rather than a URL: stored, one client's would be the answer to all.
_OF_ONE_REQUEST = frozenset((407, 408, 411, 412, 413, 415, 416, 417, 421, 425, 426, 428, 429, 431))
_MOST_TAGS = 256


def obstacle(forward: Forward, head: ResponseHead, policy: CachePolicy) -> str | None:
    """Return the reason for which the response to a GET request may not be stored, as one word; None: it may be."""
    headers = head.headers
    directives, _ = response_directives(headers, policy)
    if not forward.may_store:
        return "request"
    if head.status in (206, 304) or "content-range" in headers:
        return "partial"
    if "no-store" in directives and not ("must-understand" in directives and head.status in _UNDERSTOOD):
        return "no-store"
    if directives.is_bare("private"):
        return "private"
    if varies_by_all(headers):
        return "vary"
    is_shared = "public" in directives or "s-maxage" in directives
    if "authorization" in forward.client_request.headers and not is_shared and "must-revalidate" not in directives:
        return "authorization"
    if "set-cookie" in headers and not (
        is_shared or policy.stores_cookies or "set-cookie" in _unstored_fields(directives)
    ):
        return "set-cookie"
    if head.status in _OF_ONE_REQUEST:
        return "status"
    if not (_is_cacheable(head.status, policy) or "public" in directives or has_explicit_freshness(headers, policy)):
        return "status"
    size = content_length(headers)
    if size is not None and size > policy.max_body:
        return "size"
    if sum(len(name) + len(value) + 4 for name, value in headers) > policy.max_head:
        return "size"
    return None


def new_entry(
    key: str,
    request: RequestHead,
    head: ResponseHead,
    requested_at: float,
    responded_at: float,
    policy: CachePolicy,
) -> StoredResponse | None:
    """Return the entry of a response that may be stored; None: it would be of no use, never fresh and with no
    validator.

    Fields that the origin lets be used only after a validation, or by one client only, are not in it (RFC 9111 sections
    5.2.2.4 and 5.2.2.7).
    """
    headers = head.headers
    age = initial_age(headers, requested_at, responded_at)
    fresh_for = lifetime(head, responded_at, policy)
    stale_for = useful_stale_seconds(headers, policy)
    if fresh_for <= age and stale_for <= 0:
        return None
    selecting = selecting_fields(headers, request.headers)
    size = content_length(headers)
    directives, _ = response_directives(headers, policy)
    dropped = _unstored_fields(directives) | {"age", "content-length"}
    return StoredResponse(
        key,
        variant_id(selecting),
        selecting,
        head.status,
        head.reason,
        headers.without(dropped),
        requested_at,
        responded_at,
        age,
        fresh_for,
        stale_for,
        _tags(headers),
        -1 if size is None else size,
        body_id=blake2b(repr((requested_at, responded_at, head)).encode(), digest_size=8).hexdigest(),
    )


def content_length(headers: Headers) -> int | None:
    """Return the bytes that a response says its body has; None: it does not say so in words that make sense."""
    value = headers.get("content-length")
    return int(value) if value is not None and value.isdecimal() and value.isascii() and len(value) < 19 else None


def _is_cacheable(status: int, policy: CachePolicy) -> bool:
    return status in HEURISTIC_STATUSES or status in policy.negative


def _unstored_fields(directives: Directives) -> frozenset[str]:
    return directives.fields("no-cache") | directives.fields("private")


def _tags(headers: Headers) -> tuple[str, ...]:
    tags = dict.fromkeys((headers.joined("surrogate-key") or "").replace(",", " ").split())
    tags |= dict.fromkeys(list_members(headers.joined("cache-tag")))
    return tuple(tags)[:_MOST_TAGS]
