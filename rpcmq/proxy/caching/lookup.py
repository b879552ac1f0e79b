"""Requests: whether a stored response answers one, or the origin is asked (RFC 9111 section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rpcmq.proxy.caching.cache_status import forwarded, hit, with_status
from rpcmq.proxy.caching.conditions import has_conditions, with_conditions, without_conditions
from rpcmq.proxy.caching.dates import format_date
from rpcmq.proxy.caching.decisions import Answer, Decision, Forward, ForwardReason, Serve, Span
from rpcmq.proxy.caching.directives import (
    MOST_SECONDS,
    NO_DIRECTIVES,
    Directives,
    request_directives,
    response_directives,
)
from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.freshness import has_validator, remaining, stale_life
from rpcmq.proxy.caching.keys import cache_key
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.caching.presenting import present
from rpcmq.proxy.caching.ranges import first_byte, parse_ranges
from rpcmq.proxy.caching.vary import matches, select
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead

__all__ = ["decide", "error_answer", "follow", "serve", "unconditional"]

_OF_A_BODY = frozenset(("content-length", "transfer-encoding"))


def decide(
    request: RequestHead, stored: Sequence[StoredResponse], now: float, policy: CachePolicy, key: str = ""
) -> Decision:
    """Return the way to treat ``request``.

    Args:
        request: as it came from the client.
        stored: the stored responses of its key, all its variants.
        now: seconds of the wall clock.
        policy: the settings of the cache.
        key: the request's, where it is known already.
    """
    key = key or cache_key(request, policy)
    if request.method not in ("GET", "HEAD"):
        return Forward(key, request, request, ForwardReason.METHOD)
    if request.headers.has_any(_OF_A_BODY) and _has_body(request.headers):
        # A body of GET means nothing by RFC 9110 section 9.3.1, and a lot to some origins.
        return Forward(key, request, request, ForwardReason.BYPASS)
    directives = request_directives(request.headers, policy)
    entry = select(stored, request.headers, now)
    if entry is None or entry.useless_at <= now:
        reason = ForwardReason.VARY_MISS if stored and entry is None else ForwardReason.URI_MISS
        forward = _miss(key, request, reason, directives, policy)
    else:
        left = remaining(entry, now)
        if left > 0 and (not directives or _is_acceptable(entry, left, directives, now, policy)):
            return serve(entry, request, now, policy)
        if left <= 0 and (served := _stale(entry, request, -left, directives, now, policy)):
            return served
        forward = _validation(
            key, request, entry, directives, ForwardReason.REQUEST if left > 0 else ForwardReason.STALE
        )
    if "only-if-cached" in directives:
        return error_answer(
            forward, 504, "Gateway Timeout", "nothing stored may be used, and only that was asked for", now, policy
        )
    return forward


def follow(forward: Forward, entry: StoredResponse, now: float, policy: CachePolicy) -> Serve | None:
    """Return the answer for a request that has waited for the response to another one, which has become ``entry``.

    Its request came before the response, which therefore answers it even if it is already stale (RFC 9111 section 4).
    None: it does not answer this one, which has to go to the origin on its own.
    """
    request = forward.client_request
    if not forward.may_collapse or forward.key != entry.key or not matches(entry, request.headers):
        return None
    directives, _ = response_directives(entry.headers, policy)
    if directives.is_bare("no-cache"):
        return None
    left = remaining(entry, now)
    status = forwarded(policy.name, forward.reason, is_collapsed=True, remaining=left)
    return _served(entry, request, status, now, policy)


def serve(
    entry: StoredResponse,
    request: RequestHead,
    now: float,
    policy: CachePolicy,
    *,
    status: str | None = None,
    revalidate: Forward | None = None,
) -> Serve:
    """Return ``entry`` as the answer to ``request``, with ``status`` as Cache-Status, which is that of a hit else."""
    served = _served(entry, request, status or hit(policy.name, remaining(entry, now)), now, policy)
    return served if revalidate is None else replace(served, revalidate=revalidate)


def unconditional(forward: Forward) -> Forward:
    """Return ``forward`` without the conditions of the cache."""
    headers = without_conditions(forward.request.headers)
    return replace(forward, request=replace(forward.request, headers=headers), candidates=())


def error_answer(forward: Forward, status: int, reason: str, text: str, now: float, policy: CachePolicy) -> Answer:
    """Return an answer of the cache's own, ``text`` being the reason for the reader, which nobody may store."""
    body = b"" if forward.client_request.method == "HEAD" else f"{status} {reason}: {text}\n".encode()
    fields: tuple[tuple[str, str], ...] = (
        ("Date", format_date(int(now))),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Cache-Control", "no-store"),
        ("Content-Length", str(len(body))),
    )
    if status == 503:
        fields = (*fields, ("Retry-After", "1"))
    headers = with_status(Headers(fields), forwarded(policy.name, forward.reason, detail="no-response"))
    return Answer(ResponseHead(status, headers, reason), body)


