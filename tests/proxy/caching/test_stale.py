"""Stale responses: who may have them, and for how long (RFC 9111 section 4.2.4, RFC 5861)."""

from __future__ import annotations

import pytest

from rpcmq.proxy.caching import CachePolicy
from tests.proxy.caching.small_cache import Reply, SmallCache, reply

FAILURES = [500, 502, 503, 504, None]


def cache_of(directives: str, *more: Reply, policy: CachePolicy | None = None) -> SmallCache:
    cache = SmallCache(reply({"Cache-Control": f"max-age=10, {directives}", "ETag": '"a"'}, b"1"), *more, policy=policy)
    cache.get()
    return cache


def test_a_stale_response_is_served_while_it_is_revalidated() -> None:
    """RFC 5861 section 3."""
    cache = cache_of("stale-while-revalidate=5", reply({"Cache-Control": "max-age=10"}, b"2"))
    stale = cache.age(14).get()
    assert stale.body == b"1" and stale.cache_status == "rpcmq; hit; ttl=-4" and stale.get("age") == "14"
    assert cache.sent[-1].headers.get("if-none-match") == '"a"'
    assert cache.get().body == b"2"


def test_not_for_longer_than_it_says() -> None:
    cache = cache_of("stale-while-revalidate=5", reply(body=b"2"))
    assert cache.age(15).get().body == b"2"


def test_head_revalidates_by_get() -> None:
    cache = cache_of("stale-while-revalidate=5", reply({"Cache-Control": "max-age=10"}, b"22"))
    assert cache.age(14).get(method="HEAD").get("content-length") == "1"
    assert cache.sent[-1].method == "GET" and cache.get().body == b"22"


@pytest.mark.parametrize("status", FAILURES)
def test_a_stale_response_is_served_where_the_origin_fails(status: int | None) -> None:
    """RFC 5861 section 4."""
    cache = cache_of("stale-if-error=100", reply(status=status), reply(status=status))
    stale = cache.age(50).get()
    assert stale.status == 200 and stale.body == b"1" and "detail=stale-if-error" in stale.cache_status
    assert cache.age(61).get().status == (status or 200)


@pytest.mark.parametrize("status", [400, 404, 501, 505])
def test_other_statuses_are_no_failure(status: int) -> None:
    cache = cache_of("stale-if-error=100", reply(status=status))
    assert cache.age(50).get().status == status


def test_a_request_may_ask_for_it() -> None:
    cache = cache_of("", reply(status=503), reply(status=503))
    assert cache.age(50).get({"Cache-Control": "stale-if-error=60"}).body == b"1"
    assert cache.get().status == 503


def test_a_stale_response_is_served_where_the_origin_is_gone() -> None:
    """RFC 9111 section 4.2.4: a cache that is disconnected may."""
    cache = cache_of("", reply(status=None), reply(status=None), reply(status=503))
    assert cache.age(3609).get().body == b"1"
    assert cache.age(2).get().status == 502 and cache.get().status == 503


def test_not_where_the_policy_does_not_want_it() -> None:
    cache = cache_of("", reply(status=None), policy=CachePolicy(stale_if_disconnected=0))
    assert cache.age(11).get().status == 502


def test_the_policy_gives_what_the_response_does_not_say() -> None:
    policy = CachePolicy(stale_while_revalidate=5, stale_if_error=50)
    cache = cache_of("", reply(status=503), reply(status=503), policy=policy)
    assert cache.age(14).get().is_hit
    assert cache.age(30).get().body == b"1"


def test_the_response_stands_above_the_policy() -> None:
    policy = CachePolicy(stale_while_revalidate=50, stale_if_error=50)
    cache = cache_of("stale-while-revalidate=1, stale-if-error=0", reply(status=503), policy=policy)
    assert cache.age(14).get().status == 503


@pytest.mark.parametrize("directive", ["must-revalidate", "proxy-revalidate", "s-maxage=10", "no-cache"])
def test_where_it_is_forbidden_nobody_may_have_it(directive: str) -> None:
    """RFC 9111 sections 4.2.4, 5.2.2.2, 5.2.2.4, 5.2.2.8 and 5.2.2.10."""
    policy = CachePolicy(stale_while_revalidate=100, stale_if_error=100)
    failures = [reply(status=status) for status in FAILURES]
    cache = cache_of(f"{directive}, stale-while-revalidate=100, stale-if-error=100", *failures, policy=policy)
    cache.age(11)
    for status in FAILURES:
        assert cache.get({"Cache-Control": "max-stale"}).status == (status or 502)


def test_content_networks_use_it_beside_s_maxage() -> None:
    policy = CachePolicy(stale_beside_s_maxage=True)
    told = "s-maxage=10, stale-while-revalidate=10, stale-if-error=20"
    cache = cache_of(told, reply(status=503), reply(status=503), policy=policy)
    assert cache.age(15).get().is_hit and cache.age(6).get().body == b"1" and len(cache.sent) == 3


def test_a_stale_response_is_not_presented_as_one_of_another_request() -> None:
    cache = SmallCache(reply({"Cache-Control": "max-age=10, stale-if-error=99", "Vary": "X"}, b"1"), reply(status=503))
    cache.get({"X": "1"})
    assert cache.age(11).get({"X": "2"}).status == 503


def test_conditions_and_ranges_hold_of_stale_ones_too() -> None:
    cache = cache_of("stale-if-error=100", reply(status=503), reply(status=None))
    assert cache.age(50).get({"If-None-Match": '"a"'}).status == 304
    assert cache.get({"Range": "bytes=0-0"}).status == 206
