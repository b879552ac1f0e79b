"""Peer2Peer: calls straight from process to process, after the router has introduced the two.

The caller connects to the target's peer socket and shows the ticket that the router gave to both. A
direct link has no session: what was in flight when it breaks has ended, with LinkLost, and the next
call asks the router for an introduction again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from rpcmq.core.common.text import shorten
from rpcmq.core.process.call import Call
from rpcmq.core.process.task import Registration, registration_for
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.tickets import Tickets
from rpcmq.errors import LinkLost, Outcome, ProtocolError, error_for
from rpcmq.payload.format import Format
from rpcmq.wire import (
    FIRST_KIND,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    ORIGIN,
    Address,
    Flag,
    Kind,
    address_of,
    origin_of,
    pack,
    parse,
    payload_of,
    size_of,
    split,
)
from rpcmq.wire.bodies import DirectHelloBody, DirectWelcomeBody, ErrorBody, RefusedBody

__all__ = ["DirectLink", "DirectLinkTable"]

#: Most direct calls waiting beyond a registration's credit.
MAX_WAITING = 10_000
#: Most bytes of their payloads.
MAX_WAITING_BYTES = 64 << 20
#: Longest wait of a HELLO for its sender's introduction (seconds): the two race.
EARLY_SECONDS = 0.5
#: Most HELLOs that wait, and bytes of each.
MAX_EARLY = 100
_MAX_EARLY_BYTES = 2048


_HELLO = bytes([Kind.HELLO])


class DirectLink:
    """A direct connection to another process, in either direction."""

    def __init__(self, dirty: list[DirectLink], route: bytes, identity: str, key: str = "") -> None:
        self._dirty = dirty
        self._sequence = 0
        self.route = route
        self.identity = identity
        #: Its public key; empty without CURVE.
        self.key = key
        self.outbox: list[bytes] = []
        self.origin = b""
        self.welcomed = False
        self.accepts = Format.JSON.bit
        #: Reason why it cannot be used; empty while it can.
        self.closed = ""
        #: Whether the peer made this link, and for which topic.
        self.is_inbound = False
        self.topic = ""
        self.calls: dict[bytes, Call] = {}
        #: Called when it is welcomed or closed.
        self.on_change: Callable[[], object] = lambda: None

    def send(self, message: bytes) -> None:
        """Queue ``message``."""
        if not self.outbox:
            self._dirty.append(self)
        self.outbox.append(message)

    def next_key(self) -> bytes:
        """A key for a new message on this link."""
        self._sequence += 1
        return self.origin + self._sequence.to_bytes(8)


class DirectLinkTable:
    """The direct links of a process. ``dirty`` lists those with something to send."""

    def __init__(self, identity: str, tasks: TaskTable) -> None:
        self._identity = identity
        self._tasks = tasks
        self._tickets = Tickets()
        #: HELLOs that came before the introductions of their senders, by ticket.
        self._early: dict[str, _EarlyHello] = {}
        self._handles = 0
        #: Most inbound links at a time.
        self.max_inbound = 4096
        self.links: dict[bytes, DirectLink] = {}
        self.dirty: list[DirectLink] = []
        #: Calls whose waiters are to be woken.
        self.changed: list[Call] = []
        self.refused: Counter[str] = Counter()
        #: Called with an exception that a message has led to; it was not used.
        self.on_error: Callable[[Exception], None] = lambda error: None
        #: Called with the connection of a peer that was admitted.
        self.on_admitted: Callable[[bytes], None] = lambda route: None

    def announce(self, now: float, ticket: str, identity: str, key: str = "", topic: str = "", via: str = "") -> None:
        """Expect a caller of ``topic``, who will connect with the public ``key``.

        Args:
            via: the name of the router that has introduced it; empty: this process's own.
        """
        if not self._tickets.add(now, ticket, identity, key, topic, via):
            self.refused["tickets"] += 1
            return
        early = self._early.pop(ticket, None)
        if early is not None:
            self._admit(now, early.route, DirectHelloBody.of(early.message), early.user)

    def refuse_unannounced(self, now: float) -> None:
        """Refuse the peers that nobody has introduced in time. To be called about once a second."""
        for ticket, early in list(self._early.items()):
            if now >= early.until:
                del self._early[ticket]
                self._admit(now, early.route, DirectHelloBody.of(early.message), early.user)

    def is_announced(self, now: float, key: str) -> bool:
        """Return whether a caller with the public ``key`` was announced and has not connected yet."""
        return self._tickets.is_expected(now, key)

    def revoked(self, key: str) -> list[DirectLink]:
        """Forget the tickets of ``key``, which the router has revoked or restricted.

        Returns:
            The links to end.
        """
        self._tickets.forget_key(key)
        return [link for link in self.links.values() if link.key == key]

    def connect(self, route: bytes, identity: str, ticket: str, key: str = "") -> DirectLink:
        """Begin a link to ``identity`` over the new connection ``route``."""
        link = self.links[route] = DirectLink(self.dirty, route, identity, key)
        link.send(DirectHelloBody(identity=self._identity, ticket=ticket).message())
        return link

    def receive(
        self, now: float, route: bytes, batch: bytes, payloads: tuple[bytes | memoryview, ...] = (), user: str = ""
    ) -> int:
        """Handle a ZeroMQ message from ``route``. Never raises on bad input.

        Args:
            user: the public key that the connection was authenticated with; looked at for HELLO only.

        Returns:
            How many messages were looked at.
        """
        if route not in self.links and batch[FIRST_KIND] != _HELLO:
            # Malformed: nothing in it is used.
            self.refused["stranger"] += 1
            return 1
        try:
            messages = split(batch, payloads)
        except ProtocolError as error:
            self.refused[error.reason] += 1
            return 1
        if messages[0][KIND_AT] == Kind.HELLO:
            del messages[1:]
        for message in messages:
            try:
                self._message(now, route, message, user)
            except ProtocolError as error:
                self.refused[error.reason] += 1
            except Exception as error:
                # An internal error discards this message only, not the rest of the batch.
                self.refused["internal error"] += 1
                self.on_error(error)
        return len(messages)

    def lost(self, route: bytes, reason: str, unsent: list[bytes] | None = None) -> None:
        """The connection is gone: everything on it has ended. ``unsent`` never left."""
        link = self.links.pop(route, None)
        if link is None:
            self._early = {ticket: early for ticket, early in self._early.items() if early.route != route}
            return
        link.closed = reason
        for call in link.calls.values():
            started = "no" if call.message in (unsent or ()) else "unknown"
            risk = "it did not run" if started == "no" else "it may have run"
            text = f"{link.identity} went away ({reason}) with the direct call; {risk}"
            call.error = LinkLost(text, {"topic": call.address, "server": link.identity, "started": started})
            self.changed.append(call)
        link.calls.clear()
        for registration in self._tasks.registrations.values():
            for task in (*registration.running.values(), *registration.waiting.values()):
                if task.sender is link:
                    task.abandon()
        link.on_change()

    def _message(self, now: float, route: bytes, message: bytes, user: str) -> None:
        kind = message[KIND_AT]
        link = self.links.get(route)
        if kind == Kind.HELLO:
            self._hello(now, route, message, user)
        elif link is None:
            raise ProtocolError("the peer sent a message before presenting a ticket", "stranger")
        elif kind == Kind.WELCOME:
            if link.welcomed:
                # Only the target of a direct link handles requests.
                raise ProtocolError("WELCOME on an established link", "welcome")
            link.origin = origin_of(0, DirectWelcomeBody.of(message).handle)
            link.welcomed = True
            link.on_change()
        elif kind == Kind.REFUSED:
            self.lost(route, shorten(RefusedBody.of(message).text) or "refused")
        elif kind == Kind.REQUEST:
            self._request(now, link, message)
        elif kind == Kind.CANCEL:
            self._tasks.cancel_direct(message[KEY], link)
        elif kind == Kind.ALIVE:
            self._progress(link, message)
        elif kind in (Kind.REPLY, Kind.FAULT, Kind.ERROR):
            self._answer(link, message)
        else:
            raise ProtocolError(f"kind {kind:#04x} is not for a direct link", "kind")

    def _hello(self, now: float, route: bytes, message: bytes, user: str) -> None:
        if route in self.links:
            raise ProtocolError("HELLO on an established link", "hello")
        try:
            hello = DirectHelloBody.of(message)
        except ProtocolError as error:
            self._refuse(DirectLink(self.dirty, route, ""), error.reason, "protocol", shorten(str(error)))
            return
        if hello.ticket in self._tickets or not self._may_wait(route, hello, message):
            self._admit(now, route, hello, user)
        else:
            self._early[hello.ticket] = _EarlyHello(route, message, user, now + EARLY_SECONDS)

    def _may_wait(self, route: bytes, hello: DirectHelloBody, message: bytes) -> bool:
        early = self._early
        known = hello.ticket in early or any(other.route == route for other in early.values())
        return not known and len(early) < MAX_EARLY and size_of(message) <= _MAX_EARLY_BYTES

    def _admit(self, now: float, route: bytes, hello: DirectHelloBody, user: str) -> None:
        """Welcome the peer that says ``hello``, or refuse it."""
        identity, key, topic, until, _ = self._tickets.take(hello.ticket)
        link = DirectLink(self.dirty, route, identity, key)
        if not identity or until < now or hello.identity != identity or user != key:
            self._refuse(link, "ticket", "ticket", "the ticket is unknown or too old")
            return
        if sum(known.is_inbound for known in self.links.values()) >= self.max_inbound:
            text = f"{self._identity}: direct link limit reached ({self.max_inbound}); call it through the router"
            self._refuse(link, "too many links", "too-many-links", text)
            return
        self._handles += 1
        link.origin = origin_of(0, self._handles)
        link.welcomed = link.is_inbound = True
        link.topic = topic
        self.links[route] = link
        link.send(DirectWelcomeBody(identity=self._identity, handle=self._handles).message())
        self.on_admitted(route)

    def _refuse(self, link: DirectLink, counted_as: str, reason: str, text: str) -> None:
        """Refuse the HELLO of ``link``, which is not in the table."""
        self.refused[counted_as] += 1
        link.send(RefusedBody(reason=reason, text=text).message())

    def _request(self, now: float, link: DirectLink, message: bytes) -> None:
        parse(message)
        if message[ORIGIN] != link.origin:
            raise ProtocolError("origin is not this link's", "origin")
        address = Address.decode(address_of(message))
        registration = registration_for(address, self._tasks.registrations.values())
        if not link.is_inbound or link.topic != str(address):
            # The router has checked the right to this topic only.
            text = f"{link.identity} was introduced for {link.topic!r}, not for {str(address)!r}"
            self._error(link, message, Outcome.DENIED, text)
        elif registration is None:
            self._error(link, message, Outcome.NO_CONSUMER, f"{self._identity} does not serve that topic any more")
        elif message[LOW_FLAGS_AT] & Flag.STREAM:
            self._error(link, message, Outcome.PROTOCOL, "streams must go through the router")
        elif message[KEY] in registration.running or message[KEY] in registration.waiting:
            self._error(link, message, Outcome.PROTOCOL, "sequence of a call that is in flight")
        elif problem := _waiting_limit(registration, payload_of(message)):
            self._error(link, message, Outcome.OVERLOADED, f"{self._identity} has {problem}")
        else:
            self._tasks.accept(now, message, registration, link)

    def _error(self, link: DirectLink, message: bytes, outcome: Outcome, text: str) -> None:
        link.send(ErrorBody(outcome=outcome, text=text).message(key=message[KEY]))

    def _answer(self, link: DirectLink, message: bytes) -> None:
        call = link.calls.get(message[KEY])
        if call is None:
            self.refused["late reply"] += 1
            return
        if message[KIND_AT] == Kind.ERROR:
            try:
                body = ErrorBody.of(message)
            except ProtocolError as error:
                self.refused[error.reason] += 1
                body = ErrorBody.for_malformed(error)
            text = shorten(body.text) or f"{link.identity} refused the call without giving a reason"
            call.error = error_for(body.outcome, text, {"started": "no"})
        else:
            parse(message)
            call.answer = message
        del link.calls[call.key]
        self.changed.append(call)

    def _progress(self, link: DirectLink, message: bytes) -> None:
        call = link.calls.get(message[KEY])
        if call is not None:
            parse(message)
            call.add_progress(message)
            self.changed.append(call)

    def start(self, link: DirectLink, call: Call, payload: bytes, format: int, address: bytes, method: bytes) -> None:
        """Send a call on ``link``."""
        call.key = link.next_key()
        call.message = pack(
            Kind.REQUEST,
            payload,
            flags=call.flags,
            format=format,
            ttl=max(1, int((call.timeout or 60.0) * 1000)),
            key=call.key,
            address=address,
            method=method,
        )
        link.calls[call.key] = call
        link.send(call.message)

    def cancel(self, link: DirectLink, call: Call) -> None:
        """Cancel ``call``: nobody waits for it any more."""
        if link.calls.pop(call.key, None) is not None:
            call.cancelled = True
            link.send(pack(Kind.CANCEL, key=call.key))


class _EarlyHello(NamedTuple):
    route: bytes
    message: bytes
    user: str
    until: float


def _waiting_limit(registration: Registration, payload: bytes | memoryview) -> str:
    """Return the limit that keeps one more direct call from waiting; empty if it may."""
    if len(registration.running) < registration.credit:
        return ""
    if len(registration.waiting) >= MAX_WAITING:
        return f"reached the limit of {MAX_WAITING} waiting direct calls"
    size = registration.waiting_bytes + len(payload)
    if size > MAX_WAITING_BYTES:
        return f"{size} bytes of direct calls waiting; the limit is {MAX_WAITING_BYTES} bytes"
    return ""
