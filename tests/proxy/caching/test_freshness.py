"""For how long a response is fresh, and how old it is (RFC 9111 section 4.2)."""

from __future__ import annotations

import pytest

from rpcmq.proxy.caching import CachePolicy
from rpcmq.proxy.caching.dates import format_date
from tests.proxy.caching.small_cache import START, Fields, SmallCache, reply


def date(offset: float) -> str:
    return format_date(int(START + offset))


MODIFIED = ("Last-Modified", date(-1000))

#: RFC 9111 section, fields of the response, seconds of freshness that it has left when it comes.
LIFETIMES: list[tuple[str, Fields, float]] = [
    ("4.2.1", {"Cache-Control": "max-age=100"}, 100),
    ("4.2.1: s-maxage first", {"Cache-Control": "max-age=100, s-maxage=50"}, 50),
    ("4.2.1: s-maxage first", {"Cache-Control": "s-maxage=500, max-age=100"}, 500),
    ("4.2.1: max-age before Expires", {"Cache-Control": "max-age=100", "Expires": date(500)}, 100),
    ("4.2.1: max-age before Expires", {"Cache-Control": "max-age=100", "Expires": "0"}, 100),
    ("5.3", {"Expires": date(100)}, 100),
    ("5.3: counted from Date", {"Expires": date(100), "Date": date(-50)}, 100),
    ("5.3: from Date in the future, too", {"Expires": date(100), "Date": date(50)}, 50),
    ("5.3: no date is in the past", {"Expires": "0"}, 0),
    ("5.3: no date is in the past", {"Expires": "-1"}, 0),
    ("5.3: no date is in the past", {"Expires": "tomorrow"}, 0),
    ("5.3: no date hides heuristics", [("Expires", "0"), MODIFIED], 0),
    ("5.3: the past", {"Expires": date(-100)}, 0),
    ("4.2.1: the first of several", [("Expires", date(100)), ("Expires", date(500))], 100),
    ("4.2.1: invalid is stale", [("Cache-Control", "max-age=abc"), MODIFIED], 0),
    ("4.2.1: invalid is stale", {"Cache-Control": "s-maxage=abc, max-age=100"}, 0),
    ("4.2.1: invalid is stale", {"Cache-Control": "max-age=abc", "Expires": date(100)}, 0),
    ("5.2.2.4: no-cache is most restrictive", {"Cache-Control": "max-age=100, no-cache", "ETag": '"a"'}, 0),
    ("5.2.2.4: of some fields", {"Cache-Control": 'max-age=100, no-cache="X"'}, 100),
    ("4.2.2: a tenth since its change", [MODIFIED], 100),
    ("4.2.2: no more than the policy has", {"Last-Modified": date(-1e8)}, 86400),
    ("4.2.2: a change in the future", {"Last-Modified": date(1000)}, 0),
    ("4.2.2: not without a change", {}, 0),
    ("4.2.3: Age counts", {"Cache-Control": "max-age=100", "Age": "40"}, 60),
    ("4.2.3: Date counts", {"Cache-Control": "max-age=100", "Date": date(-40)}, 60),
    ("4.2.3: the greater one", {"Cache-Control": "max-age=100", "Date": date(-40), "Age": "70"}, 30),
    ("4.2.3: a date in the future", {"Cache-Control": "max-age=100", "Date": date(40)}, 100),
    ("9110 6.6.1: no date", {"Cache-Control": "max-age=100", "Date": "yesterday"}, 100),
    ("9213: the target counts", {"CDN-Cache-Control": "max-age=100", "Cache-Control": "max-age=50"}, 100),
    ("9213: Expires does not", {"CDN-Cache-Control": "public", "Expires": date(100), "ETag": '"a"'}, 0),
    ("9213: nor does no-store beside it", {"CDN-Cache-Control": "max-age=100", "Cache-Control": "no-store"}, 100),
]


