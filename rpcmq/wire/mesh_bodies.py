"""The JSON bodies of the messages between routers, and of what processes are told of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpcmq.errors import ProtocolError
from rpcmq.wire.body_fields import Body, flag, integer, mapping, member, string, text
from rpcmq.wire.consumer_name import ORIGIN_BYTES, ConsumerName
from rpcmq.wire.kinds import Kind

__all__ = [
    "MAX_DOMAINS",
    "MAX_INCARNATION",
    "MAX_NEIGHBOURS",
    "MAX_QUEUE_SERVER",
    "MAX_ROUTERS",
    "IntroduceBody",
    "KnowsBody",
    "MemberBody",
    "MembersBody",
    "MeshIdentity",
    "NodeNewsBody",
    "RoutersBody",
]

#: Most routers of a mesh, and most urls of one.
MAX_ROUTERS, _MAX_URLS = 1000, 16
_MAX_URL, _MAX_NAME, _MAX_KEY = 1024, 255, 40
#: Most characters of all urls of a router, and of all its domains.
_MAX_URLS_LENGTH = _MAX_DOMAINS_LENGTH = 4096
#: Most routers that one is linked to, and most domains of one.
MAX_NEIGHBOURS, MAX_DOMAINS = 100, 100
#: Most characters of the state of a queue server.
MAX_QUEUE_SERVER = 300
_MAX_ID = (1 << 32) - 1
_ORIGIN = re.compile(f"[0-9a-f]{{{2 * ORIGIN_BYTES}}}")
#: Of all lives of a router the last: an integer that every JSON parser reads exactly.
MAX_INCARNATION = (1 << 53) - 1


def _urls(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MAX_URLS:
        raise ProtocolError(f"{name} must be an array of at most {_MAX_URLS} urls", "body")
    if not all(isinstance(url, str) and url.isprintable() and len(url) <= _MAX_URL for url in value):
        raise ProtocolError(f"{name} has an entry that is no url of at most {_MAX_URL} printable characters", "body")
    if sum(map(len, value)) > _MAX_URLS_LENGTH:
        raise ProtocolError(f"{name} have more than {_MAX_URLS_LENGTH} characters together", "body")
    return tuple(value)


def _routers(name: str, value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, list) or len(value) > MAX_ROUTERS:
        raise ProtocolError(f"{name} must be an array of at most {MAX_ROUTERS} routers", "body")
    rows = []
    for row in value:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise ProtocolError(f"{name} has an entry that is no object with a name", "body")
        rows.append((row["name"][:_MAX_NAME], _urls(f"{name}.urls", row.get("urls"))))
    return tuple(rows)


def _domains(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_DOMAINS:
        raise ProtocolError(f"{name} must be an array of at most {MAX_DOMAINS} patterns", "body")
    if not all(isinstance(each, str) and each.isprintable() and 0 < len(each) <= _MAX_NAME for each in value):
        raise ProtocolError(f"{name} has an entry that is no pattern of at most {_MAX_NAME} characters", "body")
    if sum(map(len, value)) > _MAX_DOMAINS_LENGTH:
        raise ProtocolError(f"{name} have more than {_MAX_DOMAINS_LENGTH} characters together", "body")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class MeshIdentity(Body):
    """A router to another one, in HELLO and WELCOME."""

    OPTIONAL = frozenset({"key", "domains", "logs", "pieces", "nodes"})

    #: The name of the mesh.
    mesh: str = text(most=_MAX_NAME)
    name: str = text(most=_MAX_NAME)
    id: int = integer(least=1, most=_MAX_ID)
    incarnation: int = integer(least=0, most=MAX_INCARNATION)
    urls: tuple[str, ...] = member(_urls, ())
    #: Its public key, with which it is dialled; empty without CURVE.
    key: str = text("", most=_MAX_KEY)
    #: Patterns of the topics that only its own consumers serve.
    domains: tuple[str, ...] = member(_domains, ())
    #: Whether it has a dispatch log, and so is to be told where its requests ran.
    logs: bool = flag()
    #: Whether it takes large payloads as PIECEs, and tells with READ what it has read of RELAYs.
    pieces: bool = flag()
    #: Whether it takes NODE_NEWS.
    nodes: bool = flag()


def _neighbours(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_NEIGHBOURS:
        raise ProtocolError(f"{name} must be an array of at most {MAX_NEIGHBOURS} router ids", "body")
    if not all(type(each) is int and 0 < each <= _MAX_ID for each in value):
        raise ProtocolError(f"{name} has an entry that is no router id", "body")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class MemberBody(MeshIdentity):
    """A router as it tells all others of itself, in MEMBERS."""

    OPTIONAL = MeshIdentity.OPTIONAL | {"age", "queue_server"}

    #: Counts what it has told in this incarnation.
    sequence: int = integer(least=0, most=MAX_INCARNATION)
    #: Ids of the routers that it is linked to.
    neighbours: tuple[int, ...] = member(_neighbours)
    #: Whether it has left the mesh.
    left: bool = flag()
    #: Milliseconds since it has told that, as far as the one that passes it on knows.
    age: int = integer(0, least=0, most=MAX_INCARNATION)
    #: Number of its processes that other routers could take; None: it does not tell.
    processes: int | None = integer(None, least=0, most=MAX_INCARNATION)
    #: The state of its queue server, as ``starting`` or ``unavailable: REASON``; empty: it has none.
    queue_server: str = text("", most=MAX_QUEUE_SERVER)


def _members(name: str, value: Any) -> tuple[MemberBody, ...]:
    if not isinstance(value, list) or len(value) > MAX_ROUTERS or not all(isinstance(each, dict) for each in value):
        raise ProtocolError(f"{name} must be an array of at most {MAX_ROUTERS} objects", "body")
    return tuple(map(MemberBody.parse, value))


@dataclass(frozen=True, kw_only=True)
class MembersBody(Body):
    """MEMBERS: routers that one knows, to another one."""

    KIND = Kind.MEMBERS

    members: tuple[MemberBody, ...] = member(_members)

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"members": [each.encode() for each in self.members]}


def _names(name: str, value: Any) -> tuple[ConsumerName, ...]:
    if not isinstance(value, dict) or not all(
        isinstance(identity, str) and len(identity) <= _MAX_NAME and _ORIGIN.fullmatch(origin)
        for origin, identity in value.items()
    ):
        raise ProtocolError(f"{name} must be an object of origins, in hexadecimal, and identities", "body")
    return tuple(ConsumerName(bytes.fromhex(origin), identity) for origin, identity in value.items())


@dataclass(frozen=True, kw_only=True)
class KnowsBody(Body):
    """KNOWS: the consumers of an address that a router knows of, as it was asked with WHERE."""

    KIND = Kind.KNOWS

    #: Their names, wherever they are linked.
    consumers: tuple[ConsumerName, ...] = member(_names, ())

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"consumers": {each.origin.hex(): each.identity for each in self.consumers}}


@dataclass(frozen=True, kw_only=True)
class NodeNewsBody(Body):
    """NODE_NEWS: what a node that is plugged into a router tells the nodes of its name at others."""

    KIND = Kind.NODE_NEWS

    node: str = text(most=_MAX_NAME)
    news: Mapping[str, Any] = mapping()


@dataclass(frozen=True, kw_only=True)
class IntroduceBody(Body):
    """INTRODUCE between routers: the caller that is to be introduced."""

    KIND = Kind.INTRODUCE

    identity: str = string(least=1, most=_MAX_NAME)
    #: With CURVE: its public key.
    key: str | None = string(None, most=_MAX_NAME)


@dataclass(frozen=True, kw_only=True)
class RoutersBody(Body):
    """ROUTERS: the routers of the mesh, to a process; also in its WELCOME."""

    KIND = Kind.ROUTERS

    #: The name of the mesh.
    mesh: str = text(most=_MAX_NAME)
    #: Name and urls of each.
    routers: tuple[tuple[str, tuple[str, ...]], ...] = member(_routers, ())
    #: The public key of the router at a url, where that is another one than the process was given; with CURVE.
    keys: Mapping[str, Any] = mapping()
    #: In WELCOME: whether the router goes on with calls that another one had, by asking the consumers for them.
    adopts: bool = flag()
    #: A url of the router that this process is asked to go on at, as that has fewer processes; empty: it is not asked.
    go_to: str = text("", most=_MAX_URL)

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        rows = [{"name": name, "urls": list(urls)} for name, urls in self.routers]
        optional = {"keys": self.keys, "adopts": self.adopts, "go_to": self.go_to}
        return {"mesh": self.mesh, "routers": rows} | {name: value for name, value in optional.items() if value}
