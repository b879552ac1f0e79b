"""Responses that Vary (RFC 9111 section 4.1)."""

from __future__ import annotations

import sys

import pytest
from gevent import subprocess
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.caching import vary
from rpcmq.proxy.caching.vary import selecting_fields, variant_id
from rpcmq.proxy.messages import Headers
from tests.proxy.caching.small_cache import Fields, SmallCache, fields, reply


def varied(vary: str | list[str], **more: str) -> list[tuple[str, str]]:
    lines = [vary] if isinstance(vary, str) else vary
    return [("Cache-Control", "max-age=100"), *(("Vary", line) for line in lines), *more.items()]


#: Vary, a request, another one, whether they have the same response.
CASES: list[tuple[str, Fields, Fields, bool]] = [
    ("X", {"X": "1"}, {"X": "1"}, True),
    ("X", {"X": "1"}, {"x": "1"}, True),
    ("x", {"X": "1"}, {"X": "1"}, True),
    ("X", {"X": "1"}, {"X": "2"}, False),
    ("X", {"X": "1"}, {}, False),
    ("X", {}, {"X": ""}, False),
    ("X", {}, {}, True),
    ("X", {}, {"Y": "1"}, True),
    ("X, Y", {"X": "1", "Y": "2"}, {"Y": "2", "X": "1"}, True),
    ("X, Y", {"X": "1", "Y": "2"}, {"X": "1"}, False),
    ("X", {"X": "a"}, {"X": "A"}, False),
    ("X", {"X": "a, b"}, [("X", "a"), ("X", "b")], True),
    ("X", {"X": "a,b"}, {"X": "a , b"}, True),
    ("X", {"X": "a, b"}, {"X": "b, a"}, False),
    ("Accept-Encoding", {"Accept-Encoding": "gzip, br"}, {"Accept-Encoding": "BR,gzip;q=1.0"}, True),
    ("Accept-Encoding", {"Accept-Encoding": "gzip;q=0.5, br"}, {"Accept-Encoding": "br, gzip; q=0.50"}, True),
    ("Accept-Encoding", {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "gzip;q=0"}, False),
    ("Accept-Encoding", {"Accept-Encoding": "a;b;q=1"}, {"Accept-Encoding": "a; b ; Q = 1.0 "}, True),
    ("Accept-Encoding", {"Accept-Encoding": "q=1"}, {"Accept-Encoding": ""}, False),
    ("Accept-Encoding", {"Accept-Encoding": "q=1"}, {"Accept-Encoding": ";q=1"}, False),
    ("Accept-Encoding", {"Accept-Encoding": "gzip"}, {}, False),
    ("Accept-Language", {"Accept-Language": "de, en;q=0.9"}, {"Accept-Language": "DE,en;q=0.900"}, True),
    ("Accept-Language", {"Accept-Language": "de, en"}, {"Accept-Language": "en, de"}, False),
]


@pytest.mark.parametrize(("vary", "one", "other", "is_same"), CASES, ids=str)
def test_requests_with_the_same_selecting_fields_have_the_same_response(
    vary: str, one: Fields, other: Fields, is_same: bool
) -> None:
    cache = SmallCache(reply(varied(vary), b"1"), reply(varied(vary), b"2"))
    cache.get(one)
    answer = cache.get(other)
    assert answer.body == (b"1" if is_same else b"2")
    if not is_same:
        assert "fwd=vary-miss" in answer.cache_status
        assert cache.get(one).body == b"1" and cache.get(other).body == b"2" and len(cache.sent) == 2


def test_lines_of_vary_are_one_list() -> None:
    cache = SmallCache(reply(varied(["X", "Y"]), b"1"), reply(varied("X"), b"2"))
    cache.get({"X": "1", "Y": "1"})
    assert cache.get({"X": "1", "Y": "2"}).body == b"2"


def test_of_several_that_match_the_latest_is_used() -> None:
    cache = SmallCache(reply(varied("X"), b"1"), reply(varied("Y"), b"2"), reply(varied("Y"), b"3"))
    cache.get({"X": "1", "Y": "1"})
    assert cache.age(1).get({"X": "2", "Y": "1"}).body == b"2"
    assert cache.get({"X": "1", "Y": "1"}).body == b"2"
    assert cache.get({"X": "1", "Y": "2"}).body == b"1"


def test_a_variant_is_revalidated_by_itself() -> None:
    cache = SmallCache(
        reply(varied("X", ETag='"1"'), b"1"), reply(varied("X", ETag='"2"'), b"2"), reply({"ETag": '"1"'}, b"", 304)
    )
    cache.get({"X": "1"})
    cache.get({"X": "2"})
    assert cache.age(101).get({"X": "1"}).body == b"1" and cache.sent[-1].headers.get("if-none-match") == '"1"'
    assert cache.get({"X": "1"}).is_hit and not cache.get({"X": "2"}).is_hit


@given(st.lists(st.text(max_size=5), max_size=3), st.lists(st.text(max_size=12), max_size=3))
def test_any_vary_selects(names: list[str], values: list[str]) -> None:
    request = Headers([("Accept-Encoding", value) for value in values] + [("X", value) for value in values])
    response = Headers([("Vary", name) for name in (*names, "Accept-Encoding, X")])
    selecting = selecting_fields(response, request)
    assert variant_id(selecting).isalnum() and selecting == selecting_fields(response, request)
    assert variant_id(selecting_fields(fields({}), request)) == "0"


def test_a_long_value_takes_time_by_its_length_and_not_by_the_square_of_it() -> None:
    # In a process of its own, which can be given up: by the square this takes minutes.
    program = """
from rpcmq.proxy.caching.vary import selecting_fields
from rpcmq.proxy.messages import Headers
for value in ("a" + " " * 500_000 + "b", ";" * 500_000, "a;q=" + " " * 500_000 + "x", "a;q=1" + " " * 500_000 + "b"):
    selecting_fields(Headers([("Vary", "Accept-Encoding")]), Headers([("Accept-Encoding", value)]))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_long_value_is_not_remembered() -> None:
    before = vary._normal_short.cache_info().currsize
    told, asked = Headers([("Vary", "X")]), Headers([("X", "x" * 30_000)])
    assert selecting_fields(told, asked) == (("x", "x" * 30_000),)
    assert vary._normal_short.cache_info().currsize == before
