"""The JSON bodies of control messages. ``docs/protocol.md`` says what their members mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire.body_fields import Body, flag, hexadecimal, integer, mapping, member, number, shown, string, text
from rpcmq.wire.header import pack
from rpcmq.wire.json_body import json_bytes
from rpcmq.wire.kinds import VERSION, Kind

__all__ = [
    "CONSUMER_ROLE",
    "MESH_TYPE",
    "QUEUE_TYPES",
    "DeclareBody",
    "DirectHelloBody",
    "DirectWelcomeBody",
    "DrainBody",
    "DroppedBody",
    "ErrorBody",
    "HelloBody",
    "IntroductionBody",
    "RefusedBody",
    "RegisterBody",
    "RegisteredBody",
    "SubscribeBody",
    "SubscribedBody",
    "WelcomeBody",
]

#: Of links between routers.
MESH_TYPE = "mesh"
QUEUE_TYPES = ("roundrobin", "pubsub", MESH_TYPE)
#: Role of a link over which a process with several routers consumes only, beside the one that it calls over.
CONSUMER_ROLE = "consumer"
MAX_IDENTITY_BYTES = 255
MAX_GROUP = 255
#: Most characters of what a process keeps of an introduction: of an address with its dots, at most 767.
_MAX_SHORT = 1024
MAX_CREDIT = MAX_WINDOW = 65_535
_ERROR = int(Kind.ERROR)
MAX_HANDLE = (1 << 64) - 1
MAX_MOVES = (1 << 32) - 1
#: Most messages that one row of DROPPED counts.
MAX_DROPPED = 1 << 40


def _versions(name: str, value: Any) -> tuple[int, ...]:
    versions = tuple(each for each in value if type(each) is int) if isinstance(value, list) else ()
    if VERSION not in versions:
        raise ProtocolError(f"version {VERSION} is needed; the peer offers {value!r:.40}", "version")
    return versions


def _identity(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ProtocolError(f"identity {value!r} must be a non-empty printable string", "identity")
    if len(value.encode()) > MAX_IDENTITY_BYTES:
        raise ProtocolError(f"identity {value[:40]!r}... is longer than {MAX_IDENTITY_BYTES} bytes", "identity")
    return value


def _queue_type(name: str, value: Any) -> str:
    if value not in QUEUE_TYPES:
        text = f"queue type {value!r} is unknown; known: {', '.join(QUEUE_TYPES)}"
        raise ProtocolError(text, "queue-type")
    return str(value)


def _format_names(name: str, value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _dropped_rows(name: str, value: Any) -> tuple[tuple[str, str, str, int], ...]:
    if not isinstance(value, list) or not all(map(_is_dropped_row, value)):
        raise ProtocolError(f"{name} must be an array of rows of topic, verb, reason and count", "body")
    return tuple(map(tuple, value))


@dataclass(frozen=True, kw_only=True)
class HelloBody(Body):
    """HELLO: a process says who it is, what it can do, and what it had."""

    KIND = Kind.HELLO
    OPTIONAL = frozenset(
        {
            "role", "host", "pid", "program", "library", "keeps", "wants_drops", "answers_drain", "token",
            "follows_mesh", "moves", "routers", "mesh",
        }
    )  # fmt: skip

    identity: str = member(_identity)
    queue_type: str = member(_queue_type)
    role: str = shown(64)
    accepts: tuple[str, ...] = member(_format_names, ())
    host: str = shown()
    #: Written as a number, read as text.
    pid: int | str = shown()
    program: str = shown()
    library: str = shown()
    keeps: bool = flag()
    wants_drops: bool = flag()
    versions: tuple[int, ...] = member(_versions)
    answers_drain: bool = flag()
    token: str = member(lambda name, value: value if isinstance(value, str) else "", "")
    handle: int | None = integer(None, reason="protocol")
    #: The router's life that the process had; informative.
    boot: int | None = member(lambda name, value: value if type(value) is int else None, None)
    received: int | None = integer(None, reason="protocol")
    #: Whether the process goes from router to router within a mesh, and uses one of them for everything.
    follows_mesh: bool = flag()
    #: Number of routers of the mesh that the process knew of.
    routers: int = integer(0, least=0, most=MAX_MOVES)
    #: The router in the keys of the process's messages, with ``handle``: they stay when it moves within a mesh.
    origin_router: int | None = integer(None, least=0, most=(1 << 32) - 1)
    #: The number of sessions that the process has begun after its first one, with this one unless it resumes.
    moves: int = integer(0, least=0, most=MAX_MOVES)
    #: Of a router: see :class:`rpcmq.wire.mesh_bodies.MeshIdentity`; of a process that was in a mesh: its name as
    #: ``mesh``.
    mesh: Mapping[str, Any] = mapping()

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """See :meth:`Body.parse`."""
        # First: in another version, the rest may mean something else.
        _versions("versions", body.get("versions"))
        return super().parse(body)


@dataclass(frozen=True, kw_only=True)
class WelcomeBody(Body):
    """WELCOME: the router says which link it is, and its pace."""

    KIND = Kind.WELCOME
    OPTIONAL = frozenset({"mesh"})

    version: int = integer(VERSION)
    router: str = shown()
    router_id: int = integer(least=0, most=(1 << 32) - 1)
    boot: int = integer()
    handle: int = integer(least=0, most=MAX_HANDLE)
    token: str = text()
    resumed: bool = flag()
    received: int = integer()
    heartbeat_seconds: float = number(5.0, least=0.01)
    unresponsive_seconds: float = number(12.0, least=0.01)
    #: None: 60, or twice ``unresponsive_seconds`` if that is more.
    lost_seconds: float | None = number(None, least=0.01)
    recovery_seconds: float = number(2.5)
    max_message_bytes: int = integer(64 << 20, least=1)
    error_names: bool = flag()
    tells_delivered: bool = flag()
    stamps: bool = flag()
    #: Whether it takes OCCUPIED and GIVE_BACK.
    takes_back: bool = flag()
    #: Whether it takes requests with a stream.
    request_streams: bool = flag()
    #: Whether it takes grants of items of answers in bytes, and items that are counted so.
    byte_credit: bool = flag()
    #: Whether it takes HEDGE.
    hedges: bool = flag()
    #: Whether the process's consumers had been taken for lost; a REGISTERED without a key is to come for each.
    lapsed: bool = flag()
    #: To a process: the routers of the mesh, as in :class:`rpcmq.wire.mesh_bodies.RoutersBody`; to a router: which one
    #: this is (:class:`rpcmq.wire.mesh_bodies.MeshIdentity`). Empty: this router knows no mesh.
    mesh: Mapping[str, Any] = mapping()


@dataclass(frozen=True, kw_only=True)
class RefusedBody(Body):
    """REFUSED: the router, or a peer, does not take a connection or what came on it."""

    KIND = Kind.REFUSED
    OPTIONAL = frozenset({"mesh"})

    reason: str = shown()
    text: str = shown(1 << 20)
    #: In a shutdown: how many messages of the session were read. Anything but an integer is no count.
    received: int | None = member(lambda name, value: value if type(value) is int else None, None)
    #: From a router to another one: which one it is (:class:`rpcmq.wire.mesh_bodies.MeshIdentity`).
    mesh: Mapping[str, Any] = mapping()
    #: The highest incarnation that is known of the router that is refused.
    incarnation: int | None = member(lambda name, value: value if type(value) is int else None, None)


@dataclass(frozen=True, kw_only=True)
class DrainBody(Body):
    """DRAIN from a router: it is shutting down."""

    KIND = Kind.DRAIN

    text: str = shown()
    #: Whether the process is to say when it has sent all that is new.
    answer: bool = flag()


@dataclass(frozen=True, kw_only=True)
class DeclareBody(Body):
    """DECLARE: a topic or group is known from now on."""

    KIND = Kind.DECLARE
    OPTIONAL = frozenset({"group"})

    group: str = text("", most=MAX_GROUP)


@dataclass(frozen=True, kw_only=True)
class RegisterBody(Body):
    """REGISTER: a process consumes a topic."""

    KIND = Kind.REGISTER
    OPTIONAL = frozenset({"group", "recent", "occupied"})

    credit: int = integer(least=1, most=MAX_CREDIT, reason="credit")
    #: Casts that were settled and still run, and so take of the credit.
    occupied: int = integer(0, least=0, most=MAX_CREDIT, reason="credit")
    peer_url: str = shown()
    group: str = text("", most=MAX_GROUP)
    #: Keys of casts that it had and that the router may not know of.
    recent: bytes = hexadecimal(b"")

    def encode(self) -> dict[str, Any]:
        """Return the JSON object, with the keys as text."""
        body = super().encode()
        if self.recent:
            body["recent"] = self.recent.hex()
        return body


@dataclass(frozen=True, kw_only=True)
class RegisteredBody(Body):
    """REGISTERED: the answer to REGISTER, UNREGISTER and DECLARE."""

    KIND = Kind.REGISTERED

    topic: str = shown(1 << 20)


@dataclass(frozen=True, kw_only=True)
class SubscribeBody(Body):
    """SUBSCRIBE: a process wants the events of a pattern."""

    KIND = Kind.SUBSCRIBE

    window: int = integer(1000, least=1, most=MAX_WINDOW, reason="credit")


@dataclass(frozen=True, kw_only=True)
class SubscribedBody(Body):
    """SUBSCRIBED: the answer to SUBSCRIBE and UNSUBSCRIBE."""

    KIND = Kind.SUBSCRIBED
    OPTIONAL = frozenset({"refusal"})

    pattern: str = shown(1 << 20)
    #: Between routers: the reason that there will be no events. A process gets an ERROR instead.
    refusal: str = shown(1 << 20)


@dataclass(frozen=True, kw_only=True)
class IntroductionBody(Body):
    """INTRODUCTION: where a peer listens, who will come, or whose key was revoked."""

    KIND = Kind.INTRODUCTION

    #: The url to connect to; empty for the process that listens, and if none does.
    url: str = string("", most=_MAX_SHORT)
    #: The reason that there is no ``url``.
    text: str | None = shown(1 << 20, None)
    ticket: str | None = string(None, most=_MAX_SHORT)
    identity: str | None = string(None, most=_MAX_SHORT)
    topic: str | None = string(None, most=_MAX_SHORT)
    #: With CURVE: the peer's public key.
    key: str | None = string(None, most=_MAX_SHORT)
    #: To the process that listens: the name of the router that has introduced the caller, if that is not its own.
    via: str | None = string(None, most=_MAX_SHORT)
    #: With CURVE: a public key that has lost rights.
    revoked: str | None = string(None, most=_MAX_SHORT)
    #: Mask of the formats that the peer decodes.
    accepts: int | None = integer(None, least=0)


@dataclass(frozen=True, kw_only=True)
class DirectHelloBody(Body):
    """HELLO on a direct link: the caller that was introduced."""

    KIND = Kind.HELLO

    identity: str = string("")
    ticket: str = string("")
    versions: tuple[int, ...] = member(_versions, (VERSION,))


@dataclass(frozen=True, kw_only=True)
class DirectWelcomeBody(Body):
    """WELCOME on a direct link: the process that was called, and the caller's handle there."""

    KIND = Kind.WELCOME

    identity: str = shown()
    handle: int = integer(least=0, most=MAX_HANDLE)


