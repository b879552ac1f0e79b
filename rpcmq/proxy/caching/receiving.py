"""Responses of the origin: whom they answer, and what becomes of the store (RFC 9111 sections 3, 4.3 and 4.4)."""

from __future__ import annotations

from dataclasses import replace

from rpcmq.proxy.caching.cache_status import forwarded, with_status
from rpcmq.proxy.caching.conditions import is_strong
from rpcmq.proxy.caching.dates import format_date, parse_date
from rpcmq.proxy.caching.decisions import Answer, Deliver, Forward, Outcome, Refresh, Resend, Serve, goes_back
from rpcmq.proxy.caching.directives import request_directives
from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.freshness import remaining, stale_life
from rpcmq.proxy.caching.keys import related_key
from rpcmq.proxy.caching.lookup import error_answer, serve, unconditional
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.caching.presenting import present
from rpcmq.proxy.caching.storing import content_length, new_entry, obstacle
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead, end_to_end

__all__ = ["fail", "receive"]

#: Methods that change nothing; any other one may, and so invalidates (RFC 9111 section 4.4).
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "REPORT", "SEARCH"))
#: Statuses for which a stale response is better (RFC 5861 section 4).
_ERRORS = (500, 502, 503, 504)
#: Fields that a 304 does not change: they belong to the body that is stored (RFC 9111 section 3.2).
_OF_THE_BODY = frozenset(("content-encoding", "content-length", "content-range"))
_REASONS = {
    502: ("Bad Gateway", "the origin gave no usable response"),
    503: ("Service Unavailable", "too many requests are under way"),
    504: ("Gateway Timeout", "the origin gave no response in time"),
}


def receive(
    forward: Forward,
    response: ResponseHead,
    requested_at: float,
    now: float,
    policy: CachePolicy,
    *,
    has_end: bool = True,
) -> Outcome:
    """Return the way to treat the response of the origin to ``forward``, whose body is still to come.

    Args:
        forward: the request that was sent.
        response: its final response, as it came.
        requested_at: time at which the request was sent, in seconds of the wall clock.
        now: time at which the head came.
        policy: the settings of the cache.
        has_end: False: only the end of the connection ends the body, so that nobody knows whether it is whole.
    """
    head = _received(response, now)
    method = forward.client_request.method
    if head.status == 304 and forward.candidates:
        return _validated(forward, head, requested_at, now, policy)
    if not _fits(forward.request, head.status):
        # It would leave the client with a part of a body, or with none, for all of one.
        return _error(forward, 502, now, policy)
    if head.status in _ERRORS and (served := _instead_of_error(forward, head.status, now, policy)):
        return served
    if method == "GET":
        return _got(forward, head, requested_at, now, policy, has_end)
    told = with_status(head.headers, forwarded(policy.name, forward.reason, status=head.status))
    delivered = Deliver(head.with_headers(told))
    if method == "HEAD":
        return _after_head(forward, head, delivered, requested_at, now, policy)
    if method not in _SAFE_METHODS and 200 <= head.status < 400:
        return replace(delivered, invalidates=_related(forward, head.headers, policy))
    return delivered


def fail(forward: Forward, status: int, now: float, policy: CachePolicy) -> Serve | Answer:
    """Return the answer to a request to which the origin gave no response: a stale one if allowed, or an error.

    ``status`` is that of the error: 502, 503 where there is too much to do, or 504 where the origin took too long.
    """
    served = _instead_of_error(forward, None, now, policy)
    if served is not None:
        return served
    return _error(forward, status, now, policy)


def _error(forward: Forward, status: int, now: float, policy: CachePolicy) -> Answer:
    reason, text = _REASONS.get(status, ("Error", "the origin gave no response"))
    return error_answer(forward, status, reason, text, now, policy)


def _received(response: ResponseHead, now: float) -> ResponseHead:
    """Return a response without the fields of the connection, and with a date (RFC 9110 section 6.6.1)."""
    headers = end_to_end(response.headers)
    if parse_date(headers.get("date"), now) is None:
        headers = headers.having("Date", format_date(int(now)))
    return response.with_headers(headers)


def _fits(request: RequestHead, status: int) -> bool:
    """Return whether a response of ``status`` can be the answer to ``request``: what was not asked for is no answer."""
    if status == 304:
        return any(name in request.headers for name in ("if-none-match", "if-modified-since"))
    return status != 206 or "range" in request.headers


def _instead_of_error(forward: Forward, status: int | None, now: float, policy: CachePolicy) -> Serve | None:
    """Return the stale answer in place of a response of ``status``, None being no response; None: none is allowed."""
    entry = forward.stale
    if entry is None:
        return None
    life = stale_life(entry.headers, policy)
    asked = request_directives(forward.client_request.headers, policy).seconds("stale-if-error", invalid=None)
    most = max(life.disconnected if status is None else life.error, min(asked or 0.0, policy.max_stale_life))
    left = remaining(entry, now)
    if life.is_forbidden or not most or -left > most:
        return None
    told = forwarded(policy.name, forward.reason, status=status, remaining=left, detail="stale-if-error")
    return serve(entry, forward.client_request, now, policy, status=told)


