from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.core.common import topic_patterns as trie_module
from rpcmq.core.common.topic_patterns import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS, PatternTrie, pattern_states
from rpcmq.errors import ProtocolError


def trie_of(*patterns: bytes) -> PatternTrie[bytes]:
    """A trie in which each pattern is its own subscriber."""
    trie: PatternTrie[bytes] = PatternTrie()
    for pattern in patterns:
        assert trie.add(pattern, pattern)
    return trie


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (b"a.b", [b"a.b"], [b"a", b"b", b"a.b.c", b"a.c", b"b.a", b"ab"]),
        (b"*", [b"a", b"*", b"#"], [b"a.b"]),
        (b"a.*", [b"a.b", b"a.*"], [b"a", b"a.b.c", b"b.a"]),
        (b"*.b.*", [b"a.b.c"], [b"a.b", b"b.c", b"a.c.b"]),
        (b"#", [b"a", b"a.b", b"a.b.c", b"#", b"*"], []),
        (b"a.#", [b"a", b"a.b", b"a.b.c"], [b"b", b"b.a", b"ab"]),
        (b"#.c", [b"c", b"a.c", b"a.b.c", b"c.c"], [b"c.d", b"a"]),
        (b"a.#.c", [b"a.c", b"a.b.c", b"a.b.b.c", b"a.c.c"], [b"a", b"c", b"a.b", b"b.c"]),
        (b"#.a.#", [b"a", b"b.a", b"a.b", b"b.a.b"], [b"b", b"b.b"]),
        (b"#.#", [b"a", b"a.b"], []),
        (b"*.#", [b"a", b"a.b"], []),
        (b"#.*", [b"a", b"a.b"], []),
        (b"#.*.#.*", [b"a.b", b"a.b.c"], [b"a"]),
        (b"a*.#b", [b"a*.#b"], [b"ax.b", b"ax.yb"]),
        ("größe.*".encode(), ["größe.x".encode()], [b"gr.x"]),
    ],
)
def test_semantics(pattern: bytes, matching: list[bytes], others: list[bytes]):
    trie = trie_of(pattern)
    for topic in matching:
        assert trie.match(topic) == (pattern,), topic
    for topic in others:
        assert trie.match(topic) == (), topic


def test_a_subscriber_comes_once_however_many_of_its_patterns_match():
    trie: PatternTrie[str] = PatternTrie()
    for pattern in (b"a.b", b"a.*", b"*.b", b"#", b"a.#", b"#.#.b"):
        assert trie.add(pattern, "one")
    trie.add(b"a.b", "two")
    assert sorted(trie.match(b"a.b")) == ["one", "two"]
    assert len(trie) == 7


def test_the_same_subscription_counts_once():
    trie: PatternTrie[str] = PatternTrie()
    assert trie.add(b"a.#", "one")
    assert not trie.add(b"a.#", "one")
    assert len(trie) == 1
    assert trie.remove(b"a.#", "one")
    assert not trie.remove(b"a.#", "one")
    assert len(trie) == 0
    assert trie.match(b"a") == ()


def test_patterns_that_mean_the_same_are_subscriptions_of_their_own():
    trie: PatternTrie[str] = PatternTrie()
    assert trie.add(b"a.#", "one")
    assert trie.add(b"a.#.#", "one")
    assert trie.remove(b"a.#", "one")
    assert trie.match(b"a.b") == ("one",)


@pytest.mark.parametrize("pattern", [b"a", b"a.b", b"a.b.c.d", b"x", b"*", b"#"])
def test_removing_what_is_not_there_changes_nothing(pattern: bytes):
    trie = trie_of(b"a.b.c")
    assert not trie.remove(pattern, pattern)
    assert not trie.remove(b"a.b.c", b"someone else")
    assert trie.match(b"a.b.c") == (b"a.b.c",)


def test_a_remembered_match_is_forgotten_when_a_subscription_changes():
    trie = trie_of(b"a.*")
    assert trie.match(b"a.b") == (b"a.*",)
    trie.add(b"a.b", b"a.b")
    assert trie.match(b"a.b") == (b"a.b", b"a.*")
    trie.remove(b"a.*", b"a.*")
    assert trie.match(b"a.b") == (b"a.b",)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trie_module, "_CACHE_ENTRIES", 100)
    trie = trie_of(b"#", b"*", b"t.#")
    for number in range(5000):
        assert len(trie.match(b"t.%d" % number)) == 2
        assert sum(1 + len(found) for found in trie._cache.values()) == trie._cache_entries <= 103


