"""Ranges answered from the cache (RFC 9110 section 14)."""

from __future__ import annotations

from email.parser import BytesParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.caching import CachePolicy
from rpcmq.proxy.caching.ranges import parse_ranges, satisfiable
from tests.proxy.caching.small_cache import Fields, SmallCache, reply

BODY = b"0123456789"
MODIFIED = "Fri, 15 Jan 2027 06:00:00 GMT"
FRESH = {"Cache-Control": "max-age=100", "ETag": '"a"', "Last-Modified": MODIFIED, "Content-Type": "text/plain"}

#: Range, and the part that is the answer; None: all of it.
RANGES = [
    ("bytes=0-0", b"0"),
    ("bytes=2-4", b"234"),
    ("bytes=2-", b"23456789"),
    ("bytes=8-100", b"89"),
    ("bytes=-3", b"789"),
    ("bytes=-100", BODY),
    ("bytes=0-", BODY),
    ("Bytes=2-4", b"234"),
    ("bytes=2-4, 50-60", b"234"),
    ("bytes= 2-4 , ", b"234"),
    ("bytes=4-2", None),
    ("bytes=a-b", None),
    ("bytes=-", None),
    ("bytes=", None),
    ("bytes=2-4,x", None),
    ("bytes 2-4", None),
    ("lines=2-4", None),
    ("bytes=2 - 4", None),
    ("bytes=0-9,0-9", None),
    ("bytes=" + ",".join(f"{i}-{i}" for i in range(20)), None),
    ("bytes=" + "9" * 30 + "-", None),
    ("", None),
]


def stored() -> SmallCache:
    cache = SmallCache(reply(FRESH, BODY))
    cache.get()
    return cache


@pytest.mark.parametrize(("value", "part"), RANGES)
def test_one_range(value: str, part: bytes | None) -> None:
    answer = stored().get({"Range": value})
    assert answer.is_hit
    if part is None:
        assert (answer.status, answer.body) == (200, BODY)
        return
    start = BODY.index(part)
    assert (answer.status, answer.body) == (206, part)
    assert answer.get("content-range") == f"bytes {start}-{start + len(part) - 1}/10"
    assert answer.get("content-length") == str(len(part)) and answer.get("etag") == '"a"'


@pytest.mark.parametrize("value", ["bytes=10-", "bytes=10-20, 50-", "bytes=-0"])
def test_a_range_that_is_not_there(value: str) -> None:
    answer = stored().get({"Range": value})
    assert (answer.status, answer.body) == (416, b"") and answer.get("content-range") == "bytes */10"


def test_several_ranges_are_parts_of_a_message() -> None:
    answer = stored().get({"Range": "bytes=0-1, 4-4, -2"})
    kind = answer.get("content-type")
    assert answer.status == 206 and kind is not None and kind.startswith("multipart/byteranges; boundary=")
    assert answer.get("content-length") == str(len(answer.body)) and "content-range" not in answer.headers
    message = BytesParser().parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + answer.body)
    parts = [(part["Content-Range"], part["Content-Type"], part.get_payload(decode=True)) for part in message.walk()]
    assert parts[1:] == [
        ("bytes 0-1/10", "text/plain", b"01"),
        ("bytes 4-4/10", "text/plain", b"4"),
        ("bytes 8-9/10", "text/plain", b"89"),
    ]


@pytest.mark.parametrize(
    ("condition", "is_partial"),
    [
        ('"a"', True),
        ('"b"', False),
        ('W/"a"', False),  # 13.1.5: strong comparison
        (MODIFIED, True),
        ("Fri, 15 Jan 2027 06:00:01 GMT", False),  # an exact match, no comparison
        ("Fri, 15 Jan 2027 05:59:59 GMT", False),
        ("garbage", False),
    ],
)
def test_if_range(condition: str, is_partial: bool) -> None:
    answer = stored().get({"Range": "bytes=0-1", "If-Range": condition})
    assert answer.status == (206 if is_partial else 200)


