"""Heads of messages: fields in their order, found in any case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.proxy.messages import Headers, RequestHead, end_to_end, list_members


def test_fields_keep_their_order_and_letters_and_are_found_in_any_case() -> None:
    headers = Headers([("X-A", "1"), ("b", "2"), ("x-a", "3")])
    assert headers.get("X-a") == "1" and headers.every("x-A") == ["1", "3"] and headers.joined("x-a") == "1, 3"
    assert "B" in headers and "c" not in headers and headers.get("c") is None and headers.joined("c") is None
    assert list(headers) == [("X-A", "1"), ("b", "2"), ("x-a", "3")] and len(headers) == 3


def test_a_changed_copy_leaves_the_original() -> None:
    headers = Headers([("A", "1"), ("a", "2"), ("B", "3")])
    assert headers.having("A", "4").fields == (("B", "3"), ("A", "4"))
    assert headers.without({"b"}).fields == (("A", "1"), ("a", "2"))
    assert headers == Headers([("A", "1"), ("a", "2"), ("B", "3")]) and hash(headers) == hash(Headers(headers))


def test_the_url_is_that_of_the_target() -> None:
    assert RequestHead("GET", "/a?b", scheme="http", authority="h:81").url == "http://h:81/a?b"


def test_fields_of_the_connection_go_and_so_do_those_that_it_names() -> None:
    names = ("Connection", "Keep-Alive", "TE", "Transfer-Encoding", "Upgrade", "Proxy-Connection", "X-Hop", "ETag")
    headers = Headers([*((name, "x") for name in names), ("connection", "x-hop, close")])
    assert end_to_end(headers).fields == (("ETag", "x"),)


@pytest.mark.parametrize("name", ["cache-control", "content-length", "host", "date", "set-cookie"])
def test_a_peer_cannot_have_a_vital_field_dropped(name: str) -> None:
    assert name in end_to_end(Headers([("Connection", name), (name, "x")]))


@pytest.mark.parametrize(
    ("value", "members"),
    [
        (None, []),
        ("", []),
        (" , a ,, b,", ["a", "b"]),
        ('a="x, y", b', ['a="x, y"', "b"]),
        ('a="x\\", y", b', ['a="x\\", y"', "b"]),
        ('a="x, b', ['a="x, b']),
    ],
)
def test_members_of_a_list(value: str | None, members: list[str]) -> None:
    assert list_members(value) == members


@given(st.text())
def test_any_text_has_members(value: str) -> None:
    assert all(member == member.strip() and member for member in list_members(value))


def test_fields_without_some_are_found_as_before() -> None:
    headers = Headers((("A", "1"), ("b", "2"), ("a", "3")))
    assert headers.without({"c"}) == headers
    left = headers.without({"b"})
    assert left.fields == (("A", "1"), ("a", "3")) and left.joined("a") == "1, 3"
    assert "b" not in left and "b" in headers and not left.without({"a"}).fields
