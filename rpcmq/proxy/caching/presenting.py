"""Responses as one client is to have them: all of one, ranges of it, or that it has not changed."""

from __future__ import annotations

from hashlib import blake2b

from rpcmq.proxy.caching.conditions import has_conditions, is_not_modified, is_same_range
from rpcmq.proxy.caching.decisions import BodyPlan, Span, plan_size
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.caching.ranges import multipart, parse_ranges, satisfiable
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead

__all__ = ["present"]


def present(
    request: RequestHead, head: ResponseHead, size: int | None, now: float, policy: CachePolicy
) -> tuple[ResponseHead, BodyPlan | None]:
    """Return the head and body with which a response with ``head`` answers ``request``, by its conditions and ranges.

    Args:
        request: as it came from its client, of method GET or HEAD.
        head: of the whole response, without Content-Length.
        size: bytes of its body; None: not known.
        now: the time.
        policy: its bound of ranges.

    The returned head has Content-Length where that is known. A body of None is all of it.
    """
    # Conditions are about a response that would have been a success (RFC 9110 section 13.2.1).
    if has_conditions(request.headers) and 200 <= head.status < 300:
        if is_not_modified(request.headers, head.headers, now):
            return ResponseHead(304, _without_content(head.headers), "Not Modified"), ()
        if request.method == "GET" and head.status == 200 and size is not None and "range" in request.headers:
            partial = _partial(request, head, size, now, policy)
            if partial is not None:
                return partial
    if size is None:
        return head, () if request.method == "HEAD" else None
    whole = ResponseHead(head.status, _with_length(head, size), head.reason)
    return whole, () if request.method == "HEAD" or not size else (Span(0, size),)


def _with_length(head: ResponseHead, size: int) -> Headers:
    if head.status == 204:
        # It has no body, and no length of one (RFC 9110 section 8.6).
        return head.headers
    return Headers((*head.headers.fields, ("Content-Length", str(size))))


def _without_content(headers: Headers) -> Headers:
    """Return the fields of a 304: those that describe a body the client has are left out (RFC 9110 section 15.4.5)."""
    kept = ("content-location", "content-security-policy", "content-security-policy-report-only")
    return headers.without({name for name in headers.names() if name.startswith("content-") and name not in kept})


def _partial(
    request: RequestHead, head: ResponseHead, size: int, now: float, policy: CachePolicy
) -> tuple[ResponseHead, BodyPlan] | None:
    ranges = parse_ranges(request.headers.get("range"), policy.max_ranges)
    if not ranges or not is_same_range(request.headers, head.headers, now):
        return None
    spans = satisfiable(ranges, size)
    if not spans:
        headers = _without_content(head.headers).without({"etag", "last-modified"})
        fields = (*headers.fields, ("Content-Range", f"bytes */{size}"), ("Content-Length", "0"))
        return ResponseHead(416, Headers(fields), "Range Not Satisfiable"), ()
    if len(spans) == 1:
        span = spans[0]
        own = (
            ("Content-Range", f"bytes {span.start}-{span.stop - 1}/{size}"),
            ("Content-Length", str(span.stop - span.start)),
        )
        return ResponseHead(206, Headers((*head.headers.fields, *own)), "Partial Content"), (span,)
    if sum(span.stop - span.start for span in spans) > size:
        # Ranges that overlap ask for more than there is: all of it is less (RFC 9110 section 17.15).
        return None
    boundary = _boundary(request.url, head.headers)
    plan = multipart(spans, size, head.headers.get("content-type"), boundary)
    own = (("Content-Type", f"multipart/byteranges; boundary={boundary}"), ("Content-Length", str(plan_size(plan))))
    return ResponseHead(206, Headers((*head.headers.without({"content-type"}).fields, *own)), "Partial Content"), plan


def _boundary(url: str, headers: Headers) -> str:
    """Return a boundary that is the same for a response each time, and that none has in its body by accident."""
    return blake2b(repr((url, headers.fields)).encode(), digest_size=18).hexdigest()
