"""The JSON bodies of control messages. ``docs/protocol.md`` says what their members mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rpcmq.errors import ProtocolError
from rpcmq.wire.body_fields import Body, flag, integer, member, number, shown, text
from rpcmq.wire.kinds import VERSION, Kind

__all__ = [
    "QUEUE_TYPES",
    "DeclareBody",
    "DrainBody",
    "HelloBody",
    "IntroductionBody",
    "RefusedBody",
    "RegisterBody",
    "RegisteredBody",
    "SubscribeBody",
    "SubscribedBody",
    "WelcomeBody",
]

QUEUE_TYPES = ("roundrobin", "pubsub")
MAX_IDENTITY_BYTES = 255
MAX_GROUP = 255
MAX_CREDIT = MAX_WINDOW = 65_535


def _versions(name: str, value: Any) -> tuple[int, ...]:
    versions = tuple(each for each in value if type(each) is int) if isinstance(value, list) else ()
    if VERSION not in versions:
        raise ProtocolError(f"this router speaks version {VERSION}, the process {value!r}", "version")
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


def _hexadecimal(name: str, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise ProtocolError(f"{name} must be hexadecimal text", "body") from None


@dataclass(frozen=True, kw_only=True)
class HelloBody(Body):
    """HELLO: a process says who it is, what it can do, and what it had."""

    KIND = Kind.HELLO

    versions: tuple[int, ...] = member(_versions)
    identity: str = member(_identity)
    queue_type: str = member(_queue_type)
    handle: int | None = integer(None, reason="protocol")
    received: int | None = integer(None, reason="protocol")
    token: str = member(lambda name, value: value if isinstance(value, str) else "", "")
    accepts: tuple[str, ...] = member(_format_names, ())
    role: str = shown(64)
    keeps: bool = flag()
    answers_drain: bool = flag()
    wants_drops: bool = flag()
    host: str = shown()
    pid: str = shown()
    program: str = shown()
    library: str = shown()


@dataclass(frozen=True, kw_only=True)
class WelcomeBody(Body):
    """WELCOME: the router says which link it is, and its pace."""

    KIND = Kind.WELCOME

    version: int = integer(VERSION)
    router: str = shown()
    router_id: int = integer(least=0, most=(1 << 32) - 1)
    boot: int = integer()
    handle: int = integer(least=0, most=(1 << 64) - 1)
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


@dataclass(frozen=True, kw_only=True)
class RefusedBody(Body):
    """REFUSED: the router, or a peer, does not take a connection or what came on it."""

    KIND = Kind.REFUSED

    reason: str = shown()
    text: str = shown(1 << 20)
    #: In a shutdown: how many messages of the session were read. Anything but an integer is no count.
    received: int | None = member(lambda name, value: value if type(value) is int else None, None)


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

    group: str = text("", most=MAX_GROUP)


@dataclass(frozen=True, kw_only=True)
class RegisterBody(Body):
    """REGISTER: a process consumes a topic."""

    KIND = Kind.REGISTER

    credit: int = integer(least=1, most=MAX_CREDIT, reason="credit")
    group: str = text("", most=MAX_GROUP)
    #: Keys of casts that it had and that the router may not know of.
    recent: bytes = member(_hexadecimal, b"")
    peer_url: str = shown()

    def encode(self) -> dict[str, Any]:
        """Return the JSON object, with the keys as text."""
        return super().encode() | {"recent": self.recent.hex()}


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

    pattern: str = shown(1 << 20)


@dataclass(frozen=True, kw_only=True)
class IntroductionBody(Body):
    """INTRODUCTION: where a peer listens, who will come, or whose key was revoked."""

    KIND = Kind.INTRODUCTION

    #: Where to connect; empty for who listens, and if nobody does.
    url: str = member(lambda name, value: value if isinstance(value, str) else "", "")
    #: Why there is no ``url``.
    text: str | None = shown(1 << 20, None)
    ticket: str | None = shown(default=None)
    identity: str | None = shown(default=None)
    topic: str | None = shown(1 << 20, None)
    #: With CURVE: the peer's public key.
    key: str | None = shown(default=None)
    #: With CURVE: a public key that has lost rights.
    revoked: str | None = shown(default=None)
    #: Mask of the formats that the peer decodes.
    accepts: int | None = member(lambda name, value: value if type(value) is int else None, None)
