"""Bounds on what a client may send, and how slowly."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]

_KIB = 1024


@dataclass(frozen=True)
class Limits:
    """Bounds of a front end's connections.

    Attributes:
        target_bytes: longest request target; a longer one is answered with 414.
        header_bytes: all fields of a request, their names, values and line ends; beyond it 431.
        header_count: fields of a request; beyond it 431.
        body_bytes: longest body of a request; a longer one is answered with 413.
        header_seconds: from the first byte of a request to the end of its head; beyond it 408. The TLS handshake has
            as long.
        idle_seconds: silence between two requests after which a connection is closed.
        min_rate: bytes a second at which a body must come, and a response be taken, in the mean of ``rate_seconds``.
        rate_seconds: see ``min_rate``.
        connections: at a time, of one process; further ones are refused.
        connections_for_address: the same for one address of clients.
        requests_for_connection: after which a connection is closed.
        fetches_for_address: requests of one address of clients for which origins are asked, at a time and of one
            process; a further one is answered with 503. 0: no bound.
        unread_bytes: of responses that clients have yet to read, of all of them together and of one process, apart from
            pieces up to 16 KiB; beyond it the client that reads slowest is cut off.
    """

    target_bytes: int = 8 * _KIB
    header_bytes: int = 32 * _KIB
    header_count: int = 100
    body_bytes: int = 1024 * _KIB * _KIB
    header_seconds: float = 10.0
    idle_seconds: float = 60.0
    min_rate: int = 512
    rate_seconds: float = 10.0
    connections: int = 10_000
    connections_for_address: int = 1_000
    requests_for_connection: int = 100_000
    fetches_for_address: int = 100
    unread_bytes: int = 512 * _KIB * _KIB
