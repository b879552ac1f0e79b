"""Purges: of what they are, and what soft ones leave."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.proxy.caching import MalformedEntry, MalformedPurge, Purge, PurgeKind, StoredResponse
from tests.proxy.caching.small_cache import START, SmallCache, reply

KEY = "https://example.com/a"
#: Kind, value, whether it is about KEY with the tags one and two.
PURGES = [
    (PurgeKind.URL, KEY, True),
    (PurgeKind.URL, "https://example.com/", False),
    (PurgeKind.PREFIX, "https://example.com/", True),
    (PurgeKind.PREFIX, "https://example.com/b", False),
    (PurgeKind.TAG, "one", True),
    (PurgeKind.TAG, "two", True),
    (PurgeKind.TAG, "on", False),
    (PurgeKind.ALL, "", True),
]


def stored(*more: str) -> SmallCache:
    told = {"Cache-Control": ", ".join(("max-age=100", *more)), "Surrogate-Key": "one  x", "Cache-Tag": "two, y"}
    cache = SmallCache(reply({**told, "ETag": '"a"'}, b"1"), reply(told, b"2"))
    cache.get()
    return cache


@pytest.mark.parametrize(("kind", "value", "is_about"), PURGES)
@pytest.mark.parametrize("soft", [True, False])
def test_what_is_purged(kind: PurgeKind, value: str, is_about: bool, soft: bool) -> None:
    cache = stored()
    cache.purge(Purge(kind, value, cache.now, soft))
    answer = cache.age(1).get()
    assert answer.is_hit != is_about
    if is_about:
        assert ("if-none-match" in cache.sent[-1].headers) == soft


def test_a_request_that_is_sent_later_is_not_meant() -> None:
    cache = stored()
    cache.purge(Purge(PurgeKind.ALL, "", cache.now - 1))
    assert cache.get().is_hit


def test_a_soft_purge_leaves_a_stale_response() -> None:
    cache = stored("stale-while-revalidate=10")
    cache.age(50).purge(Purge(PurgeKind.URL, KEY, cache.now, soft=True))
    stale = cache.age(5).get()
    assert stale.body == b"1" and stale.cache_status == "rpcmq; hit; ttl=-5"
    assert cache.get().body == b"2"


def test_a_soft_purge_is_not_lifted_by_a_client() -> None:
    cache = stored()
    cache.purge(Purge(PurgeKind.URL, KEY, cache.now, soft=True))
    assert cache.age(1).get({"Cache-Control": "max-stale"}).body == b"2"


def test_a_confirmed_response_is_fresh_after_a_soft_purge() -> None:
    cache = stored()
    cache.purge(Purge(PurgeKind.URL, KEY, cache.now, soft=True))
    cache._replies = [reply({"ETag": '"a"'}, b"", 304)]
    assert cache.age(1).get().body == b"1" and cache.get().is_hit


def test_there_is_a_bound_of_tags() -> None:
    tags = " ".join(f"t{number}" for number in range(1000))
    cache = SmallCache(reply({"Cache-Control": "max-age=9", "Surrogate-Key": tags}))
    cache.get()
    ((entry, _),) = cache.stored[KEY].values()
    assert len(entry.tags) == 256


@pytest.mark.parametrize("kind", list(PurgeKind))
def test_a_purge_travels(kind: PurgeKind) -> None:
    purge = Purge(kind, "x", START, soft=True)
    assert Purge.from_dict(purge.to_dict()) == purge


@pytest.mark.parametrize("at", ["nan", "inf", float("nan"), float("inf"), -float("inf")])
def test_a_purge_has_a_time(at: object) -> None:
    with pytest.raises(MalformedPurge):
        Purge.from_dict({"kind": "all", "value": "", "at": at})


@given(
    st.recursive(st.none() | st.text() | st.floats() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner))
)
@settings(max_examples=40, deadline=None)
def test_other_values_are_malformed(value: object) -> None:
    given = cast("dict[str, Any]", value)
    with pytest.raises(MalformedPurge):
        Purge.from_dict(given)
    with pytest.raises(MalformedEntry):
        StoredResponse.from_dict(given)


def test_an_entry_travels() -> None:
    cache = stored()
    ((entry, _),) = cache.stored[KEY].values()
    assert StoredResponse.from_dict(entry.to_dict()) == entry
