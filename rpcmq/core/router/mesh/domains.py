"""Domains: topics that only the consumers of one router serve, wherever requests for them enter.

A router tells its patterns with its identity. A consumer of such a topic that is linked to another router is refused
there, with the name of the one where it belongs. So requests find consumers at that router only, and wait for them
while it is away: its domains stay its own until it leaves the mesh, or tells others.
"""

from __future__ import annotations

from math import inf

from rpcmq.core.common.text import shorten
from rpcmq.core.common.topic_patterns import PatternTrie, pattern_states
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link, Topic
from rpcmq.errors import ProtocolError
from rpcmq.wire.mesh_bodies import MeshIdentity

__all__ = ["Domains"]

#: Most of all domains: routers that have some, and states that a match of a topic visits; and of one router's.
_MOST_ROUTERS, _MOST_STATES, _MOST_STATES_OF_ONE = 1000, 20_000, 2_000
#: Most memory of all domains; of a pattern, and of each of its words, beside its bytes: estimated from above.
_MOST_BYTES, _PATTERN_BYTES, _WORD_BYTES = 32 << 20, 400, 400
#: Topics that are looked at in one tick after a change, and the pause between (seconds).
_TOPICS_AT_ONCE, _PAUSE = 500, 0.002


class Domains(MeshPart):
    """Knows which router has which domains."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._trie: PatternTrie[int] = PatternTrie()
        #: Of each router with domains, by its id.
        self._owners: dict[int, _Owner] = {}
        self._states = self._size_bytes = 0
        #: Topics whose consumers are left to be looked at; and whether all are to be, once more.
        self._to_look_at: list[Topic] = []
        self._has_changed = False
        self._look_at = inf
        context.roundrobin.registrations.checks.append(self._check)
        context.on_member.append(self._heard_of)
        context.domain_owner = self.owner
        own = context.own
        if own.domains:
            self._note(own.id, own.name, own.domains)

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Take its domains, unless it is limited: its region's topics are not this one's."""
        identity = neighbour.identity
        if neighbour.link not in self._context.limits:
            self._changed(now, identity.id, identity.name, identity.domains)

    def _heard_of(self, now: float, said: MeshIdentity, left: bool) -> None:
        """Take the domains of a router that another one tells of."""
        self._changed(now, said.id, said.name, () if left else said.domains)

    def owner(self, topic: str) -> str:
        """The name of the router that has ``topic`` in a domain; empty if none has.

        Where domains overlap, the router with the lowest id has it.
        """
        owner = self._owner(topic)
        return self._owners[owner].name if owner is not None else ""

    def _owner(self, topic: str) -> int | None:
        if not self._owners:
            return None
        try:
            return min(self._trie.match(topic.encode()), default=None)
        except ProtocolError:
            return None  # more words than a pattern can have

    def _check(self, link: Link, topic: str) -> None:
        """Refuse the registration of a consumer that belongs elsewhere.

        Raises:
            ProtocolError: it does.
        """
        id = self._owner(topic)
        if id is None or id == self._context.own.id:
            return
        owner = self._owners[id].name
        text = (
            f"topic {shorten(topic)!r} belongs to a domain of router {owner!r} (mesh.domains there): link its"
            f" consumers to that router; this one is {self._context.own.name!r}"
        )
        neighbour = self._context.neighbours.by_id.get(id)
        if neighbour is None or not neighbour.is_usable:
            raise ProtocolError(text, "domain")
        raise ProtocolError(text, "domain", router=neighbour.name)

    def _changed(self, now: float, id: int, name: str, patterns: tuple[str, ...]) -> None:
        known = self._owners.get(id)
        if id == self._context.own.id or (known.told if known is not None else ()) == patterns:
            return
        self._forget(id)
        if patterns and len(self._owners) < _MOST_ROUTERS:
            self._note(id, name, patterns)
            self._has_changed = True
            self._look_at = min(self._look_at, now)

    def _note(self, id: int, name: str, patterns: tuple[str, ...]) -> None:
        owner = self._owners[id] = _Owner(name, patterns)
        for pattern in patterns:
            words = pattern.encode()
            try:
                states, size_bytes = pattern_states(words), _size_of(words)
                if not self._has_room(owner, states, size_bytes) or not self._trie.add(words, id):
                    continue
            except ProtocolError:
                continue  # it has too many words: no topic can match
            owner.entered.append(words)
            owner.states += states
            self._states += states
            self._size_bytes += size_bytes

    def _has_room(self, owner: _Owner, states: int, size_bytes: int) -> bool:
        has_room = (
            owner.states + states <= _MOST_STATES_OF_ONE
            and self._states + states <= _MOST_STATES
            and self._size_bytes + size_bytes <= _MOST_BYTES
        )
        if not has_room and not owner.is_cut:
            owner.is_cut = True
            text = f"router {owner.name} has more domains than are kept, or with more wildcards: some are not"
            self._context.node.act(LogEvent("domain", shorten(text), owner.name))
        return has_room

    def _forget(self, id: int) -> None:
        owner = self._owners.pop(id, None)
        if owner is None:
            return
        for words in owner.entered:
            self._trie.remove(words, id)
            self._size_bytes -= _size_of(words)
        self._states -= owner.states

    # --- consumers that were here before -----------------------------------------------------

    def tick(self, now: float) -> None:
        """End links of consumers that were here before a domain was known: they are refused when they return."""
        if now < self._look_at:
            return
        if not self._to_look_at and self._has_changed:
            self._has_changed = False
            self._to_look_at = [topic for topic in self._context.node.directory if topic.consumers]
        some = self._to_look_at[-_TOPICS_AT_ONCE:]
        del self._to_look_at[-_TOPICS_AT_ONCE:]
        self._look_at = now + _PAUSE if self._to_look_at or self._has_changed else inf
        for topic in some:
            owner = self._owner(topic.address.topic)
            if owner is not None and owner != self._context.own.id:
                self._end_strangers(now, topic, self._owners[owner].name)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._look_at

    def _end_strangers(self, now: float, topic: Topic, name: str) -> None:
        node = self._context.node
        for consumer in list(topic.consumers):
            link = consumer.link
            text = f"{link.identity} serves {topic.address.topic!r}, a topic of a domain of router {name!r}"
            node.act(LogEvent("domain", text, link.identity))
            node.links.end(now, link, f"its topic belongs to a domain of router {name!r}")


class _Owner:
    """A router with domains.

    Attributes:
        told: its patterns, as it tells them; those that are in force are ``entered``.
        states: of these, together.
        is_cut: whether there are others.
    """

    __slots__ = ("entered", "is_cut", "name", "states", "told")

    def __init__(self, name: str, told: tuple[str, ...]) -> None:
        self.name, self.told = name, told
        self.entered: list[bytes] = []
        self.states = 0
        self.is_cut = False


def _size_of(pattern: bytes) -> int:
    return _PATTERN_BYTES + len(pattern) + _WORD_BYTES * (pattern.count(b".") + 1)
