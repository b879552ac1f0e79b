"""Requests that may wait for the response to another one, and share it."""

from __future__ import annotations

import pytest

from rpcmq.proxy.caching import CachePolicy, Deliver, Forward, Serve, Span, StoredResponse, decide, follow, receive
from rpcmq.proxy.messages import RequestHead, ResponseHead
from tests.proxy.caching.small_cache import START, Fields, fields

POLICY = CachePolicy()


def forward_of(headers: Fields = (), stored: tuple[StoredResponse, ...] = (), method: str = "GET") -> Forward:
    request = RequestHead(method, "/a", fields(headers), authority="example.com")
    forward = decide(request, stored, START, POLICY)
    assert isinstance(forward, Forward)
    return forward


def response_to(leader: Forward, headers: Fields) -> Deliver:
    outcome = receive(leader, ResponseHead(200, fields(headers)), START, START, POLICY)
    assert isinstance(outcome, Deliver)
    return outcome


def shared(leader: Fields, response: Fields, follower: Fields) -> Serve | None:
    entry = response_to(forward_of(leader), response).store
    return None if entry is None else follow(forward_of(follower), entry, START, POLICY)


@pytest.mark.parametrize(
    ("headers", "method", "may"),
    [
        ({}, "GET", True),
        ({"If-None-Match": '"a"'}, "GET", True),
        ({"Range": "bytes=0-"}, "GET", True),
        ({"Cookie": "a=b"}, "GET", True),
        ({"Range": "bytes=-9"}, "GET", False),
        ({"Authorization": "x"}, "GET", False),
        ({"If-Match": '"a"'}, "GET", False),
        ({"Cache-Control": "no-store"}, "GET", False),
        ({"Content-Length": "3"}, "GET", False),
        ({}, "HEAD", False),
        ({}, "POST", False),
    ],
)
def test_a_request_may_wait(headers: Fields, method: str, may: bool) -> None:
    assert forward_of(headers, method=method).may_collapse == may


def test_a_request_that_wants_more_than_is_stored_does_not_wait() -> None:
    entry = response_to(forward_of(), {"Cache-Control": "max-age=100"}).store
    assert entry is not None and not forward_of({"Cache-Control": "no-cache"}, (entry,)).may_collapse


def test_a_response_that_is_stored_is_shared() -> None:
    served = shared({}, {"Cache-Control": "max-age=100", "Content-Length": "5"}, {})
    assert served is not None and served.body == (Span(0, 5),) and served.response.status == 200
    assert served.response.headers.get("cache-status") == "rpcmq; fwd=uri-miss; ttl=100; collapsed"
    unsized = shared({}, {"Cache-Control": "max-age=100"}, {})
    assert unsized is not None and unsized.body is None


def test_one_that_is_stale_at_once_is_shared_with_those_who_waited() -> None:
    assert shared({}, {"Cache-Control": "max-age=0", "ETag": '"a"'}, {}) is not None


@pytest.mark.parametrize(
    ("response", "follower"),
    [
        ({"Cache-Control": "private"}, {}),
        ({"Cache-Control": "no-store"}, {}),
        ({"Cache-Control": "no-cache", "ETag": '"a"'}, {}),
        ({"Cache-Control": "max-age=9", "Vary": "*"}, {}),
        ({"Cache-Control": "max-age=9", "Vary": "X"}, {"X": "1"}),
        ({"Cache-Control": "max-age=9", "Set-Cookie": "a=b"}, {}),
        ({"Cache-Control": "max-age=9"}, {"Authorization": "x"}),
    ],
    ids=str,
)
def test_these_are_not_shared(response: Fields, follower: Fields) -> None:
    assert shared({}, response, follower) is None


def test_one_of_another_key_is_not_shared() -> None:
    entry = response_to(forward_of(), {"Cache-Control": "max-age=9"}).store
    other = decide(RequestHead("GET", "/b", authority="example.com"), (), START, POLICY)
    assert entry is not None and isinstance(other, Forward) and follow(other, entry, START, POLICY) is None


def test_conditions_of_who_waited_hold_of_it() -> None:
    served = shared({}, {"Cache-Control": "max-age=9", "ETag": '"a"'}, {"If-None-Match": '"a"'})
    assert served is not None and served.response.status == 304 and served.body == ()


def test_a_response_that_cannot_be_shared_says_that_waiting_is_of_no_use() -> None:
    assert response_to(forward_of(), {"Cache-Control": "private"}).uncacheable_for == POLICY.uncacheable_seconds
    assert response_to(forward_of(), {"Cache-Control": "max-age=9"}).uncacheable_for == 0
