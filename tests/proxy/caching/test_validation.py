"""Validation: conditions towards the origin and from clients (RFC 9111 section 4.3, RFC 9110 section 13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.caching.conditions import is_not_modified
from rpcmq.proxy.messages import Headers
from tests.proxy.caching.small_cache import START, Fields, SmallCache, fields, reply

MODIFIED = "Fri, 15 Jan 2027 06:00:00 GMT"
LATER = "Fri, 15 Jan 2027 07:00:00 GMT"
EARLIER = "Fri, 15 Jan 2027 05:00:00 GMT"
STALE = {"Cache-Control": "max-age=10", "ETag": '"a"', "Last-Modified": MODIFIED}


def stale_cache(confirmation: Fields, *more: Fields) -> SmallCache:
    cache = SmallCache(reply(STALE, b"1"), reply(confirmation, b"", 304), *(reply(each, b"2") for each in more))
    cache.get()
    return cache.age(11)


def test_the_origin_is_asked_with_both_validators() -> None:
    """RFC 9111 section 4.3.1."""
    cache = stale_cache({"ETag": '"a"'})
    answer = cache.get({"If-None-Match": '"x"', "If-Modified-Since": EARLIER, "Range": "bytes=0-0", "If-Range": '"x"'})
    sent = cache.sent[-1].headers
    assert sent.every("if-none-match") == ['"a"'] and sent.every("if-modified-since") == [MODIFIED]
    assert "range" not in sent and "if-range" not in sent
    assert answer.cache_status == "rpcmq; fwd=stale; fwd-status=304; ttl=10; stored"


def test_a_confirmed_response_is_fresh_again() -> None:
    cache = stale_cache({"ETag": '"a"', "Cache-Control": "max-age=20", "X-New": "1"})
    assert cache.get().body == b"1"
    again = cache.age(15).get()
    assert again.is_hit and again.get("age") == "15" and again.get("x-new") == "1"
    assert again.headers.every("cache-control") == ["max-age=20"]


def test_a_confirmation_replaces_fields_but_those_of_the_body() -> None:
    """RFC 9111 section 3.2."""
    told = {
        "ETag": '"a"',
        "Content-Length": "0",
        "Content-Encoding": "br",
        "X-Old": "2",
        "Connection": "X-Hop",
        "X-Hop": "1",
    }
    cache = SmallCache(
        reply([*STALE.items(), ("X-Old", "1"), ("X-Old", "1b"), ("X-Kept", "k")], b"123"), reply(told, status=304)
    )
    cache.get()
    answer = cache.age(11).get()
    assert answer.get("content-length") == "3" and "content-encoding" not in answer.headers
    assert answer.headers.every("x-old") == ["2"] and answer.get("x-kept") == "k" and "x-hop" not in answer.headers


def test_the_age_of_a_confirmation_counts() -> None:
    cache = stale_cache({"ETag": '"a"', "Age": "4"}, {})
    cache.get()
    assert cache.age(5).get().get("age") == "9"
    assert not cache.age(2).get().is_hit


@pytest.mark.parametrize(
    "confirmation",
    [{}, {"ETag": '"a"'}, {"ETag": 'W/"a"'}, {"Last-Modified": MODIFIED}],
)
def test_these_confirm(confirmation: Fields) -> None:
    """RFC 9111 section 4.3.4."""
    cache = stale_cache(confirmation)
    assert cache.get().body == b"1" and len(cache.sent) == 2


@pytest.mark.parametrize("confirmation", [{"ETag": '"b"'}, {"Last-Modified": LATER}])
def test_these_confirm_something_else(confirmation: Fields) -> None:
    cache = stale_cache(confirmation, STALE)
    assert cache.get().body == b"2" and len(cache.sent) == 3
    assert "if-none-match" not in cache.sent[-1].headers and "if-modified-since" not in cache.sent[-1].headers


def test_a_confirmation_to_nobodys_question_is_a_bad_gateway() -> None:
    cache = SmallCache(reply({}, b"", 304), reply({}, b"", 206))
    assert cache.get().status == 502 and cache.get().status == 502


def test_a_new_response_replaces_the_stale_one() -> None:
    cache = SmallCache(reply(STALE, b"1"), reply({**STALE, "ETag": '"b"'}, b"2"))
    cache.get()
    assert cache.age(11).get().body == b"2" and cache.get().body == b"2" and len(cache.sent) == 2


def test_a_confirmation_that_forbids_storing_ends_its_life() -> None:
    cache = stale_cache({"ETag": '"a"', "Cache-Control": "no-store"}, {})
    assert cache.get().body == b"1"
    assert cache.get().body == b"2" and "if-none-match" not in cache.sent[-1].headers


def test_without_a_validator_there_is_no_condition() -> None:
    cache = SmallCache(reply({"Cache-Control": "max-age=1"}, b"1"), reply({}, b"2"))
    cache.get()
    assert cache.age(2).get({"If-None-Match": '"x"'}).body == b"2"
    assert not {"if-none-match", "if-modified-since"} & set(cache.sent[-1].headers.names())


def test_no_cache_of_the_origin_has_each_use_validated() -> None:
    """RFC 9111 section 5.2.2.4."""
    told = {"Cache-Control": "no-cache, max-age=100", "ETag": '"a"'}
    cache = SmallCache(reply(told, b"1"), reply({"ETag": '"a"'}, b"", 304), reply({"ETag": '"a"'}, b"", 304))
    assert [cache.get().body for _ in range(3)] == [b"1"] * 3 and len(cache.sent) == 3


# Conditions of clients: request, fields of the stored response, whether the answer is 304.
CONDITIONS: list[tuple[Fields, Fields, bool]] = [
    ({"If-None-Match": '"a"'}, {"ETag": '"a"'}, True),
    ({"If-None-Match": 'W/"a"'}, {"ETag": '"a"'}, True),  # 13.1.2: weak comparison
    ({"If-None-Match": '"a"'}, {"ETag": 'W/"a"'}, True),
    ({"If-None-Match": '"b", W/"a"'}, {"ETag": '"a"'}, True),
    ({"If-None-Match": '"b","a"'}, {"ETag": '"a"'}, True),
    ([("If-None-Match", '"b"'), ("If-None-Match", '"a"')], {"ETag": '"a"'}, True),
    ({"If-None-Match": '"b, a"'}, {"ETag": '"b, a"'}, True),
    ({"If-None-Match": '"x, ", "a"'}, {"ETag": '"a"'}, True),
    ({"If-None-Match": "*"}, {}, True),
    ({"If-None-Match": "a"}, {"ETag": "a"}, True),
    ({"If-None-Match": '"a"'}, {"ETag": '"A"'}, False),
    ({"If-None-Match": '"a'}, {"ETag": '"a"'}, False),
    ({"If-None-Match": '"b"'}, {"ETag": '"a"'}, False),
    ({"If-None-Match": '"a"'}, {}, False),
    ({"If-None-Match": ""}, {"ETag": '"a"'}, False),
    ({"If-None-Match": '"b"', "If-Modified-Since": LATER}, {"ETag": '"a"', "Last-Modified": MODIFIED}, False),  # 13.2.2
    ({"If-Modified-Since": MODIFIED}, {"Last-Modified": MODIFIED}, True),
    ({"If-Modified-Since": LATER}, {"Last-Modified": MODIFIED}, True),
    ({"If-Modified-Since": EARLIER}, {"Last-Modified": MODIFIED}, False),
    ({"If-Modified-Since": "never"}, {"Last-Modified": MODIFIED}, False),  # 13.1.3: no date is no condition
    ({"If-Modified-Since": "Fri, 15 Jan 2027 08:00:00 GMT"}, {}, True),  # 9111 4.3.2: Date, without Last-Modified
    ({"If-Modified-Since": LATER}, {}, False),
    ({"If-Modified-Since": LATER}, {"Last-Modified": "never"}, False),
]


@pytest.mark.parametrize(("condition", "stored", "is_304"), CONDITIONS, ids=str)
@pytest.mark.parametrize("is_stored", [True, False])
def test_conditions_of_clients(condition: Fields, stored: Fields, is_304: bool, is_stored: bool) -> None:
    """They hold of a stored response as of one that comes: they were not sent to the origin, which stores all of it."""
    cache = SmallCache(reply([("Cache-Control", "max-age=100"), *fields(stored)], b"12345"))
    if is_stored:
        cache.get()
    answer = cache.get(condition)
    assert (answer.status, answer.body) == ((304, b"") if is_304 else (200, b"12345"))
    assert cache.get().body == b"12345" and len(cache.sent) == 1
    assert not set(cache.sent[0].headers.names()) & {"if-none-match", "if-modified-since"}


def test_a_304_says_what_updates_the_clients_cache_and_nothing_of_a_body() -> None:
    """RFC 9110 section 15.4.5."""
    own = {"Cache-Control": "max-age=100", "ETag": '"a"', "Vary": "X", "Content-Location": "/b", "Expires": "0"}
    cache = SmallCache(reply({**own, "Content-Type": "text/plain", "Content-Encoding": "br"}, b"12345"))
    cache.get()
    answer = cache.age(3).get({"If-None-Match": '"a"'})
    names = set(answer.headers.names())
    assert {"cache-control", "etag", "vary", "content-location", "expires", "date", "age", "cache-status"} <= names
    assert not {"content-type", "content-encoding", "content-length"} & names


def test_conditions_hold_of_successes_only() -> None:
    """RFC 9110 section 13.2.1."""
    cache = SmallCache(reply({"Cache-Control": "max-age=100", "ETag": '"a"'}, b"no", 404))
    cache.get()
    assert cache.get({"If-None-Match": '"a"'}).status == 404


def test_conditions_for_origins_only_are_no_affair_of_the_cache() -> None:
    """RFC 9110 section 13.1.1 and 13.1.4."""
    cache = SmallCache(reply(STALE), reply(STALE))
    cache.get({"If-Match": '"x"'})
    assert cache.sent[-1].headers.get("if-match") == '"x"'
    assert cache.get({"If-Match": '"x"', "If-Unmodified-Since": EARLIER}).is_hit


def test_head_tells_whether_the_stored_response_is_current() -> None:
    """RFC 9111 section 4.3.5."""
    told = {**STALE, "Cache-Control": "max-age=50", "Content-Length": "1"}
    cache = SmallCache(reply(STALE, b"1"), reply(told))
    cache.get()
    assert cache.age(11).get(method="HEAD").status == 200
    assert cache.age(20).get().is_hit


@pytest.mark.parametrize("change", [{"ETag": '"b"'}, {"Last-Modified": LATER}, {"Content-Length": "7"}])
def test_head_tells_that_the_stored_response_is_not(change: dict[str, str]) -> None:
    cache = SmallCache(reply(STALE, b"1"), reply(STALE | {"Content-Length": "1"} | change), reply(STALE, b"2"))
    cache.get()
    cache.age(11).get(method="HEAD")
    assert cache.get().body == b"2"


@given(st.text(alphabet='"aW/, *\x80', max_size=30), st.text(alphabet='"aW/, *', max_size=5))
def test_any_condition_holds_or_not(wanted: str, tag: str) -> None:
    is_not_modified(Headers([("If-None-Match", wanted)]), Headers([("ETag", tag)]), START)
