"""Subscriptions to topic patterns, matched by a trie.

A pattern is words between dots, as in AMQP 0-9-1's topic exchange: ``*`` stands for exactly one
word and ``#`` for any number of words, none included. Inside a word both are ordinary characters.

Matching walks the topic's words with the set of trie nodes that are still alive, as one runs a
nondeterministic automaton (Thompson, "Regular Expression Search Algorithm", CACM 1968). A node is in
the set once however many ways lead to it, so ``#.#.#`` costs no more than its length, and patterns
that share no prefix with the topic are never looked at.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from rpcmq.errors import ProtocolError

__all__ = ["MAX_TOPIC_BYTES", "MAX_TOPIC_WORDS", "PatternTrie", "split_words"]

MAX_TOPIC_BYTES = 255
"""Longest topic or pattern, in bytes."""

MAX_TOPIC_WORDS = 32
"""Most words in a topic or pattern."""

# Bound of the remembered matches: topics and the subscribers listed for them, together.
_CACHE_ENTRIES = 65536

_ONE_WORD = b"*"
_ANY_WORDS = b"#"

S = TypeVar("S", bound=Hashable)


def split_words(name: bytes, what: str = "topic") -> list[bytes]:
    """The words of a topic or pattern (``what`` says which, for the error).

    Raises:
        ProtocolError: a word is empty, or the name has too many bytes or words.
    """
    if len(name) > MAX_TOPIC_BYTES:
        text = f"{what} {name[:40]!r}... has {len(name)} bytes; at most {MAX_TOPIC_BYTES} are allowed"
        raise ProtocolError(text, f"bad_{what}")
    words = name.split(b".")
    if len(words) > MAX_TOPIC_WORDS:
        text = f"{what} {name!r} has {len(words)} words; at most {MAX_TOPIC_WORDS} are allowed"
        raise ProtocolError(text, f"bad_{what}")
    if b"" in words:
        text = f"{what} {name!r} has an empty word; write words separated by single dots"
        raise ProtocolError(text, f"bad_{what}")
    return words


class _Node(Generic[S]):
    """What follows one word of a pattern; wildcards are children under their own sign.

    A topic's word that looks like a wildcard therefore finds that wildcard's node, which it matches
    in any case.
    """

    __slots__ = ("children", "repeats", "subscribers")

    def __init__(self, repeats: bool = False) -> None:
        self.children: dict[bytes, _Node[S]] = {}
        # Used as ordered sets, so that a match comes out in the same order each time.
        self.subscribers: dict[S, None] = {}
        # The node of a '#' stays alive over any word.
        self.repeats = repeats


class PatternTrie(Generic[S]):
    """Subscribers by pattern. Patterns and topics are bytes, as they are on the wire.

    Matches are remembered, within a bound, until any subscription changes.
    """

    __slots__ = ("_cache", "_cache_entries", "_root", "_subscriptions")

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._subscriptions = 0
        self._cache: dict[bytes, tuple[S, ...]] = {}
        self._cache_entries = 0

    def __len__(self) -> int:
        """Number of subscriptions: pairs of pattern and subscriber."""
        return self._subscriptions

    def add(self, pattern: bytes, subscriber: S) -> bool:
        """Subscribe; False if this subscriber has this very pattern already.

        Raises:
            ProtocolError: the pattern is malformed or beyond a limit.
        """
        node = self._root
        words = split_words(pattern, "pattern")
        for word in words:
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(word == _ANY_WORDS)
            node = child
        if subscriber in node.subscribers:
            return False
        node.subscribers[subscriber] = None
        self._subscriptions += 1
        self._forget_matches()
        return True

    def remove(self, pattern: bytes, subscriber: S) -> bool:
        """Unsubscribe; False if this subscriber does not have this pattern.

        Raises:
            ProtocolError: the pattern is malformed or beyond a limit.
        """
        node = self._root
        steps: list[tuple[_Node[S], bytes]] = []
        for word in split_words(pattern, "pattern"):
            child = node.children.get(word)
            if child is None:
                return False
            steps.append((node, word))
            node = child
        if subscriber not in node.subscribers:
            return False
        del node.subscribers[subscriber]
        self._subscriptions -= 1
        self._forget_matches()
        for parent, word in reversed(steps):
            if node.subscribers or node.children:
                break
            del parent.children[word]
            node = parent
        return True

    def match(self, topic: bytes) -> tuple[S, ...]:
        """The subscribers that have a pattern for ``topic``, each once.

        Raises:
            ProtocolError: the topic is malformed or beyond a limit.
        """
        found = self._cache.get(topic)
        if found is None:
            found = self._walk(split_words(topic))
            if self._cache_entries > _CACHE_ENTRIES:
                self._forget_matches()
            self._cache[topic] = found
            self._cache_entries += 1 + len(found)
        return found

    def _walk(self, words: list[bytes]) -> tuple[S, ...]:
        alive: dict[_Node[S], None] = {}
        _enter(alive, self._root)
        for word in words:
            following: dict[_Node[S], None] = {}
            for node in alive:
                children = node.children
                if node.repeats:
                    _enter(following, node)
                if word in children:
                    _enter(following, children[word])
                if _ONE_WORD in children:
                    _enter(following, children[_ONE_WORD])
            if not following:
                return ()
            alive = following
        found: dict[S, None] = {}
        for node in alive:
            found.update(node.subscribers)
        return tuple(found)

    def _forget_matches(self) -> None:
        if self._cache:
            self._cache.clear()
            self._cache_entries = 0


def _enter(alive: dict[_Node[S], None], node: _Node[S]) -> None:
    """Make ``node`` alive, and what follows it by a '#' that stands for no word."""
    alive[node] = None
    while _ANY_WORDS in node.children:
        node = node.children[_ANY_WORDS]
        alive[node] = None
