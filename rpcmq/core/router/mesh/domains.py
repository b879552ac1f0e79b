"""Domains: topics that only the consumers of one router serve, wherever requests for them enter.

A router tells its patterns with its identity. A consumer of such a topic that is linked to another router is refused
there, with the name of the one where it belongs. So requests find consumers at that router only, and wait for them
while it is away: its domains stay its own until it leaves the mesh, or tells others.
"""

from __future__ import annotations

from rpcmq.core.common.text import shorten
from rpcmq.core.common.topic_patterns import PatternTrie
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire.mesh_bodies import MeshIdentity

__all__ = ["Domains"]

#: Routers of which domains are remembered: as many as a mesh may have.
_MOST = 1000


class Domains(MeshPart):
    """Knows which router has which domains."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._trie: PatternTrie[int] = PatternTrie()
        #: Of each router with domains, by its id: its name, and the patterns.
        self._owners: dict[int, tuple[str, tuple[str, ...]]] = {}
        context.roundrobin.registrations.checks.append(self._check)
        context.on_member.append(self._heard_of)
        own = context.own
        if own.domains:
            self._note(own.id, own.name, own.domains)

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Take its domains."""
        identity = neighbour.identity
        self._changed(now, identity.id, identity.name, identity.domains)

    def _heard_of(self, now: float, said: MeshIdentity, left: bool) -> None:
        """Take the domains of a router that another one tells of."""
        self._changed(now, said.id, said.name, () if left else said.domains)

    def owner(self, topic: str) -> str:
        """The name of the router that has ``topic`` in a domain; empty if none has.

        Where domains overlap, the router with the lowest id has it.
        """
        owner = self._owner(topic)
        return self._owners[owner][0] if owner is not None else ""

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
        owner = self._owners[id][0]
        text = (
            f"topic {shorten(topic)!r} belongs to a domain of router {owner!r} (mesh.domains there): link its"
            f" consumers to that router; this one is {self._context.own.name!r}"
        )
        neighbour = self._context.neighbours.by_id.get(id)
        if neighbour is None or not neighbour.is_usable:
            raise ProtocolError(text, "domain")
        raise ProtocolError(text, "domain", router=neighbour.name)

    def _changed(self, now: float, id: int, name: str, patterns: tuple[str, ...]) -> None:
        if self._owners.get(id, ("", ()))[1] == patterns or id == self._context.own.id:
            return
        self._forget(id)
        if patterns and len(self._owners) < _MOST:
            self._note(id, name, patterns)
            self._end_strangers(now, name)

    def _note(self, id: int, name: str, patterns: tuple[str, ...]) -> None:
        for pattern in patterns:
            try:
                self._trie.add(pattern.encode(), id)
            except ProtocolError:
                continue  # it has too many words: no topic can match
        self._owners[id] = name, patterns

    def _forget(self, id: int) -> None:
        _, patterns = self._owners.pop(id, ("", ()))
        for pattern in patterns:
            try:
                self._trie.remove(pattern.encode(), id)
            except ProtocolError:
                continue  # it has too many words, and was never entered

    def _end_strangers(self, now: float, name: str) -> None:
        """End the links of consumers that were here before the domain was known: they are refused when they return."""
        node = self._context.node
        for topic in list(node.directory):
            if topic.consumers and self.owner(topic.address.topic) == name:
                for consumer in list(topic.consumers):
                    link = consumer.link
                    text = f"{link.identity} serves {topic.address.topic!r}, a topic of a domain of router {name!r}"
                    node.act(LogEvent("domain", text, link.identity))
                    node.links.end(now, link, f"its topic belongs to a domain of router {name!r}")
