"""What an engine wants done besides sending what is in the outboxes: a closed list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Action", "Answer", "Disconnect", "Left", "Note"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Send ``part`` to a connection that is no link."""

    route: bytes
    part: bytes


@dataclass(frozen=True, slots=True)
class Note:
    """Worth a line in the log: what kind of event, the sentence, and whom it is about."""

    event: str
    text: str
    identity: str
    #: The same for machines.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Break the connection ``route``."""

    route: bytes


@dataclass(frozen=True, slots=True)
class Left:
    """The connection ``route`` carries no link any more: it has to say HELLO again, or to go."""

    route: bytes


Action = Answer | Disconnect | Left | Note