def test_a_date_that_is_no_strong_validator_gives_no_part() -> None:
    """RFC 9110 section 8.8.2.2: it may have changed again within that second."""
    now = "Fri, 15 Jan 2027 08:00:00 GMT"
    cache = SmallCache(reply({"Cache-Control": "max-age=100", "Last-Modified": now, "Date": now}, BODY))
    cache.get()
    assert cache.get({"Range": "bytes=0-1", "If-Range": now}).status == 200


def test_conditions_come_before_ranges() -> None:
    """RFC 9110 section 13.2.2."""
    assert stored().get({"Range": "bytes=0-1", "If-None-Match": '"a"'}).status == 304
    assert stored().get({"Range": "bytes=0-1", "If-None-Match": '"b"'}).status == 206


def test_ranges_are_for_get_and_successes() -> None:
    assert stored().get({"Range": "bytes=0-1"}, method="HEAD").status == 200
    cache = SmallCache(reply(FRESH, BODY, 404))
    cache.get()
    assert cache.get({"Range": "bytes=0-1"}).status == 404


@pytest.mark.parametrize("value", ["bytes=0-3", "bytes=4-"])
def test_a_range_near_the_beginning_has_all_fetched(value: str) -> None:
    cache = SmallCache(reply({**FRESH, "Content-Length": "10"}, BODY))
    answer = cache.get({"Range": value, "If-Range": '"a"'})
    assert answer.status == 206 and "range" not in cache.sent[0].headers
    assert cache.get().body == BODY and len(cache.sent) == 1


def test_where_the_size_is_not_known_all_is_sent() -> None:
    cache = SmallCache(reply(FRESH, BODY))
    answer = cache.get({"Range": "bytes=0-3"})
    assert (answer.status, answer.body) == (200, BODY)


@pytest.mark.parametrize("value", ["bytes=2000000-", "bytes=-5", "bytes=0-1,3-4", "lines=1"])
def test_other_ranges_are_the_origins(value: str) -> None:
    given = {**FRESH, "Content-Range": "bytes 5-9/10"}
    cache = SmallCache(reply(given, b"56789", 206), reply(FRESH, BODY))
    condition: Fields = {"Range": value, "If-Range": '"a"'}
    answer = cache.get(condition)
    assert (answer.status, answer.body) == (206, b"56789")
    assert cache.sent[0].headers.get("range") == value and cache.sent[0].headers.get("if-range") == '"a"'
    assert cache.get().body == BODY, "a part is not stored"


@pytest.mark.parametrize("size", [0, 1, 10])
def test_the_policy_bounds_their_number(size: int) -> None:
    cache = SmallCache(reply(FRESH, BODY), policy=CachePolicy(max_ranges=2))
    cache.get()
    assert cache.get({"Range": "bytes=0-0,2-2"}).status == 206
    assert cache.get({"Range": "bytes=0-0,2-2,4-4"}).status == 200


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5), st.integers(0, 20))
def test_spans_are_those_of_a_plain_reading(pairs: list[tuple[int, int]], size: int) -> None:
    body = bytes(range(size))
    ranges = parse_ranges("bytes=" + ",".join(f"{first}-{last}" for first, last in pairs), 10)
    if any(last < first for first, last in pairs):
        assert ranges == []
        return
    expected = [body[first : last + 1] for first, last in pairs if first < size]
    assert [body[span.start : span.stop] for span in satisfiable(ranges, size)] == expected


@given(st.text(max_size=30))
def test_any_text_is_ranges_or_not(value: str) -> None:
    satisfiable(parse_ranges(f"bytes={value}", 10), 10)
    satisfiable(parse_ranges(value, 10), 10)


@pytest.mark.parametrize(
    ("ranges", "status"),
    [("bytes=0-1,4-5", 206), ("bytes=4-5,0-1", 200), ("bytes=0-4,3-5", 200), ("bytes=-2,0-1", 200)],
)
def test_ranges_of_a_body_that_passes_are_never_held_for_their_order(ranges: str, status: int) -> None:
    cache = SmallCache(reply(FRESH, BODY), reply(FRESH | {"ETag": '"b"', "Content-Length": "10"}, BODY))
    cache.get()
    cache.age(200)
    passed = cache.get({"Range": ranges})
    assert passed.status == status and (status == 206 or passed.body == BODY)
    # From the store they come in the order in which they were asked for.
    assert cache.get({"Range": ranges}).status == 206
