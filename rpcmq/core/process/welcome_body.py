"""The body of WELCOME, checked: who the router is, and its times and limits."""

from __future__ import annotations

from struct import pack
from typing import Any, NamedTuple

from rpcmq.errors import ProtocolError

__all__ = ["WelcomeBody", "parse_welcome"]

#: Members without which there is no link.
_REQUIRED = {"router_id": int, "boot": int, "handle": int, "token": str, "received": int}
#: Recovery window assumed if the router does not state it (seconds).
_RECOVERY = 2.5
_MAX_RECOVERY = 3600.0
_MAX_MESSAGE_BYTES = 64 << 20


class WelcomeBody(NamedTuple):
    """What a router says of itself.

    Attributes:
        origin: router and handle, of the messages that this process sends.
        heartbeat_seconds: between two heartbeats.
        unresponsive_seconds: of silence that is reported.
        lost_seconds: of silence after which the connection is given up.
        max_message_bytes: largest payload.
        recovery_seconds: how soon this process must be back after a restart of the router.
    """

    origin: bytes
    heartbeat_seconds: float
    unresponsive_seconds: float
    lost_seconds: float
    max_message_bytes: int
    recovery_seconds: float


def parse_welcome(body: dict[str, Any]) -> WelcomeBody:
    """Return the members of ``body`` that this process uses.

    Raises:
        ProtocolError: one is missing or impossible.
    """
    for name, kind in _REQUIRED.items():
        if type(body.get(name)) is not kind:
            raise ProtocolError(f"WELCOME has no {name}", "body")
    try:
        origin = pack(">IQ", body["router_id"], body["handle"])
    except Exception as error:
        raise ProtocolError(f"WELCOME has an impossible origin: {error}", "body") from None
    heartbeat = _number(body, "heartbeat_seconds", 5.0)
    unresponsive = _number(body, "unresponsive_seconds", 12.0)
    lost = _number(body, "lost_seconds", max(60.0, 2 * unresponsive))
    most = body.get("max_message_bytes", _MAX_MESSAGE_BYTES)
    if type(most) is not int:
        raise ProtocolError(f"WELCOME has an impossible max_message_bytes: {most!r:.40}", "body")
    if not (heartbeat >= 0.01 and unresponsive >= 0.01 and lost >= 0.01 and most > 0):
        raise ProtocolError(f"WELCOME has impossible settings: {heartbeat}, {unresponsive}, {lost}, {most}", "body")
    recovery = _number(body, "recovery_seconds", _RECOVERY)
    if not recovery >= 0:
        raise ProtocolError(f"WELCOME has an impossible recovery_seconds: {recovery!r:.40}", "body")
    return WelcomeBody(origin, heartbeat, unresponsive, max(lost, 2 * heartbeat), most, min(recovery, _MAX_RECOVERY))


def _number(body: dict[str, Any], name: str, default: float) -> float:
    value = body.get(name, default)
    try:
        if type(value) is int or type(value) is float:
            return float(value)
    except OverflowError:
        pass
    raise ProtocolError(f"WELCOME has an impossible {name}: {value!r:.40}", "body")