def _served(entry: StoredResponse, request: RequestHead, status: str, now: float, policy: CachePolicy) -> Serve:
    own = (("Age", str(min(int(entry.age(now)), MOST_SECONDS))), ("Cache-Status", status))
    size = entry.body_size
    if size > 0 and entry.status == 200 and request.method == "GET" and not has_conditions(request.headers):
        # As below, for the requests that most are.
        fields = (*entry.headers.fields, *own, ("Content-Length", str(size)))
        return Serve(entry, ResponseHead(200, Headers(fields), entry.reason), (Span(0, size),))
    head = ResponseHead(entry.status, Headers((*entry.headers.fields, *own)), entry.reason)
    return Serve(entry, *present(request, head, size if size >= 0 else None, now, policy))


def _is_acceptable(entry: StoredResponse, left: float, directives: Directives, now: float, policy: CachePolicy) -> bool:
    """Return whether a fresh response is good enough for a request with ``directives`` (RFC 9111 section 5.2.1)."""
    if "no-cache" in directives:
        return False
    oldest = directives.seconds("max-age", invalid=None)
    if oldest is not None and (entry.age(now) > oldest or not oldest):
        # What never changes while it is fresh needs no reload (RFC 8246 section 2.1).
        own, _ = response_directives(entry.headers, policy)
        if "immutable" not in own:
            return False
    freshest = directives.seconds("min-fresh", invalid=None)
    return freshest is None or left >= freshest


def _stale(
    entry: StoredResponse,
    request: RequestHead,
    staleness: float,
    directives: Directives,
    now: float,
    policy: CachePolicy,
) -> Serve | None:
    """Return the answer with a response that has been stale for ``staleness`` seconds; None: it may not be served."""
    life = stale_life(entry.headers, policy)
    if life.is_forbidden or "no-cache" in directives:
        return None
    if not _is_young_enough(entry, directives, now):
        return None
    if "max-stale" in directives and not entry.purged_at:
        most = (
            directives.seconds("max-stale", invalid=0.0)
            if not directives.has_no_argument("max-stale")
            else MOST_SECONDS
        )
        if most is not None and staleness <= most:
            return serve(entry, request, now, policy)
    if staleness < life.revalidating and "min-fresh" not in directives:
        background = replace(request, method="GET")
        revalidation = _validation(entry.key, background, entry, NO_DIRECTIVES, ForwardReason.STALE)
        return serve(entry, request, now, policy, revalidate=revalidation)
    return None


def _is_young_enough(entry: StoredResponse, directives: Directives, now: float) -> bool:
    oldest = directives.seconds("max-age", invalid=None)
    return oldest is None or entry.age(now) <= oldest


def _miss(
    key: str, request: RequestHead, reason: ForwardReason, directives: Directives, policy: CachePolicy
) -> Forward:
    headers = request.headers
    if request.method == "HEAD":
        return Forward(key, request, request, reason)
    may_store = "no-store" not in directives
    if "range" in headers:
        first = first_byte(parse_ranges(headers.get("range"), policy.max_ranges))
        if first is None or first >= policy.range_fill:
            # To fetch all for the sake of its end would have the client wait.
            return Forward(key, request, request, ForwardReason.PARTIAL, may_store=may_store)
    if not may_store:
        return Forward(key, request, request, reason)
    sent = replace(request, headers=without_conditions(headers)) if has_conditions(headers) else request
    return Forward(key, request, sent, reason, may_store=True, may_collapse=_may_collapse(headers))


def _validation(
    key: str, request: RequestHead, entry: StoredResponse, directives: Directives, reason: ForwardReason
) -> Forward:
    may_store = "no-store" not in directives
    sent = replace(request, headers=with_conditions(request.headers, entry.headers))
    is_get = request.method == "GET"
    return Forward(
        key,
        request,
        sent,
        reason,
        (entry,) if has_validator(entry.headers) else (),
        may_store and is_get,
        # A client that wants more than is stored wants a response of its own.
        may_store and is_get and reason is ForwardReason.STALE and _may_collapse(request.headers),
        entry,
    )


def _may_collapse(headers: Headers) -> bool:
    return not any(name in headers for name in ("authorization", "if-match", "if-unmodified-since"))


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length") not in (None, "0") or "transfer-encoding" in headers
