"""The links of a router: connected, away and unresponsive processes by identity.

Rules:

* An identity has at most one link of each queue type. A HELLO with the link's token takes it over,
  whatever connection it came on; without the token it is refused while the link is connected.
* *Away*: the connection is gone; the link keeps what is to be sent for ``resume_seconds``.
* *Unresponsive*: connected, but nothing was heard for ``unresponsive_seconds``. It gets no new work
  and is not declared dead.
* *Quiet*: the same of one that nobody waits for: it consumes nothing and has no call in flight. A program that computes
  between its calls is no cause for alarm.
* A link that ends leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from math import ceil
from struct import pack
from typing import TYPE_CHECKING, Any

from rpcmq.core.common.session import GIVE_UP_AFTER, WINDOW_BYTES, Session
from rpcmq.core.common.text import shortened
from rpcmq.core.router.faults import reraise
from rpcmq.core.router.queue import Queue
from rpcmq.core.router.request import Request
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.topics import Consumer, Destination
from rpcmq.core.router.usage import Usage
from rpcmq.errors import ProtocolError
from rpcmq.payload.format import Format, known_mask
from rpcmq.wire import VERSION, Flag, Kind, body_of, control, message, size_of

if TYPE_CHECKING:
    from rpcmq.core.router.access_control import Account, Guard

__all__ = ["QUEUE_TYPES", "Handler", "Link", "LinkState", "LinkTable", "outgoing_bytes"]

QUEUE_TYPES = ("roundrobin", "pubsub")
_MAX_IDENTITY_BYTES = 255
#: Links scanned in one tick: a scan of 100,000 at once would delay calls noticeably.
_SEEN_AT_ONCE = 500
#: Away links considered for eviction when the table is full.
_AWAY_COMPARED = 100


class LinkState(Enum):
    """Whether a link can be given work."""

    ANSWERING = "answering"
    UNRESPONSIVE = "unresponsive"
    QUIET = "quiet"
    AWAY = "away"
    ENDED = "ended"


class Link(Session):
    """A process's connection of one queue type, which outlives the ZeroMQ connection under it."""

    __slots__ = (
        "accepts", "answering", "answers_drain", "calls", "claims", "consumers", "counters", "description", "granted",
        "granted_casts", "handle", "handlers", "heard", "held", "identity", "inbox", "inbox_bytes", "is_full", "keeps",
        "lapsed", "leaves", "origin", "overdrawn", "patterns", "permits", "queue_type", "read_bytes", "returning",
        "role", "route", "sent_us", "since", "stalled", "state", "token", "usage", "wants_drops", "window",
    )  # fmt: skip

    def __init__(self, dirty: list[Session], identity: str, queue_type: str, handle: int, router_id: int) -> None:
        super().__init__(dirty)
        self.identity = identity
        self.queue_type = queue_type
        self.handle = handle
        #: Router and handle as they stand in each message that comes from here.
        self.origin = pack(">IQ", router_id, handle)
        self.token = ""
        self.role = ""
        self.description: dict[str, Any] = {}
        #: Bit mask of payload formats that the process can decode.
        self.accepts = Format.JSON.bit
        #: The shell's name of the connection; None while away.
        self.route: bytes | None = None
        self.state = LinkState.AWAY
        self.answering = False
        #: Upper bound of the bytes read from its connection, framing included.
        self.read_bytes = 0
        #: Bytes of its unfinished calls and casts, and the limit that is exceeded; empty if none is.
        self.usage = Usage()
        self.overdrawn = ""
        #: The unacknowledged window is full: no new work and no events until it acknowledges some.
        self.is_full = False
        #: Whether the process retains its casts until delivery is acknowledged.
        self.keeps = False
        #: Whether the process has yet to confirm that it sends nothing new to the draining router.
        self.answers_drain = False
        #: Whether the process wants DROPPED notices about its casts.
        self.wants_drops = False
        #: The process's monotonic clock when it sent the current answers (microseconds); 0 if unknown.
        self.sent_us = 0
        #: Whether the process had a session before that this router knows nothing of.
        self.returning = False
        self.heard = 0.0
        self.since = 0.0
        self.calls: dict[bytes, Request] = {}
        self.consumers: dict[int, Consumer] = {}
        #: Consumers removed while the link was away; restored when it resumes.
        self.lapsed: list[Consumer] = []
        #: Casts that wait for the end of the recovery window after a restart of the router.
        self.held: list[bytes] = []
        #: Received messages waiting for the link's next turn, and their approximate bytes.
        self.inbox: deque[bytes] = deque()
        self.inbox_bytes = 0
        #: It has said GOODBYE, and ends when these are handled.
        self.leaves = False
        #: Queues that refused a cast of this link -> sequence of the cast that must come next.
        self.stalled: dict[Queue, int] = {}
        #: PubSub: subscriptions (exchange, pattern), and the remaining delivery window.
        self.patterns: dict[tuple[bytes, bytes], None] = {}
        self.window: Any = None
        self.counters: Counter[str] = Counter()
        #: Handlers of its messages, by kind.
        self.handlers: list[Handler] = []
        #: The key that it belongs to, and what that was found to be allowed; None without CURVE.
        self.permits: Any = None
        #: Destinations to which it may send calls and casts, as far as decided; None: no restriction.
        self.granted: set[Destination] | None = None
        self.granted_casts: set[Destination] | None = None

    def forget_inbox(self) -> None:
        """Discard the inbox: its messages were not counted as received, and will be sent again."""
        self.inbox.clear()
        self.inbox_bytes = 0
        self.leaves = False

    def window_full(self) -> None:
        """Stop deliveries to its consumers: messages wait in bounded queues, from which others can take them."""
        if not self.is_full:
            self.is_full = True
            self.counters["window full"] += 1
            for consumer in self.consumers.values():
                consumer.credit = 0
                consumer.topic.ready.move(consumer)


