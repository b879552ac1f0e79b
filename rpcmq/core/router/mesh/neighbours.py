"""The other routers of a mesh, as this one is linked to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Link

__all__ = ["Identity", "Neighbour", "Neighbours", "told_apart"]


@dataclass(slots=True)
class Identity:
    """A router as the others know it.

    Attributes:
        mesh: the name of the mesh that it belongs to.
        name: its name for people.
        id: its number, which is in the keys of all messages that entered there.
        incarnation: counts its lives; the higher is the later.
        urls: the endpoints that processes and other routers reach it at.
        key: its public key; empty without CURVE.
        domains: patterns of the topics that only its own consumers serve.
        logs: whether it has a dispatch log.
        pieces: whether it takes large payloads in pieces, and tells what it has read of RELAYs.
        nodes: whether it takes what plugged-in nodes of other routers tell.
        queue_server: how its queue server is, as MEMBERS tells it; of others that is in their records.
    """

    mesh: str
    name: str
    id: int
    incarnation: int
    urls: Sequence[str] = field(default_factory=tuple)
    key: str = ""
    domains: tuple[str, ...] = ()
    logs: bool = False
    pieces: bool = False
    nodes: bool = False
    queue_server: str = ""


class Neighbour:
    """One life of another router, and the link to it.

    Attributes:
        link: over which it is reached; its state says whether it answers.
        is_draining: whether it has said that it is shutting down.
        is_relayed: whether other routers carry what is sent to it.
    """

    __slots__ = ("identity", "is_draining", "is_relayed", "link")

    def __init__(self, identity: Identity, link: Link) -> None:
        self.identity = identity
        self.link = link
        self.is_draining = self.is_relayed = False

    @property
    def name(self) -> str:
        """Its name for people, unlike that of any other neighbour."""
        return self.link.identity

    @property
    def is_usable(self) -> bool:
        """Whether it may be given work: it answers, and is not shutting down."""
        return self.link.state is LinkState.ANSWERING and not self.is_draining


class Neighbours:
    """The routers that this one has a link to, by their ids and links."""

    __slots__ = ("by_id", "by_link")

    def __init__(self) -> None:
        self.by_id: dict[int, Neighbour] = {}
        self.by_link: dict[Link, Neighbour] = {}

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, neighbour: Neighbour) -> None:
        """Enter ``neighbour``, whose id no other has."""
        assert neighbour.identity.id not in self.by_id
        self.by_id[neighbour.identity.id] = neighbour
        self.by_link[neighbour.link] = neighbour

    def remove(self, neighbour: Neighbour) -> None:
        """Take ``neighbour`` out."""
        del self.by_id[neighbour.identity.id]
        del self.by_link[neighbour.link]


class Named(Protocol):
    """A router that says who it is."""

    @property
    def name(self) -> str:
        """Its name for people."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def urls(self) -> Sequence[str]:
        """The endpoints that it is reached at."""


def told_apart(one: Named, other: Named) -> str:
    """Say that two routers that live have the same id, which must be mended by an operator."""
    first, second = (f"{each.name!r} ({', '.join(each.urls) or 'url unknown'})" for each in (one, other))
    return f"router id {one.id} is used by {first} and by {second}: set router.id of one of them"