def test_churn_leaves_no_node_behind():
    trie = trie_of(b"a.b.c", b"#.z")
    before = nodes(trie)
    for number in range(2000):
        for pattern in (b"a.b.%d" % number, b"a.b.c.%d.*" % number, b"#.%d" % number, b"%d.#.#" % number):
            assert trie.add(pattern, b"guest")
            trie.match(b"a.b.c.%d.x" % number)
            assert trie.remove(pattern, b"guest")
    assert nodes(trie) == before
    assert trie.remove(b"a.b.c", b"a.b.c")
    assert trie.remove(b"#.z", b"#.z")
    assert nodes(trie) == 1


def nodes(trie: PatternTrie[bytes]) -> int:
    waiting = [trie._root]
    for node in waiting:
        waiting.extend(filter(None, (*node.ordinary.values(), node.one_word, node.any_words)))
    return len(waiting)


def test_many_any_words_signs_do_not_explode():
    # A backtracking matcher needs about 31 over 15, 300 million, steps for this one.
    topic = b".".join([b"a"] * 31 + [b"c"])
    trie = trie_of(b".".join([b"#", b"a"] * 15 + [b"#", b"b"]), b".".join([b"#"] * MAX_TOPIC_WORDS))
    assert trie.match(topic) == (b".".join([b"#"] * MAX_TOPIC_WORDS),)


def test_a_state_is_visited_once_for_each_number_of_words_however_many_ways_lead_to_it():
    # Of k signs in a row each leads to all after it: k * k / 2 steps for each word, where k are enough.
    trie = trie_of(b".".join([b"#"] * 31 + [b"b"]))
    topic = b".".join([b"a"] * MAX_TOPIC_WORDS)
    assert trie.match(topic) == ()
    nodes_alive = 31
    assert trie.visited <= nodes_alive * (MAX_TOPIC_WORDS + 2) + 1


def test_unrelated_subscriptions_are_never_looked_at():
    def cost(unrelated: int) -> int:
        trie = trie_of(b"instance.create.*", b"#.end", b"instance.#")
        for number in range(unrelated):
            trie.add(b"instance.create.vm-%d.*" % number, b"x")
            trie.add(b"#.other-%d" % number, b"x")
        assert len(trie.match(b"instance.create.end")) == 3
        return trie.visited

    assert cost(10_000) == cost(10)


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        (b"a.b.c", 0),
        (b"a.#", 1),
        (b"#", 1),
        (b"a.*", 1),
        (b"a.*.c.d", 3),
        (b"a.*.#", 2),
        (b"#.error", 68),
        (b"#.compute.#", 69),
        (b"*.a.#.b", 70),
    ],
)
def test_what_a_pattern_can_add_to_a_match(pattern: bytes, states: int):
    assert pattern_states(pattern) == states


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (b"", "empty word"),
        (b".", "empty word"),
        (b"a.", "empty word"),
        (b".a", "empty word"),
        (b"a..b", "empty word"),
        (b"x" * (MAX_TOPIC_BYTES + 1), "256 bytes; at most 255"),
        (b".".join([b"a"] * (MAX_TOPIC_WORDS + 1)), "33 words; at most 32"),
    ],
)
def test_malformed_names_are_refused_by_what_is_wrong(name: bytes, says: str):
    trie: PatternTrie[str] = PatternTrie()
    for verb, what in (("add", "pattern"), ("remove", "pattern"), ("match", "topic")):
        arguments = (name,) if verb == "match" else (name, "one")
        with pytest.raises(ProtocolError, match=says) as caught:
            getattr(trie, verb)(*arguments)
        # The name is shown as text, as whoever wrote it did.
        assert str(caught.value).startswith(f"{what} '")
        assert caught.value.reason == f"bad_{what}"
    assert len(trie) == 0
    assert trie.match(b"a") == ()


def test_names_at_the_limits_are_taken():
    longest = b"x" * MAX_TOPIC_BYTES
    deepest = b".".join([b"a"] * MAX_TOPIC_WORDS)
    trie = trie_of(longest, deepest)
    assert trie.match(longest) == (longest,)
    assert trie.match(deepest) == (deepest,)


def brute_force(pattern: list[bytes], topic: list[bytes]) -> bool:
    if not pattern:
        return not topic
    if pattern[0] == b"#":
        return any(brute_force(pattern[1:], topic[skip:]) for skip in range(len(topic) + 1))
    return bool(topic) and pattern[0] in (b"*", topic[0]) and brute_force(pattern[1:], topic[1:])


