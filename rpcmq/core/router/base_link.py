"""A link as far as it is known without the work on it: its process, its connection, and what waits on both ways.

A link outlives the ZeroMQ connection under it. Its states are those of :mod:`rpcmq.core.router.link_states`, and
:class:`~rpcmq.core.router.link_table.LinkTable` changes them. Its requests and consumers are added by
:class:`rpcmq.core.router.model.Link`, the one class of all links.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain
from typing import Any

from rpcmq.core.common.session import Session
from rpcmq.core.router.grant_shares import GrantShares
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.permissions import Permissions
from rpcmq.core.router.pubsub.subscriber import Subscriber
from rpcmq.core.router.rights import Key
from rpcmq.core.router.usage import Usage
from rpcmq.payload.format import Format
from rpcmq.wire import KEY, KIND_AT, Kind, origin_of, size_of

__all__ = ["BaseLink", "outgoing_bytes"]

_ANSWERS = frozenset(map(int, (Kind.REPLY, Kind.FAULT, Kind.END)))


class BaseLink(Session):
    """The process, the connection and the inbox of a link."""

    __slots__ = (
        "accepts",
        "answers_drain",
        "counters",
        "description",
        "follows_mesh",
        "grant_shares",
        "handle",
        "heard",
        "identity",
        "inbox",
        "inbox_bytes",
        "is_full",
        "is_responsive",
        "keeps",
        "leaves",
        "maker",
        "moves",
        "origin",
        "overdrawn",
        "owed",
        "patterns",
        "permissions",
        "queue_type",
        "read_bytes",
        "returning",
        "role",
        "route",
        "routers",
        "sent_us",
        "since",
        "state",
        "token",
        "usage",
        "wants_drops",
        "window",
    )  # fmt: skip

    identity: str
    queue_type: str
    handle: int
    #: Router and handle as they stand in each message that comes from here.
    origin: bytes
    #: Proof that a HELLO resumes this link.
    token: str
    #: Whether the process had a session before that this router knows nothing of.
    returning: bool
    #: In a mesh: the number of sessions that the process has begun after its first one, with this one.
    moves: int

    #: The shell's name of the connection; None while away.
    route: bytes | None
    state: LinkState
    #: Whether the state is ANSWERING: it may be given work.
    is_responsive: bool
    #: The times at which something was received last, and at which it connected or went away (monotonic seconds).
    heard: float
    since: float
    #: Set by GOODBYE: the link ends when the messages before it were handled.
    leaves: bool

    role: str
    description: dict[str, Any]
    #: Bit mask of payload formats that the process can decode.
    accepts: int
    #: Whether the process retains its casts until delivery is acknowledged.
    keeps: bool
    #: Whether the process has yet to confirm that it sends nothing new to the draining router.
    answers_drain: bool
    #: Whether the process knows that there may be several routers, and the number of those that it knew of.
    follows_mesh: bool
    routers: int
    #: The link by which answers under way to this one were made, which are kept there until they have arrived; and for
    #: those of others: key -> link. Most have one maker, and to note that costs nothing.
    maker: BaseLink | None
    owed: dict[bytes, BaseLink]
    #: Whether the process wants DROPPED notices about its casts.
    wants_drops: bool
    #: The process's monotonic clock when it sent the current answers (microseconds); 0 if unknown.
    sent_us: int

    #: Received messages waiting for the link's next turn, and their approximate bytes.
    inbox: deque[bytes]
    inbox_bytes: int
    #: Upper bound of the bytes read from its connection, framing included.
    read_bytes: int
    #: Bytes of its calls and casts that have not ended.
    usage: Usage
    #: The limit because of which no more calls and casts are accepted; empty: none.
    overdrawn: str
    #: The unacknowledged window is full: no new work and no events until it acknowledges some.
    is_full: bool
    counters: Counter[str]
    #: Grants of streams that wait for it, by who granted them; None while little waits.
    grant_shares: GrantShares | None

    #: PubSub: (exchange, pattern) subscribed to.
    patterns: dict[tuple[bytes, bytes], None]
    #: PubSub: deliveries that may still be sent.
    window: Subscriber | None

    #: The key that it belongs to, and what that was found to be allowed; None without CURVE.
    permissions: Permissions | None

    def __init__(self, dirty: list[Session], identity: str, queue_type: str, handle: int, router_id: int) -> None:
        super().__init__(dirty)
        self.identity, self.queue_type, self.handle = identity, queue_type, handle
        self.origin = origin_of(router_id, handle)
        self.token = self.role = self.overdrawn = ""
        self.description = {}
        self.accepts = Format.JSON.bit
        self.route = None
        self.state = LinkState.NEW
        self.is_responsive = self.is_full = self.leaves = self.returning = False
        self.keeps = self.answers_drain = self.wants_drops = self.follows_mesh = False
        self.routers = 0
        self.owed = {}
        self.read_bytes = self.inbox_bytes = self.sent_us = self.moves = 0
        self.heard = self.since = 0.0
        self.usage = Usage()
        self.inbox = deque()
        self.counters = Counter()
        self.patterns = {}
        self.window = self.permissions = self.maker = self.grant_shares = None

    def owe(self, key: bytes, maker: BaseLink) -> None:
        """Note that the answer with ``key``, which goes to this link, was made at another one than :attr:`maker`."""
        former = self.maker
        if former is not None and (former.state is not LinkState.ENDED or self.owed):
            self.owed[key] = maker
            return
        if former is not None:
            under_way = (message for message in chain(self.sent, self.outbox) if message[KIND_AT] in _ANSWERS)
            self.owed = {each: former for message in under_way if (each := message[KEY]) != key}
        self.maker = maker

    def forget_inbox(self) -> None:
        """Discard the inbox: its messages were not counted as received, and will be sent again."""
        self.inbox.clear()
        self.inbox_bytes = 0
        self.leaves = False

    @property
    def key(self) -> Key | None:
        """The key that it belongs to; None without CURVE."""
        return self.permissions.usage.key if self.permissions is not None else None


def outgoing_bytes(link: Session) -> int:
    """Return the bytes that wait to be sent to ``link``, or were sent and not acknowledged."""
    return link.sent_bytes + sum(map(size_of, link.outbox))
