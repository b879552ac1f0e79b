"""Keys: URLs that mean the same have the same (RFC 3986 section 6.2), others never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.caching.keys import cache_key, related_key, url_key
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.messages import RequestHead

POLICY = CachePolicy()


def key(target: str, authority: str = "example.com", scheme: str = "https", policy: CachePolicy = POLICY) -> str:
    return cache_key(RequestHead("GET", target, scheme=scheme, authority=authority), policy)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (key("/a", "EXAMPLE.com"), key("/a")),
        (key("/a", "example.com:443"), key("/a")),
        (key("/a", "example.com:80", "http"), key("/a", scheme="http")),
        (key("", "example.com"), key("/")),
        (key("/%7eme/%41"), key("/~me/A")),
        (key("/%2f"), key("/%2F")),
    ],
)
def test_spellings_of_one_url(one: str, other: str) -> None:
    assert one == other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (key("/a"), key("/A")),
        (key("/a"), key("/a/")),
        (key("/a"), key("/a?")),
        (key("/a?b&c"), key("/a?c&b")),
        (key("/%2F"), key("//")),
        (key("/a/../b"), key("/b")),
        (key("/a"), key("/a", scheme="http")),
        (key("/a", "example.com:8443"), key("/a")),
        (key("/%"), key("/%25")),
        (key("/%2%35"), key("/%25")),  # no escapes at all, and so left as it is
    ],
)
def test_different_urls(one: str, other: str) -> None:
    assert one != other


def test_the_policy_tells_which_arguments_count() -> None:
    policy = CachePolicy(ignored_query=("gclid", "utm_*"), sorts_query=True)
    assert key("/a?utm_x=1&b=2&a=3&gclid&b=1", policy=policy) == key("/a?a=3&b=2&b=1")
    assert key("/a?utm_x=1", policy=policy) == key("/a")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("/b", key("/b")),
        ("b?c", key("/x/b?c")),
        ("https://EXAMPLE.com:443/b", key("/b")),
        ("http://example.com/b", None),  # RFC 9111 section 4.4: of the same origin only
        ("https://example.org/b", None),
        ("https://example.com.evil.org/b", None),
        ("https://example.com@evil.org/b", None),
        ("https://[::1/b", None),
        ("mailto:me", None),
        ("", None),
        (None, None),
    ],
)
def test_keys_of_references(reference: str | None, expected: str | None) -> None:
    request = RequestHead("POST", "/x/y", scheme="https", authority="example.com")
    assert related_key(request, reference, POLICY) == expected


def test_an_url_has_the_key_of_its_request() -> None:
    assert url_key("https://Example.com/a?b#c", POLICY) == key("/a?b")
    assert (
        url_key("/a", POLICY) is None and url_key("ftp://a/b", POLICY) is None and url_key("http://[", POLICY) is None
    )


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_target_has_a_key(target: str, authority: str) -> None:
    assert key(target, authority).startswith("https://")
    related_key(RequestHead("POST", "/", authority="a"), target, POLICY)


@given(st.text(alphabet="%2fFaA7eE~/.?&=", max_size=20))
def test_the_key_of_a_key_is_itself(target: str) -> None:
    once = key(f"/{target}")
    assert key(once.removeprefix("https://example.com")) == once
