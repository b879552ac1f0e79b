"""Rights as files and command lines have them."""

from __future__ import annotations

import tomllib

import pytest

from rpcmq.core.common.right_tables import parse_right, read_right, right_as_toml, shown_right
from rpcmq.core.common.rights import Right
from rpcmq.errors import ConfigError

VERBS = ("call", "cast", "publish")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("call:compute.#", "call compute.#"),
        ("cast,call:nova,glance/a,b", "call,cast [nova,glance] a,b"),
        ("all:*/#", "all [*] #"),
    ],
)
def test_a_right_is_the_same_however_it_is_written(text: str, shown: str) -> None:
    right = parse_right(text, VERBS, VERBS)
    assert shown_right(right, VERBS, VERBS) == shown
    (table,) = tomllib.loads("\n".join(right_as_toml(right, VERBS)))["rights"]
    assert read_right("file", "rights[0]", table, VERBS) == right


@pytest.mark.parametrize("text", ["", "call", "call:", "serve:a", ":a", "call:a..b", "call:nova/"])
def test_what_is_no_right_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected VERBS|none empty"):
        parse_right(text, VERBS, VERBS)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (7, "expected a table"),
        ({"verbs": ["call"]}, "rights[0].topics is missing"),
        ({"verbs": ["serve"], "topics": ["a"]}, "'serve' is unknown; known: call, cast, publish"),
        ({"verbs": [], "topics": ["a"]}, "expected a list of texts"),
        ({"verbs": ["call"], "topics": ["a."]}, "is no pattern"),
        ({"verbs": ["call"], "topics": ["a"], "exchange": "x"}, "rights[0].exchange: unknown"),
    ],
)
def test_a_wrong_table_is_named(table: object, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_right("file", "rights[0]", table, VERBS)
    assert str(caught.value).startswith("file: rights[0]") and problem in str(caught.value)


def test_a_right_has_its_fields() -> None:
    assert parse_right("call:a", VERBS, VERBS) == Right(frozenset(["call"]), ("a",), ("",))
