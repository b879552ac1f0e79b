"""Rights: patterns, exchanges, verbs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common import rights as rights_module
from rpcmq.core.common.rights import ALL_VERBS, EVERYTHING, Right, allows_pattern, matches
from rpcmq.core.common.topic_patterns import PatternTrie

WORDS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("compute", "compute"), ("compute.*", "compute.node-7"), ("compute.#", "compute"), ("#", "a.b.c"), ("#", "a"),
     ("a.#.z", "a.z"), ("a.#.z", "a.b.c.z"), ("*.*", "a.b")],
)  # fmt: skip
def test_a_pattern_stands_for(pattern: str, name: str) -> None:
    assert matches(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("compute", "computer"), ("compute", "compute.node-7"), ("compute.*", "compute"), ("compute.*", "compute.a.b"),
     ("a.#.z", "a.b"), ("*", "a.b"), ("a", "A"), ("comp*", "compute")],
)  # fmt: skip
def test_a_pattern_does_not_stand_for(pattern: str, name: str) -> None:
    assert not matches(pattern, name)


@given(WORDS, st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(".".join))
def test_patterns_mean_what_they_mean_for_subscriptions(pattern: str, name: str) -> None:
    trie: PatternTrie[str] = PatternTrie()
    trie.add(pattern.encode(), "x")
    assert matches(pattern, name) == (trie.match(name.encode()) == ("x",))


@given(WORDS, WORDS)
def test_a_pattern_that_is_allowed_has_no_topic_that_is_not(pattern: str, wanted: str) -> None:
    if allows_pattern(pattern, wanted):
        for length in range(1, 5):
            for words in product(("a", "b", "c"), repeat=length):
                name = ".".join(words)
                assert not matches(wanted, name) or matches(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "wanted", "allowed"),
    [("#", "#", True), ("a.#", "a.*", True), ("a.*", "a.#", False), ("a.*", "a.b", True), ("a.b", "a.*", False),
     ("a.#", "#", False), ("*.x", "a.x", True), ("*", "#", False)],
)  # fmt: skip
def test_patterns_within_patterns(pattern: str, wanted: str, allowed: bool) -> None:
    assert allows_pattern(pattern, wanted) is allowed


def test_a_place_in_a_pattern_is_visited_once_for_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = 0

    class Counting(set[int]):
        def add(self, at: int) -> None:
            nonlocal visited
            visited += 1
            super().add(at)

    monkeypatch.setattr(rights_module, "set", Counting, raising=False)
    pattern = ".".join(["#"] * 200 + ["b"])
    assert not matches(pattern, ".".join(["a"] * 100))
    assert 0 < visited <= 201 * 101


def test_many_wildcards_cost_no_more_than_their_length() -> None:
    assert not matches(".".join(["#", "a"] * 15), ".".join(["a"] * 200 + ["b"]))


def test_a_right_is_of_its_verbs_its_exchanges_and_its_topics() -> None:
    right = Right(frozenset(["call"]), ("compute.#",), ("nova",))
    assert right.allows("call", "nova", "compute.node-7")
    assert not right.allows("cast", "nova", "compute.node-7")
    assert not right.allows("call", "", "compute.node-7")
    assert not right.allows("call", "nova", "image")
    assert Right(frozenset(["call"]), ("#",), ("*",)).allows("call", "any", "image")
    assert Right(frozenset(["admin"]), ("summary",)).allows("admin", "", "summary")


def test_everything_is_allowed_to_whom_may_do_all() -> None:
    assert all(EVERYTHING.allows(verb, "x", "a.b") for verb in ALL_VERBS) and EVERYTHING.everything
    assert not Right(frozenset(ALL_VERBS), ("#",)).everything
