"""Rights: (verbs, exchanges, topic patterns), and what a pattern stands for.

A pattern is words between dots, as for subscriptions: ``*`` is exactly one word, ``#`` any number of
words, none included. An address with a server is matched as one name, ``topic.server``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALL_VERBS", "EVERYTHING", "KNOWN_VERBS", "MESH_VERB", "Right", "allows_pattern", "matches"]

#: The verbs of a process; ``admin`` allows views and controls, whose names take the place of topics, ``node`` to ask
#: nodes that are plugged in, whose names do.
ALL_VERBS = ("call", "cast", "fanout", "publish", "subscribe", "serve", "admin", "node")
#: The verbs whose rights are in no exchange.
_ANYWHERE = ("admin", "node")
_CHECKED = frozenset(ALL_VERBS) - {"node"}
#: The verb of a router: it may link to this one, and bring messages for the topics from whichever process.
MESH_VERB = "mesh"
#: The verbs that a right can have. No key has both kinds.
KNOWN_VERBS = (*ALL_VERBS, MESH_VERB)


def matches(pattern: str, name: str) -> bool:
    """Return whether ``pattern`` stands for the topic ``name``."""
    return _walk(pattern.split("."), name.split("."), False)


def allows_pattern(pattern: str, wanted: str) -> bool:
    """Return whether every topic that ``wanted``, itself a pattern, stands for is plainly one of ``pattern``, too."""
    return _walk(pattern.split("."), wanted.split("."), True)


@dataclass(frozen=True)
class Right:
    """One right of a key: any of ``verbs`` on any of ``topics`` in any of ``exchanges`` (``*``: all)."""

    verbs: frozenset[str]
    topics: tuple[str, ...]
    exchanges: tuple[str, ...] = ("",)

    def allows(self, verb: str, exchange: str, name: str) -> bool:
        """Return whether it covers ``verb`` on ``name``: a topic, a pattern of them, a view, or a name of a node's."""
        if verb not in self.verbs:
            return False
        if verb not in _ANYWHERE and exchange not in self.exchanges and "*" not in self.exchanges:
            return False
        covers = allows_pattern if verb == "subscribe" else matches
        return any(covers(pattern, name) for pattern in self.topics)

    @property
    def everything(self) -> bool:
        """Whether there is nothing that it does not cover, but for plugged-in nodes, which are checked apart."""
        return self.verbs >= _CHECKED and "#" in self.topics and "*" in self.exchanges


EVERYTHING = Right(frozenset(ALL_VERBS), ("#",), ("*",))


def _walk(pattern: Sequence[str], words: Sequence[str], wild: bool) -> bool:
    """Return whether ``pattern`` stands for ``words``. If ``wild``, a word ``#`` stands for any number itself."""
    alive: set[int] = set()
    _enter(alive, pattern, 0)
    for word in words:
        following: set[int] = set()
        for at in alive:
            if at == len(pattern):
                continue
            # A literal word never stands for a wildcard, but '*' for '*' and '#' for both.
            if pattern[at] == "#":
                _enter(following, pattern, at)
            elif pattern[at] == word or (pattern[at] == "*" and not (wild and word == "#")):
                _enter(following, pattern, at + 1)
        alive = following
    return len(pattern) in alive


def _enter(alive: set[int], pattern: Sequence[str], at: int) -> None:
    """Make the place ``at`` alive, and those after it as far as a '#' stands for no word; each once."""
    while at not in alive:
        alive.add(at)
        if at == len(pattern) or pattern[at] != "#":
            return
        at += 1