WORDS = st.sampled_from([b"a", b"b", b"c"])
PATTERNS = st.lists(WORDS | st.sampled_from([b"*", b"#", b"#"]), min_size=1, max_size=6).map(b".".join)
TOPICS = st.lists(WORDS | st.sampled_from([b"*", b"#"]), min_size=1, max_size=6).map(b".".join)
CHANGES = st.lists(st.tuples(st.booleans(), PATTERNS, st.integers(0, 3)), max_size=40)


@settings(max_examples=100)
@given(CHANGES, st.lists(TOPICS, min_size=1, max_size=8))
def test_matches_agree_with_brute_force(changes: list[tuple[bool, bytes, int]], topics: list[bytes]):
    trie: PatternTrie[int] = PatternTrie()
    model: set[tuple[bytes, int]] = set()

    def check() -> None:
        for topic in topics:
            expected = {who for p, who in model if brute_force(p.split(b"."), topic.split(b"."))}
            for _ in range(2):  # walked, then remembered
                found = trie.match(topic)
                assert len(found) == len(set(found))
                assert set(found) == expected

    for add, pattern, who in changes:
        if add:
            assert trie.add(pattern, who) == ((pattern, who) not in model)
            model.add((pattern, who))
        else:
            assert trie.remove(pattern, who) == ((pattern, who) in model)
            model.discard((pattern, who))
        assert len(trie) == len(model)
    check()
    for pattern, who in sorted(model)[::2]:
        assert trie.remove(pattern, who)
        model.discard((pattern, who))
    check()
    for pattern, who in sorted(model):
        assert trie.remove(pattern, who)
    assert trie._root.is_leaf


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_match_or_are_refused(pattern: bytes, topic: bytes):
    trie: PatternTrie[str] = PatternTrie()
    found: tuple[str, ...] = ()
    reason = "none"
    try:
        trie.add(pattern, "one")
        found = trie.match(topic)
    except ProtocolError as error:
        reason = error.reason
    assert found in ((), ("one",))
    assert reason in ("none", "bad_pattern", "bad_topic")


FEW_WORDS = st.sampled_from([b"a", b"*", b"#"])


@settings(max_examples=100)
@given(
    st.lists(st.lists(FEW_WORDS, min_size=1, max_size=12).map(b".".join), max_size=30),
    st.lists(st.sampled_from([b"a", b"b", b"*", b"#"]), min_size=1, max_size=MAX_TOPIC_WORDS).map(b".".join),
)
def test_a_match_visits_no_more_states_than_its_patterns_can_add(patterns: list[bytes], topic: bytes):
    trie: PatternTrie[bytes] = PatternTrie()
    for pattern in patterns:
        trie.add(pattern, pattern)
    trie.match(topic)
    # And the beginning of the topic itself, which all patterns share.
    own = 1 + MAX_TOPIC_WORDS
    assert trie.visited <= own + sum(map(pattern_states, set(patterns)))


def test_a_thousand_hostile_patterns_cost_what_is_allowed_for_them_and_no_more():
    """1,000 of 32 words, of a letter and both wildcards: half a million states for one event if all were taken."""
    random = Random(1)
    words = [b"a", b"*", b"#"]
    allowed, used = 10_000, 0
    trie: PatternTrie[int] = PatternTrie()
    for number in range(1000):
        pattern = b".".join(random.choice(words) for _ in range(MAX_TOPIC_WORDS))
        if used + pattern_states(pattern) <= allowed:
            used += pattern_states(pattern)
            trie.add(pattern, number)
    trie.match(b".".join([b"a"] * MAX_TOPIC_WORDS))
    assert len(trie) and trie.visited <= allowed + 1 + MAX_TOPIC_WORDS


@pytest.mark.parametrize(
    ("pattern", "notified", "published"),
    [
        (b"compute.#", False, True),
        (b"compute.x", False, True),
        (b"notifications.#", True, False),
        (b"notifications.info.#", True, False),
        (b"notifications.*.compute.#", True, False),
        (b"#.compute.x", True, True),
        (b"#", True, True),
    ],
)
def test_the_table_of_patterns_in_the_documents(pattern: bytes, notified: bool, published: bool):
    trie: PatternTrie[str] = PatternTrie()
    trie.add(pattern, "subscriber")
    assert [bool(list(trie.match(t))) for t in (b"notifications.info.compute.x", b"compute.x")] == [notified, published]
