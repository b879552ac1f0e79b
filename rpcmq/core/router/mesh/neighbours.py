"""The other routers of a mesh, as this one is linked to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Link

__all__ = ["Identity", "Neighbour", "Neighbours"]


@dataclass(slots=True)
class Identity:
    """A router as the others know it.

    Attributes:
        mesh: the name of the mesh that it belongs to.
        name: its name for people.
        id: its number, which is in the keys of all messages that entered there.
        incarnation: counts its lives; the higher is the later.
        urls: the endpoints that processes and other routers reach it at.
    """

    mesh: str
    name: str
    id: int
    incarnation: int
    urls: Sequence[str] = field(default_factory=tuple)


class Neighbour:
    """One life of another router, and the link to it.

    Attributes:
        link: over which it is reached; its state says whether it answers.
    """

    __slots__ = ("identity", "link")

    def __init__(self, identity: Identity, link: Link) -> None:
        self.identity = identity
        self.link = link

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.identity.name

    @property
    def is_usable(self) -> bool:
        """Whether it may be given work: it answers."""
        return self.link.state is LinkState.ANSWERING


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
