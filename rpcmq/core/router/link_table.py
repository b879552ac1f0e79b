"""The links of a router: which processes are connected, or away, under which identity.

* An identity has at most one link of each queue type, and one more of each that only consumes: a process with several
  routers consumes at all of them, and calls at one (:mod:`rpcmq.core.router.handshake` sees to it).
* A link that is away retains what is to be sent. How long it is waited for, and who is silent, is said in
  :mod:`rpcmq.core.router.liveness`.
* A link that ends leaves nothing behind.
* Its states and events are those of :mod:`rpcmq.core.router.link_states`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rpcmq.core.common.illegal_events import IllegalEvent, IllegalEvents
from rpcmq.core.common.session import Session
from rpcmq.core.router.access_control import AccessControl, AllowAll
from rpcmq.core.router.faults import reraise
from rpcmq.core.router.link_states import TRANSITIONS, LinkState
from rpcmq.core.router.model import Handler, Link
from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, Kind, pack, payload_of, sequence_of
from rpcmq.wire.bodies import CONSUMER_ROLE, MESH_TYPE, QUEUE_TYPES, DrainBody, RefusedBody

__all__ = ["AWAY_FOR", "REPLACED", "SAID_GOODBYE", "LinkTable"]

#: The reason for the end of a link whose process has left in order.
SAID_GOODBYE = "said goodbye"
#: The reason for the end of a link that was away, and in whose place a new process has come.
REPLACED = "replaced by a new process of the same identity"
#: The beginning of the reason for the end of a link that has not come back.
AWAY_FOR = "away for"
#: Bytes of a process's HEARTBEAT that its answer returns: the time at which that was sent.
_RETURNED = 8


class LinkTable:
    """Knows each link by connection, by identity and by handle.

    Args:
        on_ended: called with (now, link, reason) after a link has ended.
        on_changed: called with (now, link) when a link stops or starts answering.
    """

    def __init__(self, on_ended: Callable[[float, Link, str], None], on_changed: Callable[[float, Link], None]) -> None:
        self._on_ended = on_ended
        self._on_changed = on_changed
        self._identities: dict[tuple[str, str, bool], Link] = {}
        #: The links by router and handle, as their messages carry them.
        self.origins: dict[bytes, Link] = {}
        self.routes: dict[bytes, Link] = {}
        #: Links that are away, the longest first; and those of them whose consumers are still waited for.
        self.away: OrderedDict[Link, None] = OrderedDict()
        self.in_grace: OrderedDict[Link, None] = OrderedDict()
        #: The links that have something to send; shared with the shell.
        self.dirty: list[Session] = []
        self.draining = False
        #: Whether processes had a session with an earlier life of this router.
        self.has_returned = False
        #: Whether processes are to send clock stamps with their answers.
        self.stamps = False
        #: A :class:`~rpcmq.wire.mesh_bodies.RoutersBody`, which WELCOME tells to processes; empty: there is no mesh.
        self.mesh: Mapping[str, Any] = {}
        self.counters: Counter[str] = Counter()
        #: Events that a link or a request did not have in its state.
        self.illegal = IllegalEvents()
        #: Handlers of the messages of a link, by kind.
        self.handlers: list[Handler] = []
        #: Decides who may connect, and what they may do.
        self.access: AccessControl = AllowAll()
        #: Called with a connection that is still open and has lost its link.
        self.on_left: Callable[[bytes], None] = lambda route: None
        #: Called with messages that the process has acknowledged.
        self.on_taken: Callable[[float, Link, list[bytes]], None] = lambda now, link, messages: None
        #: Called with a link whose window was full and that may be given work again.
        self.on_room: Callable[[float, Link], None] = lambda now, link: None
        #: Called in the handler of an exception that must cost one link, or message, only.
        self.on_fault: Callable[[float, str, bytes], None] = reraise

    def __len__(self) -> int:
        return len(self._identities)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._identities.values())

    def by_origin(self, origin: bytes) -> Link | None:
        """Return the link whose messages carry ``origin`` (router and handle, 12 bytes)."""
        return self.origins.get(origin)

    def by_identity(self, identity: str, queue_type: str = "roundrobin", role: str = "") -> Link | None:
        """Return the link of the process ``identity`` in that role."""
        return self._identities.get((identity, queue_type, role == CONSUMER_ROLE))

    def of_identity(self, identity: str) -> Iterator[Link]:
        """Return the links of the process ``identity``."""
        for queue_type in QUEUE_TYPES:
            for only_consumes in (False, True):
                link = self._identities.get((identity, queue_type, only_consumes))
                if link is not None:
                    yield link

    # --- life of a link ----------------------------------------------------------------------

    def add(self, link: Link) -> None:
        """Add a new link."""
        self._identities[_key(link)] = link
        self.origins[link.origin] = link

    def attach_route(self, now: float, link: Link, route: bytes) -> None:
        """Let the connection ``route`` carry ``link``, in place of its former one."""
        if link.route == route:
            del self.routes[route]
        elif link.route is not None:
            self._detach_route(link.route)
        # A connection carries one link, and with this HELLO has left the one that it carried before for good: were that
        # away, and not ended, one connection could fill the table.
        former = self.routes.get(route)
        if former is not None:
            self.end(now, former, "its connection has said HELLO as another")
        link.route = route
        self.routes[route] = link
        link.since = link.heard = now
        link.disconnected()

    def lost(self, now: float, route: bytes) -> None:
        """Handle the end of the connection ``route``: its link is away."""
        link = self.routes.pop(route, None)
        if link is not None:
            link.route = None
            link.disconnected()
            link.since = now
            link.counters["connections lost"] += 1
            if self.happens(now, link, "lost"):
                self._on_changed(now, link)

    def end(self, now: float, link: Link, reason: str) -> None:
        """Forget ``link``."""
        if not self.happens(now, link, "ended"):
            return
        if link.route is not None:
            self._detach_route(link.route)
            link.route = None
        self._identities.pop(_key(link), None)
        self.origins.pop(link.origin, None)
        link.forget_inbox()
        self.counters["links ended"] += 1
        self.access.ended(link)
        self._on_ended(now, link, reason)

    def end_safely(self, now: float, link: Link, reason: str) -> None:
        """Forget ``link``; an exception is reported and not raised."""
        try:
            self.end(now, link, reason)
        except Exception:
            self.on_fault(now, link.identity, b"")

    def connected(self, now: float, link: Link) -> None:
        """Handle the WELCOME of a link: it may be given work."""
        if self.happens(now, link, "connected"):
            self._on_changed(now, link)

    def silent(self, now: float, link: Link) -> None:
        """Handle the silence of a connected link, or that somebody or nobody counts on a silent one any more."""
        event = "silent" if link.is_counted_on else "idle"
        if self.happens(now, link, event):
            if event == "silent":
                link.counters["unresponsive"] += 1
            self._on_changed(now, link)

    def heard_again(self, now: float, link: Link) -> None:
        """Handle the end of a link's silence."""
        if self.happens(now, link, "heard"):
            self._on_changed(now, link)

    def happens(self, now: float, link: Link, event: str) -> bool:
        """Take ``link`` to its next state; return whether ``event`` is legal in this one. All changes go through here.

        Raises:
            IllegalEvent: it is not, in tests.
        """
        before = link.state
        state = TRANSITIONS.get((before, event))
        if state is None:
            self.report_illegal(now, f"link: {event} while it is {before.value}", link.identity)
            return False
        link.state = state
        link.is_responsive = state is LinkState.ANSWERING
        if event == "lost":
            self.away[link] = self.in_grace[link] = None
        elif event == "lapsed":
            self.in_grace.pop(link, None)
        elif before is LinkState.AWAY:
            self.away.pop(link, None)
            self.in_grace.pop(link, None)
        return True

    def report_illegal(self, now: float, text: str, identity: str = "", key: bytes = b"") -> None:
        """Count the illegal event ``text``, and report it the first time.

        Args:
            identity: whose link it was about; empty if nobody's.
            key: of the message that it was about; empty if it was about none.

        Raises:
            IllegalEvent: in tests.
        """
        error = self.illegal.add(text)
        if error is not None:
            try:
                raise error
            except IllegalEvent:
                self.on_fault(now, identity, key)

    def _detach_route(self, route: bytes) -> None:
        self.routes.pop(route, None)
        self.on_left(route)

    # --- control messages --------------------------------------------------------------------

    def control_message(self, now: float, link: Link, message: bytes) -> None:
        """Handle a message about the link itself. Some that only routers send are handled as those above the link are.

        Raises:
            ProtocolError: the kind is not one that a process sends, or the count is impossible.
        """
        kind = message[KIND_AT]
        if kind == Kind.ACK or kind == Kind.HEARTBEAT:
            self.on_taken(now, link, link.acknowledged(sequence_of(message)))
            if link.is_full and link.sent_bytes < link.window_bytes // 2:
                link.is_full = False
                self.on_room(now, link)
            if kind == Kind.HEARTBEAT and link.queue_type == MESH_TYPE:
                link.handlers[kind](now, link, message)
            elif kind == Kind.HEARTBEAT:
                link.ack_was_sent()
                link.send_last(pack(Kind.HEARTBEAT, payload_of(message)[:_RETURNED], sequence=link.received))
        elif link.queue_type == MESH_TYPE and kind in (Kind.DRAIN, Kind.REFUSED, Kind.READ):
            link.handlers[kind](now, link, message)
        elif kind == Kind.DRAIN and self.draining:
            self.on_taken(now, link, link.acknowledged(sequence_of(message)))
            link.answers_drain = False
        elif kind == Kind.GOODBYE:
            self.end(now, link, SAID_GOODBYE)
        else:
            raise ProtocolError(f"kind {kind:#04x} is not one that a process sends", "kind")

    # --- shutdown ----------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """Tell all processes that nothing new is accepted, and admit nobody who has no session here."""
        self.draining = True
        for link in self:
            self.send_drain(link)

    def send_drain(self, link: Link) -> None:
        """Tell ``link`` that the router is shutting down."""
        link.send_last(DrainBody(text="the router is shutting down", answer=True).message())

    @property
    def has_undrained_senders(self) -> bool:
        """Whether a connected process may still send something new, and will say when it does not."""
        return any(link.answers_drain and link.is_responsive for link in self)

    def finish_drain(self) -> None:
        """Tell each process how many of its messages were handled, and that no more will be."""
        text = "the router has shut down"
        for link in self:
            if link.route is not None:
                link.send_last(RefusedBody(reason="draining", text=text, received=link.received).message())


def _key(link: Link) -> tuple[str, str, bool]:
    return link.identity, link.queue_type, link.role == CONSUMER_ROLE