def _validated(
    forward: Forward, head: ResponseHead, requested_at: float, now: float, policy: CachePolicy
) -> Refresh | Resend:
    entry = next((each for each in forward.candidates if _is_meant(each, head.headers)), None)
    if entry is None:
        return Resend(unconditional(forward))
    updated = _updated(forward, entry, head.headers, requested_at, now, policy)
    left = remaining(updated, now)
    status = forwarded(policy.name, forward.reason, status=304, is_stored=True, remaining=left)
    return Refresh(updated, serve(updated, forward.client_request, now, policy, status=status))


def _is_meant(entry: StoredResponse, confirmation: Headers) -> bool:
    """Return whether a 304 with these fields is about ``entry``, the one response that was asked about
    (RFC 9111 section 4.3.4).
    """
    tag, own = confirmation.get("etag"), entry.headers.get("etag")
    if tag is not None and own is not None:
        # A strong tag is told apart from a weak one; weak ones stand for the same meaning.
        return tag == own if is_strong(tag) and is_strong(own) else tag.removeprefix("W/") == own.removeprefix("W/")
    modified, stored = confirmation.get("last-modified"), entry.headers.get("last-modified")
    # Without a validator it can only be the answer to the question that was asked.
    return modified is None or stored is None or modified == stored


def _updated(
    forward: Forward,
    entry: StoredResponse,
    told: Headers,
    requested_at: float,
    now: float,
    policy: CachePolicy,
) -> StoredResponse:
    """Return ``entry`` with the fields that a 304, or a response to HEAD, has told (RFC 9111 section 3.2)."""
    fields = told.without(_OF_THE_BODY)
    # An age is that of the message it came in.
    names = {*fields.names(), "age"}
    head = ResponseHead(entry.status, Headers((*entry.headers.without(names), *fields)), entry.reason)
    request = forward.client_request
    updated = new_entry(entry.key, request, head, requested_at, now, policy)
    may_stay = updated is not None and obstacle(replace(forward, may_store=True), head, policy) is None
    if updated is None or not may_stay:
        # It answers this request, and is good for nothing after it.
        headers = head.headers.without({"age"})
        return replace(
            entry, headers=headers, requested_at=requested_at, responded_at=now, fresh_for=0.0, stale_for=0.0
        )
    return replace(updated, variant=entry.variant, body_size=entry.body_size, body_id=entry.body_id)


def _got(
    forward: Forward, head: ResponseHead, requested_at: float, now: float, policy: CachePolicy, has_end: bool
) -> Deliver:
    reason = obstacle(forward, head, policy) or (None if has_end else "partial")
    entry = None
    if reason is None:
        entry = new_entry(forward.key, forward.client_request, head, requested_at, now, policy)
        reason = "useless" if entry is None else None
    status = forwarded(
        policy.name,
        forward.reason,
        status=head.status,
        is_stored=entry is not None,
        remaining=None if entry is None else remaining(entry, now),
        detail=reason or "",
    )
    delivered = Deliver(
        head.with_headers(with_status(head.headers, status)),
        entry,
        # A response that is no longer to be stored must not leave its forerunner behind, to be served where the origin
        # fails.
        invalidates=(forward.key,) if forward.stale and reason in ("no-store", "private") else (),
        uncacheable_for=policy.uncacheable_seconds if entry is None else 0.0,
    )
    return delivered if forward.request is forward.client_request else _presented(forward, delivered, now, policy)


def _presented(forward: Forward, delivered: Deliver, now: float, policy: CachePolicy) -> Deliver:
    """Return ``delivered`` by the conditions and ranges of the client, which were not sent to the origin."""
    size = content_length(delivered.response.headers)
    bare = replace(delivered.response, headers=delivered.response.headers.without({"content-length"}))
    head, body = present(forward.client_request, bare, size, now, policy)
    if head.status == delivered.response.status:
        return delivered
    if body is not None and goes_back(body):
        # The body would have to be held; Range may be ignored (RFC 9110 section 14.2).
        return delivered
    return replace(delivered, response=head, body=body)


def _after_head(
    forward: Forward, head: ResponseHead, delivered: Deliver, requested_at: float, now: float, policy: CachePolicy
) -> Deliver | Refresh:
    """Return the outcome of a response to HEAD, which tells whether a stored response to GET is current (section
    4.3.5).
    """
    if not forward.candidates or head.status != 200:
        return delivered
    (entry,) = forward.candidates
    size = content_length(head.headers)
    is_current = (size is None or size == entry.body_size) and all(
        head.headers.get(name) == entry.headers.get(name) for name in ("etag", "last-modified")
    )
    if not is_current or entry.status != 200:
        return replace(delivered, invalidates=(forward.key,))
    updated = _updated(forward, entry, head.headers, requested_at, now, policy)
    status = forwarded(policy.name, forward.reason, status=200, is_stored=True, remaining=remaining(updated, now))
    return Refresh(updated, serve(updated, forward.client_request, now, policy, status=status))


def _related(forward: Forward, headers: Headers, policy: CachePolicy) -> tuple[str, ...]:
    request = forward.client_request
    named = (related_key(request, headers.get(name), policy) for name in ("location", "content-location"))
    return tuple(dict.fromkeys((forward.key, *(key for key in named if key is not None))))
