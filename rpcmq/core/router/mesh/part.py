"""A part of the mesh: one of the things that routers do for each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from math import inf

from rpcmq.core.router.actions import Answer, Disconnect
from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.link_table import SAID_GOODBYE
from rpcmq.core.router.mesh.limits import LinkLimits
from rpcmq.core.router.mesh.member_table import MemberTable
from rpcmq.core.router.mesh.neighbours import Identity, Neighbour, Neighbours
from rpcmq.core.router.mesh.offered_work import OfferedWork
from rpcmq.core.router.mesh.places import Places
from rpcmq.core.router.mesh.routes import Route
from rpcmq.core.router.mesh.targets import Target, Targets
from rpcmq.core.router.model import Consumer, Delivery, Handler, Link, Request, Topic
from rpcmq.core.router.node_type import NodeContext
from rpcmq.core.router.peer2peer.node import Peer2Peer
from rpcmq.core.router.pubsub.node import PubSub
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.wire import Address
from rpcmq.wire.bodies import HelloBody
from rpcmq.wire.consumer_name import ConsumerName
from rpcmq.wire.mesh_bodies import MeshIdentity, RoutersBody

__all__ = ["MeshContext", "MeshPart"]


@dataclass(slots=True)
class MeshContext:
    """The things that all parts of the mesh use."""

    node: NodeContext
    #: This router.
    own: Identity
    neighbours: Neighbours
    roundrobin: RoundRobin
    pubsub: PubSub
    peer2peer: Peer2Peer
    places: Places
    #: Enter a neighbour whose handshake is done, or whose link was resumed; parts are told: (now, neighbour, resumed).
    up: Callable[[float, Neighbour, bool], None]
    #: A neighbour starts or stops being usable, in another way than by its link: (now, neighbour).
    changed: Callable[[float, Neighbour], None]
    #: Handlers of the messages of a link to a neighbour, by kind.
    handlers: list[Handler]
    #: The routers to dial.
    targets: Targets
    #: Have the engine receive a batch on a relayed connection: (now, route, batch, detached payloads).
    receive: Callable[[float, bytes, bytes, Sequence[bytes | memoryview]], None]
    #: A relayed connection is gone, and why: (now, route, reason).
    route_lost: Callable[[float, bytes, str], None]
    #: The other routers, as they tell of themselves.
    members: MemberTable = field(default_factory=MemberTable)
    #: Handle a HELLO on a relayed connection: (now, route, hello, public key); returns the refusal to send, or None.
    greet: Callable[[float, bytes, HelloBody, str], bytes | None] = lambda now, route, hello, user: None
    #: Handle an answer to a HELLO on a relayed connection: (now, route, message).
    greeting_answered: Callable[[float, bytes, bytes], None] = lambda now, route, message: None
    #: The way to the router with an id; None: there is none. And the ids of the routers on it.
    route_to: Callable[[int], Route | None] = lambda id: None
    path_to: Callable[[int], list[int]] = lambda id: []
    #: Nothing has come through on that way: take another one; returns a text that names router and way.
    way_failed: Callable[[int], str] = str
    #: The limits of links over which not everything may pass.
    limits: dict[Link, LinkLimits] = field(default_factory=dict)
    #: The highest incarnation that is known of the router with an id; 0: none is.
    incarnation_of: Callable[[int], int] = lambda id: 0
    #: Whether the router with an id has left the mesh.
    has_left: Callable[[int], bool] = lambda id: False
    #: There is something new about this router, beside its links: (now).
    own_changed: Callable[[float], None] = lambda now: None
    #: The number of its processes that other routers could take, as these are told.
    processes: int = 0
    #: Return the routers of the mesh, as a process is told that is asked to go to the one with this url: (url).
    routers_with: Callable[[str], RoutersBody] = lambda url: RoutersBody(mesh="")
    #: The name of the router that has a topic in a domain; empty: none has.
    domain_owner: Callable[[str], str] = lambda topic: ""
    #: Router and name of each consumer elsewhere of an address, or of a group of it: (address, group).
    names: Callable[[Address, str], Iterable[tuple[str, ConsumerName]]] = lambda address, group: ()
    #: The requests of this router that each neighbour has.
    offered: dict[BaseLink, OfferedWork] = field(default_factory=dict)
    #: Called with the time when other routers have told of other connections between routers than before.
    on_topology: list[Callable[[float], None]] = field(default_factory=list)
    #: Called with (now, the identity of a router that another one has told of, whether it has left the mesh).
    on_member: list[Callable[[float, MeshIdentity, bool], None]] = field(default_factory=list)
    #: The messages that routers have asked for: only of these a later owner can be known.
    fenced: Sized = ()
    #: Whether a later owner of an offered message is known: (link of the one that offers it, key, stamp, topic).
    refuses: Callable[[Link, bytes, bytes, Topic], bool] = lambda link, key, stamp, topic: False
    #: Forget that a consumer has a message of an earlier owner: (now, consumer, key).
    displace: Callable[[float, Consumer, bytes], None] = lambda now, consumer, key: None
    #: Remember who is gone with a message that it may have started: (now, request, name, whether it may turn up again).
    note_departed: Callable[[float, Request, ConsumerName, bool], None] = lambda now, request, name, is_sought: None
    #: The consumer here that has ended the message with this name for another router; None: none, or not lately.
    ended_by: Callable[[bytes], ConsumerName | None] = lambda name: None
    #: The consumers that have ended messages of processes here, which have not acknowledged that: (keys).
    untold: Callable[[Collection[bytes]], Mapping[bytes, ConsumerName]] = lambda keys: {}
    #: The same of a message whose sender's link has ended since; None: it is not known that it has ended: (key).
    untold_before: Callable[[bytes], ConsumerName | None] = lambda key: None
    #: Ask for a request whose consumer has left another router: (now, delivery, name); False: it is not asked for.
    look_for: Callable[[float, Delivery, ConsumerName], bool] = lambda now, delivery, name: False
    #: The report on the run of a request, for its owner; None if that wants none: (now, request, consumer).
    report: Callable[[float, Forwarded, Consumer | None], bytes | None] = lambda now, request, consumer: None
    #: Server and identity of a consumer elsewhere, if that was told: (link, number).
    runner: Callable[[BaseLink, int], tuple[str, str] | None] = lambda link, number: None
    #: Note an obstacle to links: (now, subject, reason, text); see :class:`rpcmq.core.router.mesh.problems.Problems`.
    problem: Callable[[float, str, str, str], None] = lambda now, subject, reason, text: None
    #: Forget the obstacles to links with these subjects.
    solved: Callable[..., None] = lambda *subjects: None
    #: Dial no more on behalf of an operator: (now, target).
    dismiss: Callable[[float, Target], None] = lambda now, target: None

    def is_hop(self, neighbour: Neighbour) -> bool:
        """Return whether ``neighbour`` may relay messages between other routers: its link is direct, without limits."""
        return not neighbour.is_relayed and neighbour.link not in self.limits

    def answer(self, route: bytes, message: bytes) -> None:
        """Send ``message`` to the connection ``route``, which has no link."""
        self.node.act(Answer(route, message))

    def hang_up(self, route: bytes) -> None:
        """Close the connection ``route``."""
        self.node.act(Disconnect(route))

    def may_go_on(self, link: Link, reason: str) -> bool:
        """Return whether the process of ``link``, ended for ``reason``, may come back to a router of the mesh."""
        return reason != SAID_GOODBYE and link.follows_mesh and len(self.neighbours) > 0


class MeshPart:
    """One part of the mesh. Every method does nothing here; an exception costs one message, or one call of a method."""

    #: The messages of neighbours that it takes.
    kinds: Mapping[int, Handler] = {}
    #: The messages of processes that it takes.
    process_kinds: Mapping[int, Handler] = {}

    def connected(self, now: float, route: bytes) -> None:
        """The connection ``route``, which was asked for, stands."""

    def dialed_message(self, now: float, route: bytes, message: bytes) -> None:
        """``message`` came on such a connection, and is not for a link."""

    def connection_lost(self, now: float, route: bytes, reason: str) -> None:
        """A connection is gone, or could not be had, and why."""

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """``neighbour`` is linked; unless its session was ``resumed``, neither side knows anything of the other."""

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """``neighbour`` stops or starts being usable."""

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """``neighbour`` is gone: what is known of it is void, and what it had is lost, or at least unknown."""

    def neighbour_has_room(self, now: float, neighbour: Neighbour) -> None:
        """The window of the link to ``neighbour``, which was full, has room again."""

    def process_changed(self, now: float, link: Link) -> None:
        """The link of a process stops or starts answering."""

    def process_ended(self, now: float, link: Link, reason: str) -> None:
        """The link of a process is gone for good."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return inf

    def begin_drain(self, now: float) -> None:
        """A drain of this router begins."""

    def finish_drain(self, now: float) -> None:
        """The drain is over."""
