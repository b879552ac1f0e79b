"""Responses that may be stored (RFC 9111 section 3), and the fields that may be (section 3.1)."""

from __future__ import annotations

import pytest

from rpcmq.proxy.caching import CachePolicy, Deliver, Forward, decide, receive
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead
from tests.proxy.caching.small_cache import START, Fields, SmallCache, fields, reply

FRESH = "max-age=100"
LOGIN = {"Authorization": "Basic eA=="}

#: RFC 9111 section, request, response, status, whether it is stored.
CASES: list[tuple[str, Fields, Fields, int, bool]] = [
    ("3", {}, {"Cache-Control": FRESH}, 200, True),
    ("3: a final response without freshness", {}, {}, 200, False),
    ("5.2.2.5", {}, {"Cache-Control": f"no-store, {FRESH}"}, 200, False),
    ("5.2.2.5", {}, {"Cache-Control": f"{FRESH}, No-Store"}, 200, False),
    ("5.2.2.7", {}, {"Cache-Control": f"private, {FRESH}"}, 200, False),
    ("5.2.2.7: of some fields", {}, {"Cache-Control": f'private="X", {FRESH}'}, 200, True),
    ("5.2.2.3", {}, {"Cache-Control": f"no-store, must-understand, {FRESH}"}, 200, True),
    ("5.2.2.3: not understood", {}, {"Cache-Control": f"no-store, must-understand, {FRESH}"}, 299, False),
    ("5.2.1.5", {"Cache-Control": "no-store"}, {"Cache-Control": FRESH}, 200, False),
    ("3.5", LOGIN, {"Cache-Control": FRESH}, 200, False),
    ("3.5", LOGIN, {"Expires": "Fri, 01 Jan 2100 00:00:00 GMT"}, 200, False),
    ("3.5", LOGIN, {"Cache-Control": f"public, {FRESH}"}, 200, True),
    ("3.5", LOGIN, {"Cache-Control": "s-maxage=100"}, 200, True),
    ("3.5", LOGIN, {"Cache-Control": f"must-revalidate, {FRESH}"}, 200, True),
    ("4.1", {}, {"Cache-Control": FRESH, "Vary": "*"}, 200, False),
    ("4.1", {}, [("Cache-Control", FRESH), ("Vary", "A"), ("Vary", "B, *")], 200, False),
    ("3.3: a part", {}, {"Cache-Control": FRESH, "Content-Range": "bytes 0-3/9"}, 200, False),
    ("7.3: a cookie", {}, {"Cache-Control": FRESH, "Set-Cookie": "a=b"}, 200, False),
    ("7.3: a cookie, public", {}, {"Cache-Control": f"public, {FRESH}", "Set-Cookie": "a=b"}, 200, True),
    ("7.3: a cookie set aside", {}, {"Cache-Control": f'no-cache="Set-Cookie", {FRESH}', "Set-Cookie": "a"}, 200, True),
    ("3: any status", {}, {"Cache-Control": FRESH}, 418, True),
    ("3: no use", {}, {"Cache-Control": "max-age=0, must-revalidate"}, 200, False),
    ("3: too large for the policy", {}, {"Cache-Control": FRESH, "Content-Length": "9" * 12}, 200, False),
    ("3: a head too large for the policy", {}, {"Cache-Control": FRESH, "X": "x" * 70000}, 200, False),
]


@pytest.mark.parametrize(("section", "request_fields", "response", "status", "is_stored"), CASES)
def test_a_response_is_stored(
    section: str, request_fields: Fields, response: Fields, status: int, is_stored: bool
) -> None:
    request = RequestHead("GET", "/", fields(request_fields), authority="a")
    forward = decide(request, (), START, CachePolicy())
    assert isinstance(forward, Forward)
    outcome = receive(forward, ResponseHead(status, fields(response)), START, START, CachePolicy())
    assert isinstance(outcome, Deliver)
    is_useful = outcome.store is not None and (outcome.store.fresh_for > 0)
    assert is_useful == is_stored, f"RFC 9111 section {section}"
    assert ("; stored" in outcome.response.headers.every("cache-status")[-1]) == (outcome.store is not None)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "get"])
def test_other_methods_are_never_stored_nor_answered(method: str) -> None:
    """RFC 9111 section 3: a method that the cache does not understand; methods are told apart by case."""
    cache = SmallCache(*(reply({"Cache-Control": FRESH}) for _ in range(2)))
    assert not cache.get(method=method).is_hit and not cache.get(method=method).is_hit and len(cache.sent) == 2


def test_a_request_with_a_body_goes_past_the_cache() -> None:
    cache = SmallCache(*(reply({"Cache-Control": FRESH}) for _ in range(3)))
    cache.get()
    assert "fwd=bypass" in cache.get({"Content-Length": "5"}).cache_status
    assert "fwd=bypass" in cache.get({"Transfer-Encoding": "chunked"}).cache_status
    assert cache.get({"Content-Length": "0"}).is_hit


def test_fields_of_the_connection_are_not_stored() -> None:
    """RFC 9111 section 3.1."""
    hop = [("Connection", "X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "1"), ("Proxy-Authenticate", "x"), ("X-End", "2")]
    cache = SmallCache(reply([("Cache-Control", FRESH), *hop]))
    first, second = cache.get(), cache.get()
    assert second.is_hit
    for name in ("connection", "x-hop", "keep-alive", "proxy-authenticate"):
        assert name not in first.headers and name not in second.headers
    assert second.get("x-end") == "2"


@pytest.mark.parametrize("directive", ["private", "no-cache"])
def test_fields_for_one_client_are_for_the_first_only(directive: str) -> None:
    """RFC 9111 sections 5.2.2.4 and 5.2.2.7."""
    cache = SmallCache(reply({"Cache-Control": f'{FRESH}, {directive}="X-Me, Set-Cookie"', "X-Me": "1", "X-All": "2"}))
    assert cache.get().get("x-me") == "1"
    again = cache.get()
    assert again.is_hit and again.get("x-me") is None and again.get("x-all") == "2"


def test_unknown_fields_and_their_order_are_stored() -> None:
    own = [("X-B", "1"), ("X-A", "2"), ("X-B", "3")]
    cache = SmallCache(reply([*own, ("Cache-Control", FRESH)]))
    cache.get()
    assert [field for field in cache.get().headers if field[0].startswith("X-")] == own


def test_a_response_without_a_date_gets_one() -> None:
    """RFC 9110 section 6.6.1."""
    forward = decide(RequestHead("GET", "/", authority="a"), (), START, CachePolicy())
    assert isinstance(forward, Forward)
    head = ResponseHead(200, Headers([("Cache-Control", FRESH)]))
    outcome = receive(forward, head, START, START, CachePolicy())
    assert isinstance(outcome, Deliver) and outcome.store is not None
    assert outcome.response.headers.get("date") == outcome.store.headers.get("date") == "Fri, 15 Jan 2027 08:00:00 GMT"


def test_a_response_that_becomes_private_removes_its_forerunner() -> None:
    first = reply({"Cache-Control": "max-age=1, stale-if-error=100"}, b"old")
    cache = SmallCache(first, reply({"Cache-Control": "private"}, b"mine"), reply(status=None))
    cache.get()
    assert cache.age(2).get().body == b"mine"
    assert cache.get().status == 502
