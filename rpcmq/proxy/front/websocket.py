"""Tunnels for WebSocket (RFC 6455), straight from a front end to an origin."""

from __future__ import annotations

import socket
from typing import Any

import gevent

from rpcmq.proxy.fetcher.connection import OriginConnection, OriginStalled, OriginUnreachable
from rpcmq.proxy.fetcher.fetch import request_head as origin_head
from rpcmq.proxy.fetcher.fetch import request_lines
from rpcmq.proxy.fetcher.origins import Origins
from rpcmq.proxy.front.heads import fields_for_origin, request_head
from rpcmq.proxy.http.errors import ClientGone
from rpcmq.proxy.http.exchange import Exchange

__all__ = ["tunnel"]

_CHUNK = 64 * 1024
_HEAD_BYTES = 64 * 1024
_ATTEMPTS = 3


def tunnel(exchange: Exchange, origins: Origins, *, trust_forwarded: bool) -> None:
    """Pass a request to switch to WebSocket to an origin, and then all that either side says to the other.

    An origin that does not switch gives its answer, after which the connection is closed.
    """
    head = request_head(exchange)
    site = origins.site
    fields = fields_for_origin(head, exchange.peer, site.host, trust_forwarded=trust_forwarded, upgrade="websocket")
    connection = _connected(origins)
    if connection is None:
        exchange.send_error(502, "No origin can be reached.")
        return
    try:
        upstream = connection.socket
        answer = _ask(
            connection, origin_head("GET", request_lines("GET", head.target, fields), 0), site.first_byte_seconds
        )
        status = answer[9:12]
        exchange.status = int(status) if status.isdigit() else 502
        if not answer.startswith(b"HTTP/1.1 ") or b"\r\n\r\n" not in answer:
            exchange.send_error(502, "The origin sent no response of HTTP.", closes=True)
            return
        downstream, rest = exchange.tunnel()
        upstream.settimeout(None)
        downstream.sendall(answer)
        exchange.is_finished = True
        if status == b"101":
            if rest:
                upstream.sendall(rest)
            other = gevent.spawn(_copy, downstream, upstream)
            exchange.sent += _copy(upstream, downstream)
            other.join(timeout=1.0)
            other.kill()
        else:
            exchange.sent += _copy(upstream, downstream)
    except OSError as error:
        raise ClientGone(f"the tunnel broke: {error}") from None
    finally:
        connection.close()


def _connected(origins: Origins) -> OriginConnection | None:
    for origin in list(origins.in_order())[:_ATTEMPTS]:
        try:
            return origin.connection(fresh=True)
        except (OriginUnreachable, OriginStalled):
            origin.has_failed()
    return None


def _ask(connection: OriginConnection, head: bytes, seconds: float) -> bytes:
    """Send ``head``; return the head of the response, and what came with it."""
    upstream = connection.socket
    upstream.settimeout(seconds)
    upstream.sendall(head)
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < _HEAD_BYTES:
        data: bytes = upstream.recv(_CHUNK)
        if not data:
            break
        answer += data
    return answer


def _copy(source: Any, target: Any) -> int:
    """Copy until either ends; return the number of bytes."""
    count = 0
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
            count += len(data)
        socket.socket.shutdown(target._sock, socket.SHUT_WR)
    except OSError:
        pass  # one of them is gone: so is the tunnel
    return count
