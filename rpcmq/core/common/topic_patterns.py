"""Subscriptions to topic patterns, matched by a trie.

A pattern is words between dots, as in AMQP 0-9-1's topic exchange: ``*`` stands for exactly one
word and ``#`` for any number of words, none included. Inside a word both are ordinary characters.

Matching walks the topic's words with the set of trie nodes that are still alive, as one runs a
nondeterministic automaton (Thompson, "Regular Expression Search Algorithm", CACM 1968). A node is visited
at most once for each number of words, however many ways lead to it, and patterns that share no prefix with
the topic are never looked at. What a pattern can add to a match is known beforehand: :func:`pattern_states`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from rpcmq.errors import ProtocolError

__all__ = ["MAX_TOPIC_BYTES", "MAX_TOPIC_WORDS", "PatternTrie", "pattern_states", "split_words"]

MAX_TOPIC_BYTES = 255
"""Longest topic or pattern, in bytes."""

MAX_TOPIC_WORDS = 32
"""Most words in a topic or pattern."""

# Bound of the match cache: topics and the subscribers listed for them, together.
_CACHE_ENTRIES = 65536

# States of a node that can be alive after any number of words, including none, plus the final one.
_ANYWHERE = MAX_TOPIC_WORDS + 2

_ONE_WORD = b"*"
_ANY_WORDS = b"#"

S = TypeVar("S", bound=Hashable)


def split_words(name: bytes, what: str = "topic") -> list[bytes]:
    """The words of a topic or pattern (``what`` says which, for the error).

    Raises:
        ProtocolError: a word is empty, or the name has too many bytes or words.
    """
    if len(name) > MAX_TOPIC_BYTES:
        text = f"{what} {_shown(name[:40])}... has {len(name)} bytes; at most {MAX_TOPIC_BYTES} are allowed"
        raise ProtocolError(text, f"bad_{what}")
    words = name.split(b".")
    if len(words) > MAX_TOPIC_WORDS:
        text = f"{what} {_shown(name)} has {len(words)} words; at most {MAX_TOPIC_WORDS} are allowed"
        raise ProtocolError(text, f"bad_{what}")
    if b"" in words:
        text = f"{what} {_shown(name)} has an empty word; write words separated by single dots"
        raise ProtocolError(text, f"bad_{what}")
    return words


def pattern_states(pattern: bytes) -> int:
    """Return the most states ``pattern`` can add to the match of any topic.

    Words before the first wildcard add none: of those of all patterns together, only the ones that the topic itself
    begins with are visited. A word from the first ``*`` on is visited once, and so is a ``#`` at the end, which decides
    at once. A ``#`` before other words, and each word after it, can be visited after every word of the topic.

    Raises:
        ProtocolError: the pattern is malformed or beyond a limit.
    """
    words = split_words(pattern, "pattern")
    states = each = 0
    for word in words[:-1]:
        if word == _ANY_WORDS:
            each = _ANYWHERE
        elif word == _ONE_WORD:
            each = each or 1
        states += each
    if words[-1] == _ANY_WORDS:
        return states + 1
    return states + (each or int(words[-1] == _ONE_WORD))


class PatternTrie(Generic[S]):
    """Subscribers by pattern. Patterns and topics are bytes, as they are on the wire.

    Matches are remembered, within a bound, until any subscription changes.
    """

    __slots__ = ("_cache", "_cache_entries", "_root", "_subscriptions", "visited")

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._subscriptions = 0
        self._cache: dict[bytes, tuple[S, ...]] = {}
        self._cache_entries = 0
        #: States visited by all matches that were not remembered: what the matching has cost.
        self.visited = 0

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
            node = node.child(word) or node.grow(word)
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
            child = node.child(word)
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
            if node.subscribers or not node.is_leaf:
                break
            parent.cut(word)
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
        # The nodes of each '#' that was entered: they have matched, or will by what is alive in the end.
        reached: dict[_Node[S], None] = {}
        alive: dict[_Node[S], None] = {}
        _enter(alive, reached, self._root)
        visited = len(alive)
        for word in words:
            following: dict[_Node[S], None] = {}
            for node in alive:
                if node.repeats:
                    # Nodes reachable without a word were entered together with it, and repeat, too.
                    following[node] = None
                child = node.ordinary.get(word)
                if child is not None:
                    if child.any_words is None:
                        following[child] = None
                    else:
                        _enter(following, reached, child)
                child = node.one_word
                if child is not None:
                    if child.any_words is None:
                        following[child] = None
                    else:
                        _enter(following, reached, child)
            alive = following
            if not alive:
                break
            visited += len(alive)
        self.visited += visited + len(reached)
        found: dict[S, None] = {}
        for node in reached:
            found.update(node.subscribers)
        for node in alive:
            if node.subscribers:
                found.update(node.subscribers)
        return tuple(found)

    def _forget_matches(self) -> None:
        if self._cache:
            self._cache.clear()
            self._cache_entries = 0


def _shown(name: bytes) -> str:
    """``name`` in quotes, as its text."""
    return repr(name.decode(errors="replace"))


class _Node(Generic[S]):
    """The continuations of one word of a pattern.

    A topic's word that looks like a wildcard is matched by that wildcard in any case, so nobody looks for it among
    the ordinary words.
    """

    __slots__ = ("any_words", "one_word", "ordinary", "repeats", "subscribers")

    def __init__(self, repeats: bool = False) -> None:
        self.ordinary: dict[bytes, _Node[S]] = {}
        self.one_word: _Node[S] | None = None
        self.any_words: _Node[S] | None = None
        # Used as ordered sets, so that a match comes out in the same order each time.
        self.subscribers: dict[S, None] = {}
        # The node of a '#': it stays alive over any word, and its subscribers are found once it is entered.
        self.repeats = repeats

    def child(self, word: bytes) -> _Node[S] | None:
        """Return the child for ``word`` of a pattern, or None."""
        if word == _ANY_WORDS:
            return self.any_words
        return self.one_word if word == _ONE_WORD else self.ordinary.get(word)

    def grow(self, word: bytes) -> _Node[S]:
        """A new child by ``word`` of a pattern."""
        node: _Node[S] = _Node(word == _ANY_WORDS)
        if word == _ANY_WORDS:
            self.any_words = node
        elif word == _ONE_WORD:
            self.one_word = node
        else:
            self.ordinary[word] = node
        return node

    def cut(self, word: bytes) -> None:
        """Forget the child by ``word``."""
        if word == _ANY_WORDS:
            self.any_words = None
        elif word == _ONE_WORD:
            self.one_word = None
        else:
            del self.ordinary[word]

    @property
    def is_leaf(self) -> bool:
        """Whether no pattern goes on from here."""
        return self.any_words is None and self.one_word is None and not self.ordinary


def _enter(alive: dict[_Node[S], None], reached: dict[_Node[S], None], node: _Node[S] | None) -> None:
    """Add ``node`` to ``alive``, and its successors by a '#' that stands for no word."""
    while node is not None and node not in alive:
        if node.repeats:
            reached[node] = None
            if not node.ordinary and node.is_leaf:
                # A '#' at the end: nothing that comes can change that it matches.
                return
        alive[node] = None
        node = node.any_words
