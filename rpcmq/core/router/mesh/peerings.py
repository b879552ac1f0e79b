"""The links to other routers: how one is made, resumed and ended, whichever side has dialled.

A link between two routers is an ordinary :class:`~rpcmq.core.router.model.Link` at each of them, with a session. While
its connection is lost both sides keep theirs, away; the side that had dialled dials again, and resumes it with the
token that it was welcomed with. Where others carry it, either side may go on with it over a direct connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rpcmq.core.router.access_control import Admission
from rpcmq.core.router.actions import Disconnect
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Identity, Neighbour
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.targets import Target
from rpcmq.core.router.model import Link
from rpcmq.wire import VERSION
from rpcmq.wire.bodies import MESH_TYPE, HelloBody, WelcomeBody
from rpcmq.wire.mesh_bodies import MAX_NEIGHBOURS, MAX_ROUTERS, MeshIdentity

__all__ = ["Peering", "Peerings", "as_body", "as_identity"]

#: Whatever the format of a payload is, another router passes it on.
_ALL_FORMATS = (1 << 32) - 1


class Peering:
    """A link to another router, as the handshake keeps it.

    Attributes:
        target: that this router has dialled; None: the other one has.
        token: with which this router resumes it, on whatever way; empty if the other one has dialled, and resumes it
            with that of the link. So does this router over a direct connection in place of others that carry the link.
        route: the connection; None while away.
        began: when its connection was made (monotonic seconds).
        questions: the number of HEARTBEATs that wanted an answer.
        asked: those of them that have none yet, by number, with the time of each.
        answered_at: the time of the last answer to one.
        round_trip: seconds from that HEARTBEAT to its answer; 0: not known yet.
        probe: the question that must be answered by ``probed_until``, or the link ends; 0: there is none.
    """

    __slots__ = (
        "answered_at", "asked", "began", "neighbour", "probe", "probed_until", "questions", "round_trip", "route",
        "target", "token",
    )  # fmt: skip

    def __init__(self, now: float, neighbour: Neighbour, route: bytes, target: Target | None, token: str) -> None:
        self.neighbour, self.route, self.target, self.token = neighbour, route, target, token
        self.began = now
        self.asked: dict[int, float] = {}
        self.questions = self.probe = 0
        self.answered_at = self.round_trip = self.probed_until = 0.0

    route: bytes | None

    @property
    def link(self) -> Link:
        """The link."""
        return self.neighbour.link

    @property
    def identity(self) -> Identity:
        """The other router."""
        return self.neighbour.identity

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection."""
        return self.route is not None and self.link.state is not LinkState.AWAY

    def is_with(self, other: MeshIdentity) -> bool:
        """Return whether ``other`` is the router at the other end, and in the same life."""
        known = self.identity
        return (known.name, known.incarnation, tuple(known.urls)) == (other.name, other.incarnation, other.urls)


