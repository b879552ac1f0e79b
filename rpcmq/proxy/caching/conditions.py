"""Conditions of requests, and validators of responses (RFC 9110 section 13, RFC 9111 section 4.3)."""

from __future__ import annotations

import re

from rpcmq.proxy.caching.dates import parse_date
from rpcmq.proxy.messages import Headers

__all__ = [
    "CONDITIONS",
    "has_conditions",
    "is_not_modified",
    "is_same_range",
    "is_strong",
    "with_conditions",
    "without_conditions",
]

CONDITIONS = frozenset(("if-none-match", "if-modified-since", "if-range", "range"))
"""Fields of a request, in small letters, that a cache evaluates itself, beside the others of its kind that only
origins do.
"""

# Some origins have spaces in their tags, which RFC 9110 section 8.8.3 has not.
_ENTITY_TAG = re.compile(r'(?:W/)?"[^"\x00-\x1f]*"')
_STATED = re.compile(rf"\s*{_ENTITY_TAG.pattern}\s*(?:,|$)")


def has_conditions(headers: Headers) -> bool:
    """Return whether a request has a field of :data:`CONDITIONS`."""
    return headers.has_any(CONDITIONS)


def without_conditions(headers: Headers) -> Headers:
    """Return the fields of a request but for those of :data:`CONDITIONS`."""
    return headers.without(CONDITIONS) if has_conditions(headers) else headers


def with_conditions(headers: Headers, stored: Headers) -> Headers:
    """Return the fields of a request that asks whether the response with ``stored`` is still the current one.

    Both validators are sent where there are both (RFC 9111 section 4.3.1). Where there is none, neither is a condition.
    """
    fields = without_conditions(headers).fields
    if (tag := stored.get("etag")) is not None:
        fields += (("If-None-Match", tag),)
    if (modified := stored.get("last-modified")) is not None:
        fields += (("If-Modified-Since", modified),)
    return Headers(fields)


def is_strong(tag: str | None) -> bool:
    """Return whether an entity tag stands for the same bytes, not the same meaning (RFC 9110 section 8.8.1)."""
    return tag is not None and tag.startswith('"')


def is_not_modified(request: Headers, response: Headers, now: float) -> bool:
    """Return whether the conditions of a GET or HEAD request say that its client has the response already.

    If-None-Match is compared weakly, and where it is there If-Modified-Since does not count (RFC 9110 section 13.2.2).
    A response without Last-Modified is as old as its Date (RFC 9111 section 4.3.2).
    """
    wanted = request.joined("if-none-match")
    if wanted is not None:
        return _is_among(response.get("etag"), wanted)
    since = parse_date(request.get("if-modified-since"), now)
    if since is None:
        return False
    name = "last-modified" if "last-modified" in response else "date"
    modified = parse_date(response.get(name), now)
    return modified is not None and modified <= since


def is_same_range(request: Headers, response: Headers, now: float) -> bool:
    """Return whether If-Range, if it is there, lets the request's ranges be answered with those of the response
    (section 13.1.5).
    """
    condition = request.get("if-range")
    if condition is None:
        return True
    if condition.startswith(('"', "W/")):
        return is_strong(condition) and condition == response.get("etag")
    modified = parse_date(response.get("last-modified"), now)
    date = parse_date(response.get("date"), now)
    if modified is None or date is None or parse_date(condition, now) != modified:
        return False
    # A date is a strong validator only if the response was made later than in the second of its change (section
    # 8.8.2.2).
    return date >= modified + 1.0


def _is_among(tag: str | None, wanted: str) -> bool:
    if wanted.strip() == "*":
        return True
    if tag is None:
        return False
    opaque = tag.removeprefix("W/")
    # A tag may have commas, so that this is no list to be split.
    position = 0
    while found := _STATED.match(wanted, position):
        if found[0].strip().rstrip(",").rstrip().removeprefix("W/") == opaque:
            return True
        position = found.end()
        if position >= len(wanted):
            return False
    # Some clients send tags without quotes, which only a response with the same one can mean.
    return any(each.strip().removeprefix("W/") == opaque for each in wanted[position:].split(","))
