"""Explanations of failed connections to a router, as far as libzmq gives the reason."""

from __future__ import annotations

import zmq

from rpcmq.core.process.dialer import Phase

__all__ = ["connection_error", "is_about_keys"]

_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)


def connection_error(event: int, value: int, url: str, phase: Phase, has_keys: bool) -> str:
    """Return why the attempt to connect to ``url`` has failed in ``phase``.

    Args:
        event, value: as the monitor of the socket reports them.
        has_keys: whether this process uses CURVE.
    """
    if event == zmq.EVENT_CLOSED:
        return "nothing listens there"
    if event not in _HANDSHAKE_FAILED and phase is Phase.GREETING:
        return "the connection was closed"
    return f"handshake with {url} failed: {_handshake_error(event, value, has_keys)}"


def is_about_keys(event: int, phase: Phase) -> bool:
    """Return whether the attempt that failed in ``phase``, as ``event`` says, reached a router that refused it."""
    return event in _HANDSHAKE_FAILED or (event != zmq.EVENT_CLOSED and phase is Phase.HANDSHAKE)


def _handshake_error(event: int, value: int, has_keys: bool) -> str:
    # A router that does not take our first words only closes the connection.
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        text = "the router does not accept the key of our key_file: it was revoked, has expired, or was never added"
        return f"{text} (status {value})"
    if not has_keys:
        return "it closed the connection; it may require CURVE (give a key_file), or not be an rpcmq router"
    closed = "it uses another security mechanism" if event == zmq.EVENT_DISCONNECTED else "it closed the connection"
    return f"{closed}; `router` in our key_file may not be its key, or it runs without CURVE"