@dataclass(frozen=True, kw_only=True)
class ErrorBody(Body):
    """ERROR: there is no result, and why."""

    KIND = Kind.ERROR

    #: An :class:`~rpcmq.errors.Outcome`, or one of a later version.
    outcome: int = integer(least=0, most=255)
    text: str = string("")
    #: The same as fields, which depend on the outcome.
    details: Mapping[str, Any] = mapping()

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        # Written out, and so is `message`: a router that refuses much builds many.
        return {"outcome": self.outcome, "text": self.text, "details": self.details}

    def message(self, **header: Any) -> bytes:
        """Return a message with this body; ``header`` as for :func:`rpcmq.wire.pack`."""
        body = {"outcome": self.outcome, "text": self.text, "details": self.details}
        return pack(_ERROR, json_bytes(body), format=1, **header)

    @classmethod
    def for_malformed(cls, problem: ProtocolError) -> ErrorBody:
        """Return the body that stands for one that could not be read: its message has ended all the same."""
        return cls(outcome=Outcome.PROTOCOL, text=f"the message was refused with a malformed ERROR: {problem}")


@dataclass(frozen=True, kw_only=True)
class DroppedBody(Body):
    """DROPPED: casts that the router dropped after it had accepted them."""

    KIND = Kind.DROPPED

    #: Topic, verb, reason, count.
    dropped: tuple[tuple[str, str, str, int], ...] = member(_dropped_rows, ())


def _is_dropped_row(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 4 or type(row[3]) is not int:
        return False
    return all(isinstance(each, str) for each in row[:3]) and 0 < row[3] <= MAX_DROPPED
