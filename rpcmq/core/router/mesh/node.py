"""The node type of the mesh: the routers that this one is linked to, and the parts that use them.

To a router, a neighbour is a link: what it sends is handled like a process's, in its turns and within its bounds, but
by handlers of its own. Parts (:mod:`rpcmq.core.router.mesh.part`) are told what becomes of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.address_view import addresses
from rpcmq.core.router.mesh.adoption import Adoption
from rpcmq.core.router.mesh.domains import Domains
from rpcmq.core.router.mesh.ended_runs import EndedRuns
from rpcmq.core.router.mesh.events import Events
from rpcmq.core.router.mesh.forwarding import Forwarding
from rpcmq.core.router.mesh.handshake import MeshHandshake
from rpcmq.core.router.mesh.hosting import Hosting
from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.mesh.introductions import Introductions
from rpcmq.core.router.mesh.kept_answers import KeptAnswers
from rpcmq.core.router.mesh.limited_links import LimitedLinks
from rpcmq.core.router.mesh.members import Members
from rpcmq.core.router.mesh.neighbours import Identity, Neighbour, Neighbours
from rpcmq.core.router.mesh.node_news import NodeNews
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.pieces import Pieces
from rpcmq.core.router.mesh.places import Places
from rpcmq.core.router.mesh.process_balance import Balance
from rpcmq.core.router.mesh.queue_servers import QueueServers
from rpcmq.core.router.mesh.relays import Relays
from rpcmq.core.router.mesh.run_reports import RunReports
from rpcmq.core.router.mesh.targets import Targets
from rpcmq.core.router.mesh.untold_ends import UntoldEnds
from rpcmq.core.router.mesh.views import mesh_view
from rpcmq.core.router.model import Handler, Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.peer2peer.node import Peer2Peer
from rpcmq.core.router.pubsub.node import PubSub
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, Kind
from rpcmq.wire.bodies import MESH_TYPE, HelloBody

__all__ = ["Mesh"]

#: The parts, in the order in which they are told of neighbours.
PARTS: tuple[Callable[[MeshContext], MeshPart], ...] = (
    LimitedLinks,
    MeshHandshake,
    Members,
    Pieces,
    Relays,
    Interest,
    Forwarding,
    Hosting,
    Events,
    Adoption,
    Domains,
    UntoldEnds,  # before the next one, which forgets who has made the answers to a process that is gone
    KeptAnswers,
    EndedRuns,
    Introductions,
    RunReports,
    Balance,
    NodeNews,
)


class Mesh(NodeType):
    """The links to other routers."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        settings = context.settings
        self.own = Identity(
            settings.mesh_name,
            settings.router_name,
            settings.mesh_id or settings.router_id,
            context.boot,
            domains=settings.mesh_domains,
            logs=context.sink is not None,
            pieces=True,
            nodes=True,
        )
        self.targets = Targets(self.own, settings.mesh_dial == "all")
        self.neighbours = Neighbours()
        self.handlers: list[Handler] = [_not_for_a_neighbour] * 256
        self.parts: list[MeshPart] = []
        self.kinds: dict[Kind, Handler] = {}
        #: Asked in each wake-up of each router, whether it is in a mesh or not.
        self._deadlines: list[Callable[[], float]] = []
        self.greeters = {MESH_TYPE: self._hello}

    def meet(self, others: Sequence[NodeType]) -> None:
        """Make the parts, which use other node types of the router."""
        context = MeshContext(
            self._context,
            self.own,
            self.neighbours,
            next(each for each in others if isinstance(each, RoundRobin)),
            next(each for each in others if isinstance(each, PubSub)),
            next(each for each in others if isinstance(each, Peer2Peer)),
            Places(self._context.directory),
            self._up,
            self._changed,
            self.handlers,
            self.targets,
            self._context.receive,
            self._route_lost,
        )
        for make in PARTS:
            part = make(context)
            self.parts.append(part)
            for kind, handler in part.kinds.items():
                self.handlers[kind] = handler
            for kind, handler in part.process_kinds.items():
                self.kinds[Kind(kind)] = handler
            if type(part).next_deadline is not MeshPart.next_deadline:
                self._deadlines.append(part.next_deadline)
        members, servers = self.members, QueueServers(context)
        self.queue_servers = servers
        interest = next(part for part in self.parts if isinstance(part, Interest))
        self.views = {
            "mesh": lambda now: mesh_view(context, self.handshake, members, now),
            "addresses": lambda now: addresses(interest, self.own.name, servers),
        }
        self.controls = {
            "control.mesh.join": members.join_on_demand,
            "control.mesh.forget": members.forget_on_demand,
            "control.mesh.leave": members.leave_on_demand,
        }

    # --- connections -------------------------------------------------------------------------

    @property
    def handshake(self) -> MeshHandshake:
        """The part that makes links to other routers."""
        return next(part for part in self.parts if isinstance(part, MeshHandshake))

    @property
    def members(self) -> Members:
        """The part that knows the other routers."""
        return next(part for part in self.parts if isinstance(part, Members))

    @property
    def relays(self) -> Relays:
        """The part that passes on what others send."""
        return next(part for part in self.parts if isinstance(part, Relays))

    @property
    def node_news(self) -> NodeNews:
        """The part by which plugged-in nodes of several routers talk to each other."""
        return next(part for part in self.parts if isinstance(part, NodeNews))

    def _route_lost(self, now: float, route: bytes, reason: str) -> None:
        self._context.guarded(now, self._context.links.lost, route)
        self.connection_lost(now, route, reason)

    def _hello(self, now: float, route: bytes, hello: HelloBody, user: str) -> bytes | None:
        return self.handshake.hello(now, route, hello, user)

    def relay(self, now: float, link: Link, messages: Sequence[bytes]) -> None:
        """Pass on what is for others, and take what is for this router."""
        self.relays.take(now, link, messages)

    def connected(self, now: float, route: bytes) -> None:
        """Tell the parts of a connection that was asked for."""
        self._tell(now, "connected", route)

    def dialed_message(self, now: float, route: bytes, message: bytes) -> None:
        """Tell the parts of a message that is not for a link."""
        self._tell(now, "dialed_message", route, message)

    def connection_lost(self, now: float, route: bytes, reason: str) -> None:
        """Tell the parts of a connection that is gone."""
        self._tell(now, "connection_lost", route, reason)

    # --- neighbours --------------------------------------------------------------------------

    def _up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        if not resumed:
            self.neighbours.add(neighbour)
            text = f"linked to router {neighbour.name} ({', '.join(neighbour.identity.urls) or 'url unknown'})"
            if (namesake := self._gone_namesake(neighbour)) is not None:
                text += (
                    f"; router {namesake}, which had the same name, is not linked: if this is the same router with"
                    " another router.listen, set router.id, which stays"
                )
            self._context.act(LogEvent("router linked", text, neighbour.name))
        self._tell(now, "neighbour_up", neighbour, resumed)

    def _gone_namesake(self, neighbour: Neighbour) -> int | None:
        """The id of a router that had the name of ``neighbour`` and cannot be reached; None: there is none."""
        identity, by_id = neighbour.identity, self.neighbours.by_id
        for said in (member.said for member in self.members.table if member.said.name == identity.name):
            if said.id != identity.id and not said.left and (said.id not in by_id or not by_id[said.id].is_usable):
                return said.id
        return None

    def _gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        self.neighbours.remove(neighbour)
        self._tell(now, "neighbour_gone", neighbour, reason)

    def _changed(self, now: float, neighbour: Neighbour) -> None:
        self._tell(now, "neighbour_changed", neighbour)

    def _tell(self, now: float, event: str, *args: Any) -> None:
        for part in self.parts:
            self._context.guarded(now, getattr(part, event), *args)

    def link_changed(self, now: float, link: Link) -> None:
        """Tell the parts of a neighbour, or process, that stops or starts answering."""
        neighbour = self.neighbours.by_link.get(link)
        if neighbour is not None:
            self._changed(now, neighbour)
        elif link.queue_type != MESH_TYPE:
            self._tell(now, "process_changed", link)

    def link_has_room(self, now: float, link: Link) -> None:
        """Tell the parts of a neighbour that takes messages again."""
        neighbour = self.neighbours.by_link.get(link)
        if neighbour is not None:
            self._tell(now, "neighbour_has_room", neighbour)

    def link_ended(self, now: float, link: Link, reason: str) -> None:
        """Tell the parts of a neighbour, or process, that is gone."""
        neighbour = self.neighbours.by_link.get(link)
        if neighbour is not None:
            self._gone(now, neighbour, reason)
        elif link.queue_type != MESH_TYPE:
            self._tell(now, "process_ended", link, reason)

    # --- life --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._tell(now, "tick")

    def next_deadline(self) -> float:
        """The time at which a part wants to do something (monotonic seconds)."""
        due = inf
        for next_deadline in self._deadlines:
            if (deadline := next_deadline()) < due:
                due = deadline
        return due

    def begin_drain(self, now: float) -> None:
        """Tell the parts that this router drains."""
        self._tell(now, "begin_drain")

    def finish_drain(self, now: float) -> None:
        """Tell the parts that the drain is over."""
        self._tell(now, "finish_drain")


def _not_for_a_neighbour(now: float, link: Link, message: bytes) -> None:
    raise ProtocolError(f"kind {message[KIND_AT]:#04x} is unknown or not for another router", "kind")
