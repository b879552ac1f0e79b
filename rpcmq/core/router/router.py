"""The router engine: frames in, frames and rare actions out; no sockets, no clock.

The shell calls ``receive`` with what came on a connection, :meth:`Router.lost` when a
connection is gone and :meth:`Router.tick` at :meth:`Router.next_deadline`. After each wake-up it performs
``effects``: what ``dirty`` links have in their outboxes, one batch a link, and actions. While
``turns.is_anybody_waiting`` it calls ``run_next_turn`` in each further wake-up, and while
``queries.is_anybody_waiting`` it calls :meth:`Router.make_views` now and then, for a small part of its time.
``now`` is monotonic seconds, never decreasing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from rpcmq.core.common.drops import Drops
from rpcmq.core.common.session import Session
from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Action, LinkDetached, LogEvent
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.effects import Effects
from rpcmq.core.router.faults import FaultReporter
from rpcmq.core.router.handshake import Handshake
from rpcmq.core.router.intake import Intake
from rpcmq.core.router.key_access import KeyAccessControl
from rpcmq.core.router.kick import kick
from rpcmq.core.router.kind_table import KindTable
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.liveness import Liveness
from rpcmq.core.router.memory import Memory
from rpcmq.core.router.mesh.node import Mesh
from rpcmq.core.router.mesh.relayed_connections import RelayedConnections
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.peer2peer.node import Peer2Peer
from rpcmq.core.router.protocol_errors import ProtocolErrors
from rpcmq.core.router.pubsub.node import PubSub
from rpcmq.core.router.queries import Queries
from rpcmq.core.router.right_checks import RightChecks
from rpcmq.core.router.rights import Key
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.turns import TURN_STEPS, Turns
from rpcmq.core.router.view_rows import View
from rpcmq.core.router.views import view, views_of
from rpcmq.errors import ProtocolError
from rpcmq.wire import KEY, Kind
from rpcmq.wire.query_bodies import QueryBody

__all__ = ["NODE_TYPES", "Router"]

N = TypeVar("N", bound=NodeType)
#: The beginning of the names of controls in a query, which those of views do not have.
_CONTROL = "control."

#: The capabilities of a router. Their order is that in which they are told of links.
NODE_TYPES: tuple[Callable[[NodeContext], NodeType], ...] = (RoundRobin, PubSub, Peer2Peer, Mesh)


class Router:
    """A complete router except for its sockets.

    Args:
        settings: bounds and times; may be changed while it runs.
        boot: wall-clock milliseconds at start; identifies this life of the router.
        now: monotonic seconds.
        new_token: makes an unguessable string.
        sink: where the dispatch log goes; None: there is none.
        plug_ins: makers of the nodes that it has beside its own.

    Attributes:
        receive: handles what came on a connection; see :meth:`rpcmq.core.router.intake.Intake.receive`.
        run_next_turn: goes on with what waits; see :meth:`rpcmq.core.router.intake.Intake.run_next_turn`.
    """

    #: The node types that it has.
    node_types = NODE_TYPES

    def __init__(
        self, settings: Settings, boot: int, now: float, new_token: Callable[[], str], sink: Sink | None = None,
        plug_ins: Sequence[Callable[[NodeContext], NodeType]] = (),
    ) -> None:  # fmt: skip
        self.settings = settings
        self.boot = boot
        self.started = now
        #: Messages discarded for protocol errors, by reason.
        self.refused: Counter[str] = Counter()
        #: Warnings about the configuration, for operators.
        self.warnings: list[str] = []
        #: Access control by keys; None before there are any: then everybody may do anything.
        self._keys: KeyAccessControl | None = None
        self.links = LinkTable(self._link_ended, self._link_changed)
        self.handshake = Handshake(settings, self.links, boot, new_token)
        self.liveness = Liveness(settings, self.links)
        self.effects = Effects(self.links.dirty, RelayedConnections(self.links.counters))
        self.directory = Directory(settings)
        self.turns = Turns()
        self.drops = Drops()
        self.memory = Memory(settings, self.links, self.refused, self._act, now)
        self.faults = FaultReporter(self.refused, self._act, now)
        self.queries = Queries(self._view, self.turns)
        self.kinds = KindTable()
        errors = ProtocolErrors(self.refused, self.turns, self.kinds.answered, self._act)
        intake = Intake(
            settings, self.links, self.handshake, self.kinds, self.turns, self.memory, errors, self.faults, self._act,
            self._dialed_message, self._relay,
        )  # fmt: skip
        # Not methods of this class: each ZeroMQ message would cost one call more.
        self.receive, self.run_next_turn = intake.receive, intake.run_next_turn
        context = NodeContext(
            settings, self.links, self.directory, self.drops, self.turns, self.faults, boot, now, self._act,
            errors.of_message, intake.handle_held, new_token, self.handshake.new_handle, sink, self.relayed,
            self.receive,
        )  # fmt: skip
        self.nodes = [make(context) for make in (*self.node_types, *plug_ins)]
        self._register_kinds()
        self.views = views_of(self)
        self._wire_links()

    def _register_kinds(self) -> None:
        kinds = self.kinds
        kinds.handlers[Kind.QUERY] = self._query
        kinds.answered.add(Kind.QUERY)
        kinds.controls["control.kick"] = partial(kick, self.links, self._act)
        for node in self.nodes:
            node.meet(self.nodes)
            kinds.register(node)
        self.handshake.greeters = kinds.greeters

    def _wire_links(self) -> None:
        links = self.links
        links.handlers = self.kinds.handlers
        links.on_taken = self._told("link_taken")
        links.on_room = self._told("link_has_room")
        links.on_fault = self.faults.report
        links.on_left = lambda route: self._act(LinkDetached(route))

    def _told(self, event: str) -> Callable[..., None]:
        """Tells the node types of ``event``, those whom it concerns."""
        concerned = [getattr(node, event) for node in self.nodes if _overrides(node, event)]
        if len(concerned) == 1:
            return concerned[0]  # type: ignore[no-any-return]

        def tell(now: float, *args: Any) -> None:
            for each in concerned:
                self.faults.guarded(now, each, *args)

        return tell

    @property
    def roundrobin(self) -> RoundRobin:
        """The node type of calls and casts."""
        return self._node(RoundRobin)

    @property
    def dispatch(self) -> Dispatch:
        """The dispatcher of calls and casts."""
        return self.roundrobin.dispatch

    @property
    def pubsub(self) -> PubSub:
        """The node type of events."""
        return self._node(PubSub)

    @property
    def mesh(self) -> Mesh:
        """The node type of the links to other routers."""
        return self._node(Mesh)

    def _node(self, type_: type[N]) -> N:
        return next(node for node in self.nodes if isinstance(node, type_))

    @property
    def actions(self) -> list[Action]:
        """The actions to perform once everything is sent."""
        return self.effects.actions

    @property
    def relayed(self) -> RelayedConnections:
        """The connections that other routers carry."""
        return self.effects.relayed

    @property
    def dirty(self) -> list[Session]:
        """The links that have something to send."""
        return self.links.dirty

    # --- inputs ------------------------------------------------------------------------------

    def set_authorized_keys(self, now: float, keys: Iterable[Key], secrets: Sequence[bytes] = (b"",)) -> None:
        """Accept only connections with these keys from now on; links of others end at once.

        Args:
            secrets: used at the first call: known to all lives of this router and of those of its mesh, and to nobody
                else. The first one signs; what any of them has signed is believed.
        """
        if self._keys is None:
            checks = RightChecks(self.refused, self._act, self.turns, self.kinds.handlers, self.kinds.rights)
            self._keys = KeyAccessControl(self.settings, self.links, self.refused, self._act, checks, secrets)
            self.links.access = self._keys
        self._keys.set_authorized_keys(now, keys)

    def make_views(self, now: float) -> int:
        """Take a step of some 0.1 ms towards the views that were asked for. Never raises.

        Returns:
            Bytes of the view that was sent by it.
        """
        try:
            return self.queries.step(now)
        except Exception:
            self.faults.report(now)
            return 0

    def lost(self, now: float, route: bytes, reason: str = "") -> None:
        """The connection ``route`` is gone, or could not be had. Never raises.

        Args:
            reason: why, as far as it is known; of one that was asked for with ``Dial``.
        """
        self.faults.guarded(now, self.links.lost, route)
        for node in self.nodes:
            self.faults.guarded(now, node.connection_lost, route, reason)

    def connected(self, now: float, route: bytes) -> None:
        """The connection ``route`` stands, which was asked for with ``Dial``. Never raises."""
        for node in self.nodes:
            self.faults.guarded(now, node.connected, route)

    def _dialed_message(self, now: float, route: bytes, message: bytes) -> None:
        for node in self.nodes:
            self.faults.guarded(now, node.dialed_message, route, message)

    def _relay(self, now: float, link: Link, messages: Sequence[bytes]) -> None:
        for node in self.nodes:
            node.relay(now, link, messages)

    def tick(self, now: float) -> None:
        """Do what is due. Never raises: a failing step does not prevent the others."""
        for node in self.nodes:
            self.faults.guarded(now, node.tick)
        # Detect silent links first: they must not get any of what follows.
        self.faults.guarded(now, self._tick_links)
        for node in self.nodes:
            self.turns.spent = 0
            self.faults.guarded(now, node.release)
        if self.memory.is_due(now):
            self.faults.guarded(now, self.memory.enforce)

    def _tick_links(self, now: float) -> None:
        for link in self.liveness.tick(now):
            for node in self.nodes:
                self.faults.guarded(now, node.link_lapsed, link)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        due = self.liveness.next_deadline()
        for node in self.nodes:
            if (deadline := node.next_deadline()) < due:
                due = deadline
        if (count_at := self.memory.next_deadline()) is not None:
            due = min(due, count_at)
        return due

    def begin_drain(self, now: float) -> None:
        """Begin a drain, which :mod:`rpcmq.server.drain` conducts: accept nothing new, notify everyone."""
        for node in self.nodes:
            node.begin_drain(now)
        self.links.begin_drain()

    def refuse_nested_work(self) -> None:
        """Return requests made by running handlers, too: the drain waits for these no more."""
        for node in self.nodes:
            node.refuse_nested_work()

    def finish_drain(self, now: float) -> None:
        """Finish a drain: fail the calls still running, and send each process its final receive count.

        Nothing may be received after this.
        """
        for node in self.nodes:
            node.finish_drain(now)
        self.links.finish_drain()

    def close(self, now: float) -> None:
        """Close the dispatch log, recording unfinished messages."""
        for node in self.nodes:
            node.close(now)

    def _act(self, action: Action) -> None:
        if not self.effects.relayed.takes(action):
            self.actions.append(action)

    @property
    def in_flight(self) -> int:
        """Number of calls that have not ended."""
        return self.dispatch.requests.calls_in_flight

    # --- links -------------------------------------------------------------------------------

    def _link_ended(self, now: float, link: Link, reason: str) -> None:
        for node in self.nodes:
            self.faults.guarded(now, node.link_ended, link, reason)
        self.queries.forget(link)
        self.actions.append(LogEvent("link ended", f"{link.identity} ({link.queue_type}): {reason}", link.identity))

    def _link_changed(self, now: float, link: Link) -> None:
        self.queries.connected(link)
        if link.state not in (LinkState.ANSWERING, LinkState.QUIET):
            text = f"{link.identity} ({link.queue_type}) is {link.state.value}"
            self.actions.append(LogEvent(f"link {link.state.value}", text, link.identity))
        for node in self.nodes:
            self.faults.guarded(now, node.link_changed, link)

    # --- views and controls ------------------------------------------------------------------

    def _view(self, now: float, what: str) -> View:
        return view(self, now, what)

    def _query(self, now: float, link: Link, message: bytes) -> None:
        what = QueryBody.of(message).what
        change = self.kinds.controls.get(what)
        if change is None:
            if what.startswith(_CONTROL):
                known = ", ".join(
                    name.removeprefix(_CONTROL) for name in self.kinds.controls if name.startswith(_CONTROL)
                )
                name = shorten(what.removeprefix(_CONTROL))
                raise ProtocolError(f"control {name!r} is unknown; known: {known}", "query")
            self.queries.ask(now, link, message[KEY], what)
            return
        answer = change(now, link, message)
        self.turns.spend(TURN_STEPS + 1)
        link.send(answer.message(key=message[KEY]))


def _overrides(node: NodeType, name: str) -> bool:
    return getattr(type(node), name) is not getattr(NodeType, name)
