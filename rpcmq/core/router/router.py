"""The router engine: frames in, frames and rare actions out; no sockets, no clock.

The shell calls :meth:`Router.receive` with what came on a connection, :meth:`Router.lost` when a
connection is gone and :meth:`Router.tick` at :meth:`Router.next_deadline`. After each wake-up it performs
``effects``: what must be durable, what ``dirty`` links have in their outboxes, one batch a link, and actions. While
``turns.is_anybody_waiting`` it calls :meth:`Router.run_next_turn` in each further wake-up, and while
``queries.is_anybody_waiting`` it calls :meth:`Router.make_views` now and then, for a small part of its time.
``now`` is monotonic seconds, never decreasing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import length_hint
from typing import Any, TypeVar

from rpcmq.core.common.drops import Drops
from rpcmq.core.common.session import Session
from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Action, Answer, Disconnect, LinkDetached, LogEvent
from rpcmq.core.router.controls import kick
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.effects import Effects
from rpcmq.core.router.faults import FaultReporter
from rpcmq.core.router.handshake import Handshake
from rpcmq.core.router.key_access import KeyAccessControl
from rpcmq.core.router.link import Handler, Link
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.liveness import Liveness
from rpcmq.core.router.memory import Memory
from rpcmq.core.router.node_type import Control, NodeContext, NodeType
from rpcmq.core.router.peer2peer.node import Peer2Peer
from rpcmq.core.router.pubsub.node import PubSub
from rpcmq.core.router.queries import Queries
from rpcmq.core.router.right_checks import RightChecks
from rpcmq.core.router.rights import Key
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.turns import ERROR_STEPS, TURN_STEPS, Turns
from rpcmq.core.router.view_rows import View
from rpcmq.core.router.views import view, views_of
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import (
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    SESSION_KINDS,
    Flag,
    Kind,
    parse,
    payload_of,
    size_of,
    split,
)
from rpcmq.wire.bodies import ErrorBody, QueryBody, RefusedBody

__all__ = ["NODE_TYPES", "Router"]

N = TypeVar("N", bound=NodeType)

_DETACHED = Flag.DETACHED
#: Most bytes that ZMTP and CURVE add to a frame.
_FRAME_BYTES = 42
#: Kinds whose ProtocolError is answered with an ERROR for that very message.
_ANSWERED = (
    Kind.REQUEST, Kind.CAST, Kind.REGISTER, Kind.DECLARE, Kind.SUBSCRIBE, Kind.PUBLISH, Kind.INTRODUCE, Kind.QUERY,
)  # fmt: skip


def _not_for_a_router(now: float, link: Link, message: bytes) -> None:
    raise ProtocolError(f"kind {message[KIND_AT]:#04x} is unknown or not for a router", "kind")


#: The capabilities of a router. Their order is that in which they are told of links.
NODE_TYPES: tuple[Callable[[NodeContext], NodeType], ...] = (RoundRobin, PubSub, Peer2Peer)


def _overrides(node: NodeType, name: str) -> bool:
    return getattr(type(node), name) is not getattr(NodeType, name)


class Router:
    """A complete router except for its sockets.

    Args:
        settings: bounds and times; may be changed while it runs.
        boot: wall-clock milliseconds at start; identifies this incarnation of the router.
        now: monotonic seconds.
        new_token: makes an unguessable string.
        sink: where the dispatch log goes; None: there is none.
    """

    #: The node types that it has.
    node_types = NODE_TYPES

    def __init__(
        self, settings: Settings, boot: int, now: float, new_token: Callable[[], str], sink: Sink | None = None
    ) -> None:
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
        #: The work for the shell, in its order.
        self.effects = Effects(self.links.dirty)
        self.directory = Directory(settings)
        self.turns = Turns()
        self.drops = Drops()
        self.memory = Memory(settings, self.links, now)
        self.faults = FaultReporter(self.refused, self._act, now)
        self.queries = Queries(self._view, self.turns)
        context = NodeContext(
            settings, self.links, self.directory, self.drops, self.turns, self.faults, now, self._act,
            self._protocol_error_of, self._handle_held, new_token, sink, self.effects.durable.append,
        )  # fmt: skip
        self.nodes = [make(context) for make in self.node_types]
        self._register_kinds()
        self.views = views_of(self)
        self._wire_links()

    def _register_kinds(self) -> None:
        self._handlers: list[Handler] = [_not_for_a_router] * 256
        self._refusals: dict[Kind, Handler] = {}
        self._controls: dict[str, Control] = {"control.kick": partial(kick, self.links, self._act)}
        self._handlers[Kind.QUERY] = self._query
        for node in self.nodes:
            for kind, handler in node.kinds.items():
                assert self._handlers[kind] is _not_for_a_router, f"two node types take {kind!r}"
                self._handlers[kind] = handler
            self._refusals |= node.refusals
            self._controls |= node.controls

    def _wire_links(self) -> None:
        links = self.links
        links.handlers = self._handlers
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
                self._guarded(now, each, *args)

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

    def _node(self, type_: type[N]) -> N:
        return next(node for node in self.nodes if isinstance(node, type_))

    @property
    def actions(self) -> list[Action]:
        """The actions to perform once everything is sent."""
        return self.effects.actions

    @property
    def dirty(self) -> list[Session]:
        """The links that have something to send."""
        return self.links.dirty

    # --- inputs ------------------------------------------------------------------------------

    def set_authorized_keys(self, now: float, keys: Iterable[Key], secret: bytes = b"") -> None:
        """Accept only connections with these keys from now on; links of others end at once.

        Args:
            secret: used at the first call: known to all incarnations of this router, and to nobody else.
        """
        if self._keys is None:
            checks = RightChecks(self.refused, self._act, self.turns, self._handlers)
            self._keys = KeyAccessControl(self.settings, self.links, self.refused, self._act, checks, secret)
            self.links.access = self._keys
        self._keys.set_authorized_keys(now, keys)

    def receive(
        self, now: float, route: bytes, batch: bytes, payloads: Sequence[bytes | memoryview] = (), user: str = ""
    ) -> None:
        """Handle one ZeroMQ message from the connection ``route``. Never raises on bad input.

        Args:
            user: the public key that the connection was authenticated with; looked at for HELLO only.
        """
        link = self.links.routes.get(route)
        if link is not None:
            link.read_bytes += len(batch) + _FRAME_BYTES
            if payloads:
                link.read_bytes += sum(map(len, payloads)) + _FRAME_BYTES * len(payloads)
        try:
            messages = split(batch, payloads)
            if link is None or messages[0][KIND_AT] < SESSION_KINDS:
                self._about_link(now, route, link, messages, user)
                return
            link.heard = now
            if not link.is_responsive:
                self.links.heard_again(now, link)
            if payloads and max(map(len, payloads)) > self.settings.message_max_bytes:
                messages = self._without_too_large(now, link, messages)
            if link.inbox:
                self._defer(now, link, messages)
                return
            size_bytes = len(batch)
            if payloads:
                size_bytes += sum(map(len, payloads))
            if self.memory.received(size_bytes):
                self._count_memory(now)
                if link.route is None:
                    return
            handled = self._handle(now, link, messages, self._handlers_of(link))
            if handled < len(messages):
                self.turns.defer(link, messages[handled:])
                size_bytes = sum(map(size_of, messages[:handled]))
            self.turns.spent += handled
            link.note_received(handled, size_bytes)
        except ProtocolError as error:
            self._protocol_error(now, route, link, None, error)
        except Exception:
            self._disconnect_after_fault(now, route)

    def _handle(self, now: float, link: Link, messages: Sequence[bytes], handlers: list[Handler]) -> int:
        """Handle ``messages`` until the turn is over; return how many were handled, at least one."""
        turns, steps = self.turns, TURN_STEPS
        rest = iter(messages)
        for message in rest:
            try:
                handlers[message[KIND_AT]](now, link, message)
            except ProtocolError as error:
                self._protocol_error(now, link.route or b"", link, message, error)
            except Exception:
                # An internal error discards this message only: the batch and its counts go on.
                self.faults.report(now, link.identity, message[KEY])
            if turns.spent > steps:
                # Counted here because counting in the loop would cost each message.
                return len(messages) - length_hint(rest)
        return len(messages)

    def _handlers_of(self, link: Link) -> list[Handler]:
        """Return the handlers for ``link``: refusing ones while too much is held for it."""
        if not link.overdrawn and link.usage.size_bytes <= self.settings.link_max_bytes:
            return link.handlers
        handlers = link.handlers[:]
        for kind, refuse in self._refusals.items():
            handlers[kind] = refuse
        return handlers

    def _handle_held(self, now: float, link: Link, messages: Sequence[bytes]) -> int:
        return self._handle(now, link, messages, self._handlers)

    def _count_memory(self, now: float) -> None:
        for link, why in self.memory.count(now):
            route = link.route
            self.refused["out of memory"] += 1
            self.links.end_safely(now, link, why)
            if route is not None:
                refusal = RefusedBody(reason="overloaded", text=shorten(why)).message()
                self.actions.extend((Answer(route, refusal), Disconnect(route)))

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

    def run_next_turn(self, now: float) -> None:
        """Run the next turn of the link that has waited longest, then start a turn for new input. Never raises."""
        turns = self.turns
        if turns.waiting and (link := turns.next_link()) is not None:
            self._guarded(now, self._take_turn, link)
        turns.spent = 0

    def _take_turn(self, now: float, link: Link) -> None:
        turns = self.turns
        handled: list[bytes] = []
        try:
            while link.inbox and not turns.is_over:
                message = turns.take(link)
                handled.append(message)
                self._handle(now, link, (message,), self._handlers_of(link))
        finally:
            turns.end(link, handled)
        if link.leaves and not link.inbox:
            self.links.end(now, link, "said goodbye")

    def _defer(self, now: float, link: Link, messages: list[bytes]) -> None:
        """Queue ``messages`` behind messages that still wait for their turn."""
        self.turns.defer(link, messages)
        self.turns.spent += len(messages)
        most = self.settings.inbox_max_bytes
        if link.inbox_bytes > most and (route := link.route) is not None:
            text = f"{link.inbox_bytes} received bytes wait for their turn; link.inbox_max_bytes = {most}"
            self.links.end(now, link, text)
            self.actions.append(Answer(route, RefusedBody(reason="protocol", text=text).message()))
            self.actions.append(Disconnect(route))

    def _without_too_large(self, now: float, link: Link, messages: list[bytes]) -> list[bytes]:
        """Refuse messages whose payload exceeds the limit; return the others."""
        most = self.settings.message_max_bytes
        fitting: list[bytes] = []
        for message in messages:
            if message[LOW_FLAGS_AT] & _DETACHED and (size := len(payload_of(message))) > most:
                text = f"payload of {size} bytes exceeds message.max_bytes = {most}"
                self._protocol_error(now, link.route or b"", link, message, ProtocolError(text, "size"))
            else:
                fitting.append(message)
        link.note_received(len(messages) - len(fitting), 0)
        return fitting

    def _disconnect_after_fault(self, now: float, route: bytes) -> None:
        """End the link and connection ``route``: handling its input raised an exception."""
        link = self.links.routes.get(route)
        self.faults.report(now, link.identity if link is not None else "")
        text = "internal error while handling this connection's messages; see the router's log"
        self.actions.append(Answer(route, RefusedBody(reason="protocol", text=text).message()))
        self.actions.append(Disconnect(route))
        if link is None:
            return
        try:
            self.links.end(now, link, "internal error")
        except Exception:
            self.faults.report(now, link.identity)

    def lost(self, now: float, route: bytes) -> None:
        """The connection ``route`` is gone. Never raises."""
        self._guarded(now, self.links.lost, route)

    def tick(self, now: float) -> None:
        """Do what is due. Never raises: a failing step does not prevent the others."""
        for node in self.nodes:
            self._guarded(now, node.tick)
        # Detect silent links first: they must not get any of what follows.
        self._guarded(now, self._tick_links)
        for node in self.nodes:
            self.turns.spent = 0
            self._guarded(now, node.release)
        if self.memory.is_due(now):
            self._guarded(now, self._count_memory)

    def _guarded(self, now: float, step: Callable[..., None], *args: Any) -> None:
        try:
            step(now, *args)
        except Exception:
            self.faults.report(now)

    def _tick_links(self, now: float) -> None:
        for link in self.liveness.tick(now):
            for node in self.nodes:
                self._guarded(now, node.link_lapsed, link)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        due = self.liveness.next_deadline()
        for node in self.nodes:
            if (deadline := node.next_deadline()) < due:
                due = deadline
        if (count_at := self.memory.next_deadline()) is not None:
            due = min(due, count_at)
        return due

    def drain(self, now: float) -> None:
        """Begin a drain: accept nothing new, notify everyone, let running work finish."""
        for node in self.nodes:
            node.drain(now)
        self.links.drain()

    def end_drain(self) -> None:
        """Return even requests made by running handlers: the drain has timed out."""
        for node in self.nodes:
            node.end_drain()

    def dismiss(self, now: float) -> None:
        """Finish a drain: fail the calls still running, and send each process its final receive count.

        Nothing may be received after this.
        """
        for node in self.nodes:
            node.dismiss(now)
        self.links.dismiss()

    def close(self, now: float) -> None:
        """Close the dispatch log, recording unfinished messages."""
        for node in self.nodes:
            node.close(now)

    def _act(self, action: Action) -> None:
        self.actions.append(action)

    @property
    def in_flight(self) -> int:
        """Number of calls that have not ended."""
        return self.dispatch.requests.calls_in_flight

    # --- links -------------------------------------------------------------------------------

    def _about_link(self, now: float, route: bytes, link: Link | None, messages: list[bytes], user: str) -> None:
        message = messages[0]
        if len(messages) > 1 and link is not None:
            self._protocol_error(
                now, route, link, None, ProtocolError("control messages must be alone in a batch", "batch")
            )
            return
        try:
            parse(message)
            if message[KIND_AT] == Kind.HELLO:
                refusal = self.handshake.hello(now, route, message, user)
                if refusal is not None:
                    self.actions.append(Answer(route, refusal))
            elif link is None:
                self.actions.append(Answer(route, self.handshake.refuse_without_hello()))
            else:
                link.heard = now
                if not link.is_responsive:
                    self.links.heard_again(now, link)
                if link.inbox and message[KIND_AT] == Kind.GOODBYE:
                    link.leaves = True
                else:
                    self.links.control_message(now, link, message)
        except ProtocolError as error:
            self._protocol_error(now, route, link, None, error)

    def _protocol_error(
        self, now: float, route: bytes, link: Link | None, message: bytes | None, error: ProtocolError
    ) -> None:
        """Count and attribute a peer's protocol error, and report it to the peer."""
        self.refused[error.reason] += 1
        self.turns.spent += ERROR_STEPS
        text = shorten(str(error))
        refusal = RefusedBody(reason="protocol", text=text).message()
        if link is None:
            self.actions.append(Answer(route, refusal))
            return
        link.counters[f"refused {error.reason}"] += 1
        self.actions.append(LogEvent("offence", f"{link.identity}: {text}", link.identity))
        if message is None:
            link.send_last(refusal)
        elif message[KIND_AT] in _ANSWERED:
            body = ErrorBody(outcome=Outcome.PROTOCOL, text=text, details={"reason": error.reason})
            link.send(body.message(key=message[KEY]))

    def _protocol_error_of(self, now: float, link: Link, message: bytes, error: ProtocolError) -> None:
        self._protocol_error(now, link.route or b"", link, message, error)

    def _link_ended(self, now: float, link: Link, reason: str) -> None:
        for node in self.nodes:
            self._guarded(now, node.link_ended, link, reason)
        self.queries.forget(link)
        self.actions.append(LogEvent("link ended", f"{link.identity} ({link.queue_type}): {reason}", link.identity))

    def _link_changed(self, now: float, link: Link) -> None:
        self.queries.connected(link)
        if link.state not in (LinkState.ANSWERING, LinkState.QUIET):
            text = f"{link.identity} ({link.queue_type}) is {link.state.value}"
            self.actions.append(LogEvent(f"link {link.state.value}", text, link.identity))
        for node in self.nodes:
            self._guarded(now, node.link_changed, link)

    # --- views and controls ------------------------------------------------------------------

    def _view(self, now: float, what: str) -> View:
        return view(self, now, what)

    def _query(self, now: float, link: Link, message: bytes) -> None:
        what = QueryBody.of(message).what
        change = self._controls.get(what)
        if change is None:
            self.queries.ask(now, link, message[KEY], what)
            return
        answer = change(now, link, message)
        self.turns.spend(TURN_STEPS + 1)
        link.send(answer.message(key=message[KEY]))
