"""Requests that change something invalidate what is stored (RFC 9111 section 4.4)."""

from __future__ import annotations

import pytest

from tests.proxy.caching.small_cache import Fields, SmallCache, reply

FRESH = {"Cache-Control": "max-age=100, stale-if-error=1000", "ETag": '"a"'}


def stored(*targets: str) -> SmallCache:
    cache = SmallCache(*(reply(FRESH, target.encode()) for target in targets))
    for target in targets:
        cache.get(target=target)
    return cache


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "FROB", "post", "MKCOL"])
@pytest.mark.parametrize("status", [200, 201, 204, 303, 307])
def test_a_method_that_may_change_something_invalidates(method: str, status: int) -> None:
    cache = stored("/a", "/b")
    cache.origin_sends(reply(status=status), reply(FRESH, b"new"))
    assert "fwd=method" in cache.get(method=method).cache_status
    answer = cache.get()
    assert answer.body == b"new" and "if-none-match" not in cache.sent[-1].headers
    assert cache.get(target="/b").is_hit


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND", "SEARCH", "HEAD"])
def test_a_safe_method_does_not(method: str) -> None:
    cache = stored("/a")
    cache.origin_sends(reply())
    cache.get(method=method)
    assert cache.get().is_hit


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503])
def test_nor_does_a_failed_one(status: int) -> None:
    cache = stored("/a")
    cache.origin_sends(reply(status=status))
    cache.get(method="POST")
    assert cache.get().is_hit


@pytest.mark.parametrize("field", ["Location", "Content-Location"])
@pytest.mark.parametrize(
    ("reference", "is_gone"),
    [
        ("/b", True),
        ("b", True),
        ("https://example.com/b", True),
        ("https://EXAMPLE.com:443/%62", True),
        ("http://example.com/b", False),
        ("https://example.org/b", False),
        ("/b?c", False),
    ],
)
def test_what_the_response_names_is_invalidated_too(field: str, reference: str, is_gone: bool) -> None:
    cache = stored("/a", "/b")
    answer: Fields = {field: reference}
    cache.origin_sends(reply(answer, status=201), reply(FRESH, b"new"))
    cache.get(method="POST")
    assert cache.get(target="/b").is_hit != is_gone


def test_an_invalidated_response_does_not_come_back_where_the_origin_fails() -> None:
    cache = stored("/a")
    cache.origin_sends(reply(), reply(status=503), reply(status=None))
    cache.get(method="POST")
    assert cache.get().status == 503 and cache.get().status == 502


def test_all_variants_are_invalidated() -> None:
    told = [*FRESH.items(), ("Vary", "X")]
    cache = SmallCache(reply(told), reply(told), reply(), reply(told), reply(told))
    for _ in range(2):
        assert not cache.get({"X": "1"}).is_hit and not cache.get({"X": "2"}).is_hit
        cache.get(method="DELETE")
    assert len(cache.sent) == 6
