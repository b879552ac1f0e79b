"""Cache-Control in all its forms (RFC 9111 section 5.2), and the fields above it (RFC 9213)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.caching.directives import MOST_SECONDS, parse_seconds, request_directives, response_directives
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.messages import Headers

POLICY = CachePolicy()


def max_age(*values: str, name: str = "Cache-Control") -> float | None:
    directives, _ = response_directives(Headers((name, value) for value in values), POLICY)
    return directives.seconds("max-age", invalid=-1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("max-age=60", 60),
        ("MAX-AGE=60", 60),
        ('max-age="60"', 60),  # section 5.2: both forms are accepted
        ("max-age=0060", 60),
        ("a, max-age=60, b=c", 60),
        ("a,,, ,max-age=60", 60),
        ('a="b, max-age=1", max-age=60', 60),
        ('a="b\\", max-age=1", max-age=60', 60),
        ("max-age=60, max-age=1", 60),  # section 4.2.1: the first of several
        ("max-age=4294967296", MOST_SECONDS),  # section 1.2.2
        ("max-age=" + "9" * 5000, MOST_SECONDS),
        # None of these is a number of seconds: section 4.2.1 has such a response stale.
        ("max-age", -1),
        ("max-age=", -1),
        ("max-age=-60", -1),
        ("max-age=+60", -1),
        ("max-age=60.5", -1),
        ("max-age=6e1", -1),
        ("max-age=0x3c", -1),
        ("max-age= 60", -1),
        ("max-age =60", -1),
        ("max-age='60'", -1),
        ("max-age=60s", -1),
        ("max-age=60;b", -1),
        ("max-age=٦٠", -1),
        ("", None),
        ("maxage=60", None),
        ("x-max-age=60", None),
        ('a="max-age=60"', None),
    ],
)
def test_max_age(value: str, seconds: float | None) -> None:
    assert max_age(value) == seconds


def test_lines_are_one_list() -> None:
    assert max_age("no-store", "max-age=60") == 60


def test_a_quote_that_is_never_closed_hides_nothing() -> None:
    directives, _ = response_directives(Headers([("Cache-Control", 'a="b, no-store, max-age=1')]), POLICY)
    assert "no-store" in directives and directives.seconds("max-age", invalid=None) == 1


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("private", set()),
        ('private="Set-Cookie"', {"set-cookie"}),
        ('private="Set-Cookie, X-Me"', {"set-cookie", "x-me"}),
        ("private=Set-Cookie", {"set-cookie"}),
        ('private=""', set()),
    ],
)
def test_fields_that_a_directive_is_about(value: str, names: set[str]) -> None:
    directives, _ = response_directives(Headers([("Cache-Control", value)]), POLICY)
    assert directives.fields("private") == names and directives.is_bare("private") == (not names)


def test_requests_have_none_where_the_policy_says_so() -> None:
    headers = Headers([("Cache-Control", "no-cache")])
    assert "no-cache" in request_directives(headers, POLICY)
    assert not request_directives(headers, CachePolicy(request_directives=False))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("max-age=60", 60),
        ("max-age=60;a=b, no-store", 60),
        ("max-age=1, max-age=60", 60),  # a Dictionary has the last one
        # Not a Dictionary, or empty: the field does not count (RFC 9213 section 2.1), and Cache-Control has 5.
        ("", 5),
        ("max-age=60,", 5),
        ("Max-Age=60", 5),
        ("max-age=60; ;", 5),
        ("max-age=é", 5),
        # The Dictionary counts, and its max-age has no use.
        ("max-age", -1),
        ("max-age=60.5", -1),
        ("max-age=?0", None),
        ("max-age=(1 2)", None),
        ("a=1", None),
    ],
)
def test_a_targeted_field(value: str, seconds: float | None) -> None:
    headers = Headers([("Cache-Control", "max-age=5"), ("CDN-Cache-Control", value)])
    directives, is_targeted = response_directives(headers, POLICY)
    assert directives.seconds("max-age", invalid=-1) == seconds
    assert is_targeted == (seconds != 5)


def test_the_most_special_target_counts() -> None:
    policy = CachePolicy(targets=("Rpcmq-Cache-Control", "CDN-Cache-Control"))
    headers = Headers([("CDN-Cache-Control", "max-age=1"), ("Rpcmq-Cache-Control", "max-age=2")])
    directives, _ = response_directives(headers, policy)
    assert directives.seconds("max-age", invalid=None) == 2


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_any_value_has_directives(value: str) -> None:
    for name in ("Cache-Control", "CDN-Cache-Control"):
        directives, _ = response_directives(Headers([(name, value)]), POLICY)
        assert directives.seconds("max-age", invalid=0) is None or "max-age" in directives
        directives.fields("private")


@given(st.text(max_size=30))
def test_any_text_is_a_number_of_seconds_or_not(text: str) -> None:
    seconds = parse_seconds(text)
    assert seconds is None or 0 <= seconds <= MOST_SECONDS