#: Takes one message of a link.
Handler = Callable[[float, Link, bytes], None]


class LinkTable:
    """Knows each link by connection, by identity and by handle.

    Args:
        new_token: makes an unguessable string.
        on_ended: called with (now, link, reason) after a link has ended.
        on_changed: called with (now, link) when a link stops or starts answering.
    """

    def __init__(
        self,
        settings: Settings,
        boot: int,
        new_token: Callable[[], str],
        on_ended: Callable[[float, Link, str], None],
        on_changed: Callable[[float, Link], None],
    ) -> None:
        self._settings = settings
        self._boot = boot
        self._new_token = new_token
        self._on_ended = on_ended
        self._on_changed = on_changed
        self._identities: dict[tuple[str, str], Link] = {}
        self._handles: dict[bytes, Link] = {}
        # Never handles of an earlier incarnation, whose processes may return: two may start in the same second.
        self._next_handle = (boot // 1000 & 0xFFFFFFFF) << 32 | boot % 1000 << 22
        #: Links that are away, the longest first; and those of them whose consumers still wait for them.
        self._away: OrderedDict[Link, None] = OrderedDict()
        self._spared: OrderedDict[Link, None] = OrderedDict()
        #: Links still to be scanned in this round.
        self._unseen: list[Link] = []
        self._pause = 0.0
        self._next_look = 0.0
        self._probing = False
        self._next_probe = 0.0
        #: Handlers of a link's messages, by kind.
        self.handlers: list[Handler] = []
        #: Access control; None without CURVE.
        self.guard: Guard | None = None
        self.routes: dict[bytes, Link] = {}
        self.dirty: list[Session] = []
        self.draining = False
        #: Whether any process had a session with an earlier incarnation of this router.
        self.has_returned = False
        #: Whether to ask processes for clock stamps of their answers.
        self.stamps = False
        self.counters: Counter[str] = Counter()
        #: Called with a connection that is still open and has lost its link.
        self.on_left: Callable[[bytes], None] = lambda route: None
        #: Called with messages that the process has acknowledged.
        self.on_taken: Callable[[float, Link, list[bytes]], None] = lambda now, link, parts: None
        #: Called with a link whose window was full and that may be given work again.
        self.on_room: Callable[[float, Link], None] = lambda now, link: None
        #: Called in the handler of an exception that must cost one link only.
        self.on_fault: Callable[[float, str], None] = reraise

    def __len__(self) -> int:
        return len(self._identities)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._identities.values())

    def by_origin(self, origin: bytes) -> Link | None:
        """The link whose messages carry ``origin`` (router and handle, 12 bytes)."""
        return self._handles.get(origin)

    def by_identity(self, identity: str, queue_type: str = "roundrobin") -> Link | None:
        """The link of the process ``identity``."""
        return self._identities.get((identity, queue_type))

    def of_identity(self, identity: str) -> Iterator[Link]:
        """The links of the process ``identity``."""
        for queue_type in QUEUE_TYPES:
            link = self._identities.get((identity, queue_type))
            if link is not None:
                yield link

    # --- handshake ---------------------------------------------------------------------------

    def stranger(self, route: bytes, part: bytes) -> list[bytes]:
        """Refuse a message from a connection that has not said HELLO; return the answers to send directly."""
        self.counters["stranger"] += 1
        return [control(Kind.REFUSED, {"reason": "hello-first", "text": "say HELLO before anything else"})]

    def hello(self, now: float, route: bytes, part: bytes, user: str = "") -> bytes | None:
        """Handle HELLO. Return the refusal to send to ``route``, or None if the process is welcome.

        Args:
            user: the public key of its connection; empty without CURVE.
        """
        body = body_of(part)
        identity, queue_type, token = body.get("identity"), body.get("queue_type"), body.get("token")
        problem = self._problem(identity, queue_type, body)
        account: Account | None = None
        if self.guard is not None and not problem:
            account = self.guard.account_of(user)
            problem = self.guard.problem(account, identity)  # type: ignore[arg-type]
        if problem:
            return self._refusal(*problem)
        link = self._identities.get((identity, queue_type))  # type: ignore[arg-type]
        received = body.get("received")
        if self.draining and not (link is not None and token == link.token and link.can_resume(received)):
            # A process with a session may resume it, to receive outstanding answers.
            return self._refusal("draining", "the router is shutting down")
        if link is not None and (token != link.token or not self._owns(account, link)):
            if link.state is not LinkState.AWAY:
                # The old connection may be dead unnoticed: sending on it will show.
                link.close_with(message(Kind.HEARTBEAT, flags=Flag.ANSWER_WANTED))
                text = f"identity {identity!r} is taken by a live process; stop it or choose another identity"
                return self._refusal("identity-taken", text)
            self.end(now, link, "replaced by a new process of the same identity")
            link = None
        if link is not None and link.fruitless >= GIVE_UP_AFTER:
            # Some message ends each connection it is sent on. To its sender, it may have run.
            self.end(now, link, f"{GIVE_UP_AFTER} connections in a row ended before it acknowledged what it was sent")
            link = None
        if link is not None and link.can_resume(received):
            self._connect_or_end(now, link, route, body, received)
            return None
        if link is not None:
            self.end(now, link, "started over")
        if len(self._identities) >= self._settings.max_links and not self._make_room(now):
            text = f"link limit reached (link.max_links = {self._settings.max_links})"
            return self._refusal("too-many-links", text)
        if account is not None and self.guard is not None and not self.guard.has_room(account):
            text = f"key {account.key.name!r}: link limit reached ({account.links}; its max_links)"
            return self._refusal("too-many-links", text)
        link = self._create(identity, queue_type, body, account)  # type: ignore[arg-type]
        if account is not None and self.guard is not None:
            account.links += 1
            self.guard.attach(link, account)
        self._connect_or_end(now, link, route, body, None)
        return None

    def _make_room(self, now: float) -> bool:
        """Evict a link that has been away for longest; prefer one that never sent anything."""
        oldest = list(islice(self._away, _AWAY_COMPARED))
        if not oldest:
            return False
        link = next((link for link in oldest if not link.received), oldest[0])
        self.end(now, link, "evicted while away: the link table was full")
        return True

    def _owns(self, account: Account | None, link: Link) -> bool:
        """Whether ``account`` owns ``link``: tokens are not valid under another key."""
        return link.permits is None or link.permits.account is account

    def _problem(self, identity: object, queue_type: object, body: dict[str, Any]) -> tuple[str, str] | None:
        versions = body.get("versions")
        if not isinstance(versions, list) or not any(type(each) is int and each == VERSION for each in versions):
            return "version", f"this router speaks version {VERSION}, the process {versions!r}"
        if not isinstance(identity, str) or not identity or not identity.isprintable():
            return "identity", f"identity {identity!r} must be a non-empty printable string"
        if len(identity.encode()) > _MAX_IDENTITY_BYTES:
            return "identity", f"identity {identity[:40]!r}... is longer than {_MAX_IDENTITY_BYTES} bytes"
        if queue_type not in QUEUE_TYPES:
            return "queue-type", f"queue type {queue_type!r} is unknown; known: {', '.join(QUEUE_TYPES)}"
        for name in ("handle", "received"):
            value = body.get(name)
            if value is not None and type(value) is not int:
                return "protocol", f"{name} {value!r:.40} must be an integer"
        return None

    def _refusal(self, reason: str, text: str) -> bytes:
        self.counters[f"refused {reason}"] += 1
        return control(Kind.REFUSED, {"reason": reason, "text": shortened(text)})

    def _create(self, identity: str, queue_type: str, body: dict[str, Any], account: Account | None) -> Link:
        handle = body.get("handle")
        # After a restart of the router a process keeps its handle, so that messages sent again are
        # recognised by consumers that had them before.
        returning = type(handle) is int and 0 < handle < 1 << 64
        if returning and account is not None and self.guard is not None:
            # With another process's handle, casts could be forged in its name.
            returning = self.guard.sealed(account, handle, body.get("token"))  # type: ignore[arg-type]
        if not returning or self._taken(handle):  # type: ignore[arg-type]
            handle = self._unused_handle()
        link = Link(self.dirty, identity, queue_type, handle, self._settings.router_id)  # type: ignore[arg-type]
        link.returning = returning
        self.has_returned = self.has_returned or returning
        link.handlers = self.handlers
        link.token = self._new_token()
        if account is not None and self.guard is not None:
            link.token += self.guard.seal(account, link.handle)
        self._identities[identity, queue_type] = link
        self._handles[link.origin] = link
        return link

    def _unused_handle(self) -> int:
        self._next_handle += 1
        while self._taken(self._next_handle):
            self._next_handle += 1
        return self._next_handle

    def _taken(self, handle: int) -> bool:
        return pack(">IQ", self._settings.router_id, handle) in self._handles

    def _connect_or_end(self, now: float, link: Link, route: bytes, body: dict[str, Any], resume: int | None) -> None:
        try:
            self._connect(now, link, route, body, resume)
        except BaseException:
            # A link neither connected nor away would never end.
            self.end(now, link, "its handshake failed")
            raise

    def _connect(self, now: float, link: Link, route: bytes, body: dict[str, Any], resume: int | None) -> None:
        if resume is not None:
            link.forget_inbox()
            self.on_taken(now, link, link.resume(resume))
        if link.route == route:
            del self.routes[route]
        elif link.route is not None:
            self._leave(link.route)
        # A connection carries one link, and with this HELLO has left the one that it carried before for good: were that
        # away, and not ended, one connection could fill the table.
        former = self.routes.get(route)
        if former is not None:
            self.end(now, former, "its connection has said HELLO as another")
        link.accepts = known_mask(body.get("accepts"))
        link.role = str(body.get("role", ""))[:64]
        link.keeps = body.get("keeps") is True
        link.answers_drain = body.get("answers_drain") is True
        link.wants_drops = body.get("wants_drops") is True
        link.description = {k: str(body.get(k, ""))[:255] for k in ("host", "pid", "program", "library")}
        link.route = route
        self.routes[route] = link
        link.since = link.heard = now
        link.disconnected()
        link.greet(self._welcome(link, resume is not None))
        if self.draining:
            self._tell_drain(link)
        link.counters["connects"] += 1
        if self.guard is not None:
            self.guard.seen(now, link)
        self._set_state(now, link, LinkState.ANSWERING)

    def _welcome(self, link: Link, resumed: bool) -> bytes:
        settings = self._settings
        return control(
            Kind.WELCOME,
            {
                "version": VERSION,
                "router": settings.router_name,
                "router_id": settings.router_id,
                "boot": self._boot,
                "handle": link.handle,
                "token": link.token,
                "resumed": resumed,
                "received": link.received,
                "heartbeat_seconds": settings.heartbeat_seconds,
                "unresponsive_seconds": settings.unresponsive_seconds,
                "lost_seconds": settings.lost_seconds,
                "recovery_seconds": settings.recovery_seconds,
                "max_message_bytes": settings.message_max_bytes,
                "error_names": True,
                "tells_delivered": True,
                "stamps": self.stamps,
            },
        )

    # --- life --------------------------------------------------------------------------------

    def drain(self) -> None:
        """Notify all links of the drain, and refuse processes without a session."""
        self.draining = True
        for link in self._identities.values():
            self._tell_drain(link)

    def _tell_drain(self, link: Link) -> None:
        link.close_with(control(Kind.DRAIN, {"text": "the router is shutting down", "answer": True}))

    @property
    def undrained(self) -> bool:
        """Whether a process that is connected may still send something new, and will say when it does not."""
        return any(link.answers_drain and link.answering for link in self._identities.values())

    def dismiss(self) -> None:
        """Send each process its final receive count: no more messages will be handled."""
        text = "the router has shut down"
        for link in self._identities.values():
            if link.route is not None:
                body = {"reason": "draining", "text": text, "received": link.received}
                link.close_with(control(Kind.REFUSED, body))

    def about_link(self, now: float, link: Link, part: bytes) -> None:
        """Handle a control message.

        Raises:
            ProtocolError: the kind is not one that a process sends, or the count is impossible.
        """
        kind = part[5]
        if kind == Kind.ACK or kind == Kind.HEARTBEAT:
            self.on_taken(now, link, link.acknowledged(int.from_bytes(part[28:36])))
            if link.is_full and link.sent_bytes < WINDOW_BYTES // 2:
                link.is_full = False
                self.on_room(now, link)
            if kind == Kind.HEARTBEAT:
                link.note_acknowledged()
                link.close_with(message(Kind.HEARTBEAT, sequence=link.received))
        elif kind == Kind.DRAIN and self.draining:
            self.on_taken(now, link, link.acknowledged(int.from_bytes(part[28:36])))
            link.answers_drain = False
        elif kind == Kind.GOODBYE:
            self.end(now, link, "said goodbye")
        else:
            raise ProtocolError(f"kind {kind:#04x} is not one that a process sends", "kind")

    def lost(self, now: float, route: bytes) -> None:
        """The connection is gone."""
        link = self.routes.pop(route, None)
        if link is not None:
            link.route = None
            link.disconnected()
            link.since = now
            link.counters["connections lost"] += 1
            self._set_state(now, link, LinkState.AWAY)

    def end(self, now: float, link: Link, reason: str) -> None:
        """Forget ``link``."""
        if link.route is not None:
            self._leave(link.route)
            link.route = None
        self._identities.pop((link.identity, link.queue_type), None)
        self._handles.pop(link.origin, None)
        self._present(link)
        link.state = LinkState.ENDED
        link.forget_inbox()
        link.answering = False
        self.counters["links ended"] += 1
        if self.guard is not None:
            self.guard.detach(link)
        self._on_ended(now, link, reason)

    def _leave(self, route: bytes) -> None:
        self.routes.pop(route, None)
        self.on_left(route)

    def answers_again(self, now: float, link: Link) -> None:
        """Mark an unresponsive link responsive: something was received from it."""
        self._set_state(now, link, LinkState.ANSWERING)

    def _set_state(self, now: float, link: Link, state: LinkState) -> None:
        if state is LinkState.AWAY:
            self._away[link] = self._spared[link] = None
        elif link.state is LinkState.AWAY:
            self._present(link)
        link.state = state
        link.answering = state is LinkState.ANSWERING
        self._on_changed(now, link)

    def _present(self, link: Link) -> None:
        """Remove ``link`` from the away links."""
        self._away.pop(link, None)
        self._spared.pop(link, None)

    def next_deadline(self) -> float:
        """When :meth:`tick` wants to be called."""
        due = self._next_look
        if self._away:
            due = min(due, next(iter(self._away)).since + self._settings.resume_seconds)
        if self._spared:
            due = min(due, next(iter(self._spared)).since + self._settings.consumer_grace_seconds)
        return due

    def tick(self, now: float) -> list[Link]:
        """Check links for silence; return those away for longer than the consumer grace."""
        if now >= self._next_look:
            self._look(now)
        for link in self._away_since(now, self._away, self._settings.resume_seconds):
            self.end_safely(now, link, f"away for {now - link.since:.1f} s")
        return self._away_since(now, self._spared, self._settings.consumer_grace_seconds)

    def _away_since(self, now: float, links: OrderedDict[Link, None], seconds: float) -> list[Link]:
        """Remove and return the links that went away at least ``seconds`` ago."""
        due: list[Link] = []
        while links and now >= next(iter(links)).since + seconds:
            due.append(links.popitem(last=False)[0])
        return due

    def _look(self, now: float) -> None:
        """Scan some more connected links; a round over all takes at most a second."""
        settings = self._settings
        if not self._unseen:
            self._unseen = list(self._identities.values())
            self._probing = now >= self._next_probe
            if self._probing:
                self._next_probe = now + settings.heartbeat_seconds
            turn = min(settings.heartbeat_seconds / 4, settings.unresponsive_seconds / 4, 1.0)
            self._pause = max(0.05, turn) / max(1, ceil(len(self._unseen) / _SEEN_AT_ONCE))
        seen = self._unseen[-_SEEN_AT_ONCE:]
        # Advance first: whatever fails in the scan, the next one covers the other links.
        del self._unseen[-_SEEN_AT_ONCE:]
        self._next_look = now + self._pause
        overfull: list[tuple[Link, str]] = []
        for link in seen:
            if link.state is LinkState.ENDED:
                continue
            try:
                self._look_at(now, link)
                if problem := self._overfull(link):
                    overfull.append((link, problem))
            except Exception:
                self.on_fault(now, link.identity)
        # Only once all silent links are known: their work goes to the others.
        for link, problem in overfull:
            self.end_safely(now, link, problem)

    def _look_at(self, now: float, link: Link) -> None:
        if link.answering:
            if now - link.heard >= self._settings.unresponsive_seconds:
                self._silent(now, link)
        elif link.state is not LinkState.AWAY:
            if link.state is not _silence_of(link):
                self._silent(now, link)  # its calls have ended meanwhile
            if self._probing:
                # If its connection has gone unnoticed, the send will tell.
                link.close_with(message(Kind.HEARTBEAT))

    def _silent(self, now: float, link: Link) -> None:
        state = _silence_of(link)
        if state is LinkState.UNRESPONSIVE:
            link.counters["unresponsive"] += 1
        self._set_state(now, link, state)

    def end_safely(self, now: float, link: Link, reason: str) -> None:
        """Forget ``link``; an exception is reported and goes no further."""
        try:
            self.end(now, link, reason)
        except Exception:
            self.on_fault(now, link.identity)

    def _overfull(self, link: Link) -> str:
        if not link.outbox and link.unacknowledged <= 1000:
            return ""
        settings = self._settings
        for count, what in (
            (len(link.outbox), "wait to be sent"),
            (link.unacknowledged, "were sent and not acknowledged"),
        ):
            if count > settings.outbox_max_messages:
                return f"{count} messages {what}; link.outbox_max_messages = {settings.outbox_max_messages}"
        size = outgoing_bytes(link)
        if size > settings.outbox_max_bytes:
            return f"{size} bytes wait to be sent or acknowledged; link.outbox_max_bytes = {settings.outbox_max_bytes}"
        return ""


def _silence_of(link: Link) -> LinkState:
    """Return the state of a connected link that is silent."""
    return LinkState.UNRESPONSIVE if link.consumers or link.patterns or link.calls else LinkState.QUIET


def outgoing_bytes(link: Session) -> int:
    """Bytes that wait to be sent to ``link``, or were sent and not acknowledged."""
    return link.sent_bytes + sum(map(size_of, link.outbox))
