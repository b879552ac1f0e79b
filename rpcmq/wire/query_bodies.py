"""The JSON bodies of questions to a router, and of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpcmq.wire.body_fields import Body, flag, hexadecimal, integer, mapping, string
from rpcmq.wire.kinds import Kind

__all__ = [
    "CallerAnswer",
    "CallerQuery",
    "KickAnswer",
    "KickQuery",
    "MeshForgetQuery",
    "MeshJoinQuery",
    "MeshLeaveQuery",
    "MeshStateAnswer",
    "NodeControlQuery",
    "NodeRestartQuery",
    "NodeStateAnswer",
    "PurgeAnswer",
    "PurgeQuery",
    "QueryBody",
]


@dataclass(frozen=True, kw_only=True)
class QueryBody(Body):
    """QUERY: a process asks for a view, or for something to be done. The ANSWER of a view is a dict."""

    KIND = Kind.QUERY

    what: str = string("overview", reason="query")


@dataclass(frozen=True, kw_only=True)
class PurgeQuery(QueryBody):
    """QUERY for the control that drops waiting messages."""

    what: str = string("control.purge", reason="query")
    #: With ``.server`` at its end for one server.
    topic: str = string(least=1, reason="query")
    exchange: str = string("", reason="query")
    group: str = string("", reason="query")
    forget: bool = flag()


@dataclass(frozen=True, kw_only=True)
class PurgeAnswer(Body):
    """ANSWER to :class:`PurgeQuery`."""

    KIND = Kind.ANSWER

    #: Whether the router has the topic.
    known: bool = flag()
    casts: int = integer(least=0)
    calls: int = integer(least=0)
    #: Messages that still wait.
    remaining: int = integer(least=0)
    forgotten: bool = flag()


@dataclass(frozen=True, kw_only=True)
class KickQuery(QueryBody):
    """QUERY for the control that ends the links of a process."""

    what: str = string("control.kick", reason="query")
    identity: str = string(least=1, reason="query")


@dataclass(frozen=True, kw_only=True)
class KickAnswer(Body):
    """ANSWER to :class:`KickQuery`."""

    KIND = Kind.ANSWER

    #: The number of links that were ended.
    links: int = integer(least=0)


@dataclass(frozen=True, kw_only=True)
class MeshJoinQuery(QueryBody):
    """QUERY for the control that has a router link to another one."""

    what: str = string("control.mesh.join", reason="query")
    url: str = string(least=1, most=1024, reason="query")
    #: With CURVE: the public key of the router there.
    server_key: str = string("", most=40, reason="query")


@dataclass(frozen=True, kw_only=True)
class MeshForgetQuery(QueryBody):
    """QUERY for the control that has a router dial a url no more."""

    what: str = string("control.mesh.forget", reason="query")
    url: str = string(least=1, most=1024, reason="query")


@dataclass(frozen=True, kw_only=True)
class MeshLeaveQuery(QueryBody):
    """QUERY for the control that has a router end its links to all others."""

    what: str = string("control.mesh.leave", reason="query")


@dataclass(frozen=True, kw_only=True)
class MeshStateAnswer(Body):
    """ANSWER to :class:`MeshJoinQuery`, :class:`MeshForgetQuery` and :class:`MeshLeaveQuery`."""

    KIND = Kind.ANSWER

    #: Whether the router was a member of the mesh before.
    was_member: bool = flag()
    #: The number of routers that it was linked to.
    linked: int = integer(least=0)


@dataclass(frozen=True, kw_only=True)
class NodeRestartQuery(QueryBody):
    """QUERY for the control that has a node start over which is plugged in."""

    what: str = string("control.node.restart", reason="query")
    node: str = string(least=1, most=32, reason="query")


@dataclass(frozen=True, kw_only=True)
class NodeStateAnswer(Body):
    """ANSWER to :class:`NodeRestartQuery`."""

    KIND = Kind.ANSWER

    #: Whether it was out before; and why it is out now, empty: it is not.
    was_out: bool = flag()
    out: str = string("")


@dataclass(frozen=True, kw_only=True)
class NodeControlQuery(QueryBody):
    """QUERY for a control of a node that is plugged in: ``what`` and its arguments, as members of one object."""

    arguments: Mapping[str, Any] = mapping()

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {**self.arguments, "what": self.what}


@dataclass(frozen=True, kw_only=True)
class CallerQuery(QueryBody):
    """QUERY for the sender of a message that the asking process has."""

    what: str = string("caller", reason="query")
    key: bytes = hexadecimal(reason="query")

    def encode(self) -> dict[str, Any]:
        """Return the JSON object, with the key as text."""
        return {"what": self.what, "key": self.key.hex()}


@dataclass(frozen=True, kw_only=True)
class CallerAnswer(Body):
    """ANSWER to :class:`CallerQuery`."""

    KIND = Kind.ANSWER

    #: Empty: it is not known.
    identity: str = string("")
