"""The intake of a router: each ZeroMQ message is split, bounded, and handled message by message, in fair turns.

Whatever a peer sends, and whatever a handler raises, costs that peer only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import length_hint

from rpcmq.core.router.actions import DIALED, Action, Answer
from rpcmq.core.router.faults import FaultReporter
from rpcmq.core.router.handshake import Handshake
from rpcmq.core.router.kind_table import KindTable
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.memory import Memory
from rpcmq.core.router.model import Handler, Link
from rpcmq.core.router.protocol_errors import ProtocolErrors, refuse_connection
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.turns import TURN_STEPS, Turns
from rpcmq.errors import ProtocolError
from rpcmq.wire import FIRST_SESSION_KIND, KEY, KIND_AT, LOW_FLAGS_AT, Flag, Kind, parse, payload_of, size_of, split
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["Intake"]

_DETACHED = Flag.DETACHED
#: Most bytes that ZMTP and CURVE add to a frame.
_FRAME_BYTES = 42


class Intake:
    """Handles what comes on connections.

    Args:
        kinds: the handlers.
        errors: told of messages that break the protocol.
        act: takes answers to connections without a link.
        on_dialed: takes messages of connections that were asked for with ``Dial``, and which carry no link.
        on_relay: takes batches that begin with a RELAY, of links of routers.
    """

    # Measured: the path of each message is 1 % slower without.
    __slots__ = (
        "_act", "_errors", "_faults", "_handshake", "_kinds", "_links", "_memory", "_on_dialed", "_on_relay",
        "_settings", "_turns",
    )  # fmt: skip

    def __init__(
        self,
        settings: Settings,
        links: LinkTable,
        handshake: Handshake,
        kinds: KindTable,
        turns: Turns,
        memory: Memory,
        errors: ProtocolErrors,
        faults: FaultReporter,
        act: Callable[[Action], None],
        on_dialed: Callable[[float, bytes, bytes], None],
        on_relay: Callable[[float, Link, Sequence[bytes]], None],
    ) -> None:
        self._settings = settings
        self._links = links
        self._handshake = handshake
        self._kinds = kinds
        self._turns = turns
        self._memory = memory
        self._errors = errors
        self._faults = faults
        self._act = act
        self._on_dialed = on_dialed
        self._on_relay = on_relay

    def receive(
        self, now: float, route: bytes, batch: bytes, payloads: Sequence[bytes | memoryview] = (), user: str = ""
    ) -> None:
        """Handle one ZeroMQ message from the connection ``route``. Never raises on bad input.

        Args:
            user: the public key that the connection was authenticated with; looked at for HELLO only.
        """
        link = self._links.routes.get(route)
        if link is not None:
            link.read_bytes += len(batch) + _FRAME_BYTES
            if payloads:
                link.read_bytes += sum(map(len, payloads)) + _FRAME_BYTES * len(payloads)
        try:
            messages = split(batch, payloads)
            if link is None or messages[0][KIND_AT] < FIRST_SESSION_KIND:
                self._about_link(now, route, link, messages, user)
                return
            link.heard = now
            if not link.is_responsive:
                self._links.heard_again(now, link)
            if payloads and max(map(len, payloads)) > self._settings.message_max_bytes:
                messages = self._without_too_large(now, link, messages)
            if link.inbox:
                self._defer(now, link, messages)
                return
            size_bytes = len(batch)
            if payloads:
                size_bytes += sum(map(len, payloads))
            if self._memory.received(size_bytes):
                self._memory.enforce(now)
                if link.route is None:
                    return
            handled = self._handle(now, link, messages, self._handlers_of(link))
            if handled < len(messages):
                self._turns.defer(link, messages[handled:])
                size_bytes = sum(map(size_of, messages[:handled]))
            self._turns.spent += handled
            link.count_received(handled, size_bytes)
        except ProtocolError as error:
            self._errors.of_connection(route, link, error)
        except Exception:
            self._disconnect_after_fault(now, route)

    def _handle(self, now: float, link: Link, messages: Sequence[bytes], handlers: list[Handler]) -> int:
        """Handle ``messages`` until the turn is over; return how many were handled, at least one."""
        turns, steps = self._turns, TURN_STEPS
        rest = iter(messages)
        for message in rest:
            try:
                handlers[message[KIND_AT]](now, link, message)
            except ProtocolError as error:
                self._errors.of_message(now, link, message, error)
            except Exception:
                # An internal error discards this message only: the batch and its counts go on.
                self._faults.report(now, link.identity, message[KEY])
            if turns.spent > steps:
                # Counted here because counting in the loop would cost each message.
                return len(messages) - length_hint(rest)
        return len(messages)

    def _handlers_of(self, link: Link) -> list[Handler]:
        """Return the handlers for ``link``: refusing ones while too much is held for it."""
        if not link.overdrawn and link.usage.size_bytes <= self._settings.link_max_bytes:
            return link.handlers
        if link.queue_type == MESH_TYPE:
            return link.handlers  # it is told that everybody is busy
        handlers = link.handlers[:]
        for kind, refuse in self._kinds.refusals.items():
            handlers[kind] = refuse
        return handlers

    def handle_held(self, now: float, link: Link, messages: Sequence[bytes]) -> int:
        """Handle messages that were held as if they came now; return how many."""
        return self._handle(now, link, messages, self._kinds.handlers)

    def run_next_turn(self, now: float) -> None:
        """Run the next turn of the link that has waited longest, then start a turn for new input. Never raises."""
        turns = self._turns
        if turns.waiting and (link := turns.next_link()) is not None:
            try:
                self._take_turn(now, link)
            except Exception:
                self._faults.report(now)
        turns.spent = 0

    def _take_turn(self, now: float, link: Link) -> None:
        turns = self._turns
        handled: list[bytes] = []
        try:
            while link.inbox and not turns.is_over:
                message = turns.take(link)
                handled.append(message)
                self._handle(now, link, (message,), self._handlers_of(link))
        finally:
            turns.end(link, handled)
        if link.leaves and not link.inbox:
            self._links.end(now, link, "said goodbye")

    def _defer(self, now: float, link: Link, messages: list[bytes]) -> None:
        """Queue ``messages`` behind messages that still wait for their turn."""
        self._turns.defer(link, messages)
        self._turns.spent += len(messages)
        most = self._settings.inbox_max_bytes
        if link.inbox_bytes > most and (route := link.route) is not None:
            text = f"{link.inbox_bytes} received bytes wait for their turn; link.inbox_max_bytes = {most}"
            self._links.end(now, link, text)
            refuse_connection(self._act, route, "protocol", text)

    def _without_too_large(self, now: float, link: Link, messages: list[bytes]) -> list[bytes]:
        """Refuse messages whose payload exceeds the limit; return the others."""
        most = self._settings.message_max_bytes
        fitting: list[bytes] = []
        for message in messages:
            if message[LOW_FLAGS_AT] & _DETACHED and (size := len(payload_of(message))) > most:
                text = f"payload of {size} bytes exceeds message.max_bytes = {most}"
                self._errors.of_message(now, link, message, ProtocolError(text, "size"))
            else:
                fitting.append(message)
        link.count_received(len(messages) - len(fitting), 0)
        return fitting

    def _disconnect_after_fault(self, now: float, route: bytes) -> None:
        """End the link and connection ``route``: handling its input raised an exception."""
        link = self._links.routes.get(route)
        self._faults.report(now, link.identity if link is not None else "")
        text = "internal error while handling this connection's messages; see the router's log"
        refuse_connection(self._act, route, "protocol", text)
        if link is None:
            return
        try:
            self._links.end(now, link, "internal error")
        except Exception:
            self._faults.report(now, link.identity)

    # --- messages about the link itself ------------------------------------------------------

    def _about_link(self, now: float, route: bytes, link: Link | None, messages: list[bytes], user: str) -> None:
        message = messages[0]
        if message[KIND_AT] == Kind.RELAY and link is not None and link.queue_type == MESH_TYPE:
            self._relay(now, route, link, messages)
            return
        if len(messages) > 1 and link is not None:
            error = ProtocolError("control messages must be alone in a batch", "batch")
            self._errors.of_connection(route, link, error)
            return
        try:
            parse(message)
            if route.startswith(DIALED) and (link is None or message[KIND_AT] == Kind.HELLO):
                self._on_dialed(now, route, message)
            elif message[KIND_AT] == Kind.HELLO:
                refusal = self._handshake.hello(now, route, message, user)
                if refusal is not None:
                    self._act(Answer(route, refusal))
            elif link is None:
                self._act(Answer(route, self._handshake.refuse_without_hello()))
            else:
                link.heard = now
                if not link.is_responsive:
                    self._links.heard_again(now, link)
                if link.inbox and message[KIND_AT] == Kind.GOODBYE:
                    link.leaves = True
                else:
                    self._links.control_message(now, link, message)
        except ProtocolError as error:
            self._errors.of_connection(route, link, error)

    def _relay(self, now: float, route: bytes, link: Link, messages: list[bytes]) -> None:
        link.heard = now
        if not link.is_responsive:
            self._links.heard_again(now, link)
        self._turns.spent += len(messages)
        try:
            parse(messages[0])
            self._on_relay(now, link, messages)
        except ProtocolError as error:
            # It says nothing about what the neighbour itself has sent.
            self._errors.of_message(now, link, messages[0], error)
