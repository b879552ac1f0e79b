"""Effects of a session, which the shell carries out in their order."""

from __future__ import annotations

from dataclasses import dataclass

from rpcmq.gateway.messages import Request

__all__ = [
    "BAD_TOKEN",
    "GOING_AWAY",
    "INTERNAL_FAILURE",
    "INVALID_DATA",
    "POLICY_VIOLATION",
    "TOO_BIG",
    "UNSUPPORTED_DATA",
    "Close",
    "Effect",
    "End",
    "Grant",
    "Send",
    "Start",
]

GOING_AWAY, UNSUPPORTED_DATA, INVALID_DATA, POLICY_VIOLATION, TOO_BIG, INTERNAL_FAILURE = (
    1001,
    1003,
    1007,
    1008,
    1009,
    1011,
)
BAD_TOKEN = 4401
"""Codes of the WebSocket's close (RFC 6455 section 7.4), and one of ours: the token is none, or no more."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection, when what was sent before has gone."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Do what a request asks for, and tell the session how it ends."""

    request: Request


@dataclass(frozen=True, slots=True)
class End:
    """Stop what was started for the request ``id``; nothing more is to be told about it."""

    id: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Let the stream ``id`` have ``count`` more items."""

    id: int
    count: int


Effect = Send | Close | Start | End | Grant