@pytest.mark.parametrize(("section", "fields", "left"), LIFETIMES, ids=lambda value: str(value)[:60])
def test_a_response_is_fresh_for_so_long(section: str, fields: Fields, left: float) -> None:
    cache = SmallCache(reply(fields, b"1"), reply({"Cache-Control": "no-store"}, b"2"))
    cache.get()
    if left:
        assert cache.age(left - 0.5).get().is_hit, f"RFC 9111 section {section}"
        assert cache.age(0.5).get().body == b"2"
    else:
        assert cache.get().body == b"2", f"RFC 9111 section {section}"


#: Age as it came, and the seconds that it counts for (RFC 9111 section 5.1).
AGES = [
    ("40", 40),
    ("0040", 40),
    ("40, 0", 40),
    ("40, abc", 40),
    ("0, 40", 0),
    ("-40", 0),
    ("+40", 0),
    ("40.5", 0),
    ("abc", 0),
    ("", 0),
    ("4e1", 0),
    ("40;a=b", 0),
    ("abc, 40", 0),
    ("٤٠", 0),
    ("99999999999999999999999", 2**31),
    ("2147483648", 2**31),
    ("9" * 10000, 2**31),
]


@pytest.mark.parametrize(("value", "age"), AGES, ids=lambda value: str(value)[:20])
def test_the_age_of_a_response(value: str, age: int) -> None:
    cache = SmallCache(
        reply([("Cache-Control", "max-age=99"), ("Age", value), ("ETag", '"a"')], b"1"), reply(body=b"2")
    )
    cache.get()
    again = cache.age(10).get()
    if age + 10 < 99:
        assert again.is_hit and again.get("age") == str(age + 10)
    else:
        assert again.body == b"2"


def test_of_several_ages_the_first_counts() -> None:
    cache = SmallCache(reply([("Cache-Control", "max-age=99"), ("Age", "5"), ("Age", "50")]))
    cache.get()
    assert cache.get().headers.every("age") == ["5"]


def test_the_time_of_the_transfer_counts_as_age() -> None:
    cache = SmallCache(reply({"Cache-Control": "max-age=100", "Age": "10"}))
    cache.delay = 7
    cache.get()
    assert cache.get().get("age") == "17"


def test_a_clock_that_is_set_back_makes_no_negative_age() -> None:
    cache = SmallCache(reply({"Cache-Control": "max-age=100"}))
    cache.get()
    assert cache.age(-5000).get().get("age") == "0"


@pytest.mark.parametrize("status", [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501])
def test_these_statuses_are_cacheable_by_default(status: int) -> None:
    """RFC 9110 section 15.1."""
    cache = SmallCache(reply([MODIFIED], b"", status))
    cache.get()
    assert cache.age(50).get().is_hit


@pytest.mark.parametrize("status", [201, 202, 302, 303, 307, 400, 401, 403, 500, 502, 503, 504, 599])
def test_these_need_explicit_freshness(status: int) -> None:
    cache = SmallCache(reply([MODIFIED], b"", status), reply({"Cache-Control": "max-age=9"}, b"", status))
    cache.get()
    assert not cache.get().is_hit and cache.get().is_hit


def test_public_lets_heuristics_be_used_for_any_status() -> None:
    """RFC 9111 section 4.2.2."""
    cache = SmallCache(reply([MODIFIED, ("Cache-Control", "public")], b"", 599))
    cache.get()
    assert cache.age(50).get().is_hit


def test_the_policy_has_freshness_for_failures() -> None:
    policy = CachePolicy(negative={404: 10.0, 503: 5.0})
    cache = SmallCache(reply(status=404), reply(status=503), policy=policy)
    cache.get()
    assert cache.age(9).get().is_hit and cache.age(1).get().status == 503
    assert cache.age(4).get().is_hit and not cache.age(1).get().is_hit


def test_explicit_freshness_stands_above_the_policys() -> None:
    cache = SmallCache(
        reply({"Cache-Control": "max-age=1"}, status=404), reply(body=b"2"), policy=CachePolicy(negative={404: 10.0})
    )
    cache.get()
    assert cache.age(2).get().body == b"2"


def test_the_policy_bounds_the_freshness() -> None:
    cache = SmallCache(reply({"Cache-Control": "max-age=1000"}), policy=CachePolicy(max_fresh_life=10))
    cache.get()
    assert cache.age(9).get().is_hit and not cache.age(1).get().is_hit