class Peerings:
    """The links to other routers."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._links = context.node.links
        self._by_link: dict[Link, Peering] = {}

    def __iter__(self) -> Iterator[Peering]:
        return iter(self._by_link.values())

    def __len__(self) -> int:
        return len(self._by_link)

    def of_link(self, link: Link) -> Peering | None:
        """Return the peering of ``link``."""
        return self._by_link.get(link)

    def of_router(self, id: int) -> Peering | None:
        """Return the peering with the router ``id``."""
        neighbour = self._context.neighbours.by_id.get(id)
        return self._by_link.get(neighbour.link) if neighbour is not None else None

    def has_room(self, is_relayed: bool) -> bool:
        """Return whether another link may be made: 100 may be direct, and 1000 there if the new one ``is_relayed``."""
        if is_relayed:
            return len(self) < MAX_ROUTERS
        return sum(not each.neighbour.is_relayed for each in self) < MAX_NEIGHBOURS

    def of_target(self, target: Target) -> Peering | None:
        """Return the peering that ``target`` has led to."""
        return next((peering for peering in self if peering.target is target), None)

    # --- messages ----------------------------------------------------------------------------

    def hello(self, resumed: Peering | None) -> bytes:
        """Return the HELLO of this router, with which it wants to resume a link."""
        own = self._context.own
        return HelloBody(
            identity=own.name,
            queue_type=MESH_TYPE,
            versions=(VERSION,),
            token=(resumed.token or resumed.link.token) if resumed is not None else "",
            received=resumed.link.received if resumed is not None else None,
            mesh=as_body(own).encode(),
        ).message()

    def _welcome(self, link: Link, is_resumed: bool) -> bytes:
        own, settings = self._context.own, self._context.node.settings
        return WelcomeBody(
            router=own.name,
            router_id=own.id,
            boot=self._context.node.boot,
            handle=link.handle,
            token=link.token,
            resumed=is_resumed,
            received=link.received,
            max_message_bytes=settings.message_max_bytes,
            mesh=as_body(own).encode(),
        ).message()

    # --- the life of a link ------------------------------------------------------------------

    def accept(self, now: float, route: bytes, other: MeshIdentity, admission: Admission) -> None:
        """Make a link for the router ``other``, which has said HELLO on ``route``."""
        link = self._new_link(other)
        admission.attach(link)
        self._begin(now, link, route, other, None, "", lambda: link.send_first(self._welcome(link, False)))

    def dialed(self, now: float, target: Target, other: MeshIdentity, token: str, admission: Admission) -> None:
        """Make a link to ``other``, which has welcomed this router at ``target``."""
        assert target.route is not None, "its WELCOME came on it"
        target.has_led = True
        link = self._new_link(other)
        admission.attach(link)
        self._begin(now, link, target.route, other, target, token, lambda: None)

    def _new_link(self, other: MeshIdentity) -> Link:
        name = other.name
        if name == self._context.own.name or self._links.by_identity(name, MESH_TYPE) is not None:
            # Two routers of a host, say, that were given no names.
            name = f"{name}#{other.id}"
        node = self._context.node
        link = Link(self._links.dirty, name, MESH_TYPE, node.new_handle(), self._context.own.id)
        link.handlers = self._context.handlers.copy()  # others while a payload comes in pieces
        link.cuts = other.pieces
        link.token = node.new_token()
        link.accepts = _ALL_FORMATS
        return link

    def _begin(
        self,
        now: float,
        link: Link,
        route: bytes,
        other: MeshIdentity,
        target: Target | None,
        token: str,
        greet: Callable[[], None],
    ) -> None:
        links = self._links
        neighbour = Neighbour(as_identity(other), link)
        # Whatever it says that its key is.
        neighbour.identity.key = link.key.public if link.key is not None else ""
        links.add(link)
        try:
            self._attach(now, neighbour, route)
            greet()
            self._by_link[link] = Peering(now, neighbour, route, target, token)
            link.counters["connects"] += 1
            links.access.connected(now, link)
            links.connected(now, link)
            self._context.up(now, neighbour, False)
        except BaseException:
            # One that is neither connected nor away would never end.
            links.end(now, link, "its handshake failed")
            self._by_link.pop(link, None)
            raise

    def resume(self, now: float, peering: Peering, route: bytes, received: int, is_dialed: bool) -> None:
        """Let ``route`` carry the link of ``peering``, of whose messages the other side has received so many.

        Raises:
            ProtocolError: that is impossible.
        """
        link, links = peering.link, self._links
        link.forget_inbox()
        links.on_taken(now, link, link.resume(received))
        former = peering.route
        self._attach(now, peering.neighbour, route)
        if former is not None and former != route:
            self._context.node.act(Disconnect(former))
        if is_dialed:
            peering.token = peering.token or link.token
        elif peering.token:
            link.token, peering.token = peering.token, ""
        peering.route, peering.began = route, now
        peering.asked.clear()
        peering.probe = 0
        if not is_dialed:
            link.send_first(self._welcome(link, True))
        link.counters["connects"] += 1
        links.access.connected(now, link)
        links.connected(now, link)
        self._context.up(now, peering.neighbour, True)

    def _attach(self, now: float, neighbour: Neighbour, route: bytes) -> None:
        """Let the connection ``route`` carry the link of ``neighbour``."""
        link, node = neighbour.link, self._context.node
        self._links.attach_route(now, link, route)
        neighbour.is_relayed = route in node.relayed.by_route
        node.relayed.carry_link(link, self._links.dirty)
        if neighbour.is_relayed:
            link.failed_resumptions = 0  # messages that a relay drops do not show that one of them is malformed

    def forget(self, link: Link) -> Peering | None:
        """Forget the peering of ``link``, which has ended; return it."""
        return self._by_link.pop(link, None)


def as_body(identity: Identity) -> MeshIdentity:
    """Return ``identity`` as it is told to others."""
    return MeshIdentity(
        mesh=identity.mesh,
        name=identity.name,
        id=identity.id,
        incarnation=identity.incarnation,
        urls=tuple(identity.urls),
        key=identity.key,
        domains=identity.domains,
        logs=identity.logs,
        pieces=identity.pieces,
        nodes=identity.nodes,
    )


def as_identity(body: MeshIdentity) -> Identity:
    """Return the identity that another router has told."""
    return Identity(
        body.mesh,
        body.name,
        body.id,
        body.incarnation,
        body.urls,
        body.key,
        body.domains,
        body.logs,
        body.pieces,
        body.nodes,
    )
