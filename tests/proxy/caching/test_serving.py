"""Stored responses as answers: their heads, and the directives of requests (RFC 9111 sections 4 and 5.2.1)."""

from __future__ import annotations

import pytest

from rpcmq.proxy.caching import CachePolicy
from tests.proxy.caching.small_cache import SmallCache, reply

FRESH = {"Cache-Control": "max-age=100", "ETag": '"a"'}


def test_a_hit_has_age_length_and_cache_status() -> None:
    cache = SmallCache(reply(FRESH, b"12345"))
    first = cache.get()
    again = cache.age(30).get()
    assert first.cache_status == "rpcmq; fwd=uri-miss; fwd-status=200; ttl=100; stored"
    assert again.cache_status == "rpcmq; hit; ttl=70"
    assert (again.status, again.body, again.get("age"), again.get("content-length")) == (200, b"12345", "30", "5")
    assert len(cache.sent) == 1 and again.headers.every("etag") == ['"a"']


def test_cache_status_of_other_caches_stays_before_ours() -> None:
    """RFC 9211 section 2."""
    cache = SmallCache(reply({**FRESH, "Cache-Status": "inner; hit"}), policy=CachePolicy(name="my edge, 1"))
    assert cache.get().headers.every("cache-status")[0] == "inner; hit"
    assert cache.get().headers.every("cache-status") == ["inner; hit", '"my edge, 1"; hit; ttl=100']


def test_head_is_answered_by_what_get_stored() -> None:
    """RFC 9110 section 9.3.2."""
    cache = SmallCache(reply(FRESH, b"12345"))
    cache.get()
    head = cache.get(method="HEAD")
    assert (head.status, head.body, head.get("content-length"), head.is_hit) == (200, b"", "5", True)


def test_head_is_not_stored() -> None:
    cache = SmallCache(reply({**FRESH, "Content-Length": "5"}), reply(FRESH, b"12345"))
    head = cache.get(method="HEAD")
    assert head.get("content-length") == "5" and cache.get().body == b"12345"
    assert [request.method for request in cache.sent] == ["HEAD", "GET"]


def test_an_empty_body_is_one() -> None:
    cache = SmallCache(reply(FRESH, b""), reply(FRESH, b"", 204))
    cache.get()
    cache.get(target="/b")
    assert cache.get().get("content-length") == "0"
    assert (hit := cache.get(target="/b")).status == 204 and "content-length" not in hit.headers


@pytest.mark.parametrize(
    ("directive", "age", "is_hit"),
    [
        ("max-age=50", 40, True),
        ("max-age=50", 50, True),
        ("max-age=50", 51, False),
        ("max-age=0", 0, False),
        ("max-age=abc", 50, True),
        ("min-fresh=50", 40, True),
        ("min-fresh=50", 51, False),
        ("min-fresh=abc", 90, True),
        ("no-cache", 0, False),
        ("NO-CACHE", 0, False),
        ("no-store", 50, True),
        ("only-if-cached", 50, True),
        ("max-stale=10", 105, True),
        ("max-stale=10", 111, False),
        ("max-stale", 5000, True),
        ("max-stale=abc", 105, False),
        ("max-stale=10, max-age=50", 105, False),
        ("max-stale=10, no-cache", 105, False),
        ("no-transform", 50, True),
    ],
)
def test_a_request_says_which_response_will_do(directive: str, age: float, is_hit: bool) -> None:
    """RFC 9111 section 5.2.1."""
    cache = SmallCache(reply(FRESH), reply(FRESH, b"2"))
    cache.get()
    assert cache.age(age).get({"Cache-Control": directive}).is_hit == is_hit


def test_what_a_request_says_can_be_ignored() -> None:
    cache = SmallCache(reply(FRESH), policy=CachePolicy(request_directives=False))
    cache.get()
    assert cache.get({"Cache-Control": "no-cache, no-store, max-age=0"}).is_hit


def test_only_if_cached_is_answered_without_the_origin() -> None:
    """RFC 9111 section 5.2.1.7."""
    cache = SmallCache()
    answer = cache.get({"Cache-Control": "only-if-cached"})
    assert answer.status == 504 and not cache.sent and answer.get("cache-control") == "no-store"
    assert cache.get({"Cache-Control": "only-if-cached"}, method="HEAD").body == b""


def test_only_if_cached_with_a_stale_response() -> None:
    cache = SmallCache(reply(FRESH))
    cache.get()
    assert cache.age(101).get({"Cache-Control": "only-if-cached"}).status == 504
    assert cache.get({"Cache-Control": "only-if-cached, max-stale"}).is_hit


def test_what_is_immutable_is_not_reloaded_while_it_is_fresh() -> None:
    """RFC 8246 section 2.1."""
    cache = SmallCache(reply({**FRESH, "Cache-Control": "max-age=100, immutable"}), reply(FRESH), reply(FRESH))
    cache.get()
    assert cache.age(50).get({"Cache-Control": "max-age=0", "If-None-Match": '"a"'}).status == 304
    assert not cache.get({"Cache-Control": "no-cache"}).is_hit
    assert not cache.age(101).get({"Cache-Control": "max-age=0"}).is_hit


def test_a_request_with_a_login_may_be_answered_by_what_was_stored_without() -> None:
    cache = SmallCache(reply(FRESH))
    cache.get()
    assert cache.get({"Authorization": "Basic eA=="}).is_hit


def test_another_query_is_another_resource() -> None:
    cache = SmallCache(reply(FRESH, b"1"), reply(FRESH, b"2"))
    assert cache.get(target="/a?x").body == b"1" and cache.get(target="/a?y").body == b"2"
    assert cache.get(target="/a?x").body == b"1"
