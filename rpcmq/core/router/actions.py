"""Actions: everything an engine asks of its shell besides sending the outboxes. A closed list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DIALED", "Action", "Answer", "Dial", "Disconnect", "LinkDetached", "LogEvent"]

#: The names of connections that the engine has asked for begin with this; ZeroMQ's own with a zero byte.
DIALED = b"dial:"


@dataclass(frozen=True, slots=True)
class Answer:
    """Send ``message`` to a connection without a link."""

    route: bytes
    message: bytes


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log event: its kind, the sentence, and the identity it is about."""

    event: str
    text: str
    identity: str
    #: The event's fields, for machines.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Break the connection ``route``."""

    route: bytes


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The connection ``route`` has lost its link: it must say HELLO again, or be closed."""

    route: bytes


@dataclass(frozen=True, slots=True)
class Dial:
    """Open a connection to another router, and call it ``route``.

    The shell says ``Router.connected`` when it stands, and once ``Router.lost`` when it could not be had or is gone.
    """

    #: Begins with :data:`DIALED`, as the name of no connection does that others have opened.
    route: bytes
    url: str
    #: With CURVE: the public key of the other router.
    server_key: str = ""


Action = Answer | Dial | Disconnect | LinkDetached | LogEvent
