"""Actions: everything an engine asks of its shell besides sending the outboxes. A closed list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Action", "Answer", "Disconnect", "LinkDetached", "LogEvent"]


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


Action = Answer | Disconnect | LinkDetached | LogEvent
