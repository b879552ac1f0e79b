"""Tunnels for WebSocket (RFC 6455), straight from a front end to an origin."""

from __future__ import annotations

import socket
from time import monotonic
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

#: Bytes of each way that a tunnel holds for a side that is slow.
_CHUNK = 16 * 1024
_TURN_BYTES = 256 * 1024
_HEAD_BYTES = 64 * 1024
_ATTEMPTS = 3
#: Seconds that the other side of a tunnel has when one has ended.
_LAST_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60


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
        asked = origin_head("GET", request_lines("GET", head.target, fields), 0)
        try:
            answer = _ask(connection, asked, site.first_byte_seconds)
        except (TimeoutError, BlockingIOError):
            exchange.send_error(504, "The origin did not answer in time.", closes=True)
            return
        except OSError:
            exchange.send_error(502, "The origin did not answer.", closes=True)
            return
        status = answer[9:12]
        if not answer.startswith(b"HTTP/1.1 ") or b"\r\n\r\n" not in answer:
            exchange.send_error(502, "The origin sent no response of HTTP.", closes=True)
            return
        exchange.status = int(status) if status.isdigit() else 502
        downstream, rest = exchange.tunnel()
        downstream.sendall(answer)
        exchange.is_finished = True
        if status == b"101":
            if rest:
                upstream.sendall(rest)
            _relay(exchange, downstream, upstream)
        else:
            upstream.settimeout(site.idle_seconds)
            _copy(upstream, downstream, exchange)
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
    end = monotonic() + seconds
    upstream.settimeout(seconds)
    upstream.sendall(head)
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < _HEAD_BYTES:
        upstream.settimeout(max(end - monotonic(), 0.0))
        data: bytes = upstream.recv(_CHUNK)
        if not data:
            break
        answer += data
    return answer


def _relay(exchange: Exchange, downstream: Any, upstream: Any) -> None:
    """Copy both ways until both sides have ended; soon after one has, and at once where a connection is broken."""
    for sock in (downstream, upstream):
        sock.settimeout(None)
        # Either side may be silent for hours; one whose host is gone must not be waited for.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS)
    ways = gevent.spawn(_copy, downstream, upstream), gevent.spawn(_copy, upstream, downstream, exchange)
    try:
        (ended,) = gevent.wait(ways, count=1)
        if ended.value:
            gevent.joinall(ways, timeout=_LAST_SECONDS)
    finally:
        gevent.killall(ways)


def _copy(source: Any, target: Any, exchange: Exchange | None = None) -> bool:
    """Copy until ``source`` ends, and tell ``target``; return whether neither is broken.

    Args:
        exchange: counts the bytes.
    """
    try:
        turn = 0
        while data := source.recv(_CHUNK):
            target.sendall(data)
            turn += len(data)
            if turn >= _TURN_BYTES:
                # Sockets that are always ready never let go of the loop by themselves.
                turn = 0
                gevent.sleep(0)
            if exchange is not None:
                exchange.sent += len(data)
        socket.socket.shutdown(target._sock, socket.SHUT_WR)
    except OSError:
        return False
    return True
