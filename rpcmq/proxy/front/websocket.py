"""Tunnels for WebSocket (RFC 6455), straight from a front end to an origin."""

from __future__ import annotations

import socket
from time import monotonic
from typing import Any

import gevent

from rpcmq.proxy.fetcher.connection import OriginConnection, OriginResponse, OriginStalled, OriginUnreachable
from rpcmq.proxy.fetcher.fetch import request_head as origin_head
from rpcmq.proxy.fetcher.fetch import request_lines
from rpcmq.proxy.fetcher.origins import Origins
from rpcmq.proxy.fetcher.responses import MalformedResponse, ResponseParser
from rpcmq.proxy.front.heads import fields_for_origin, request_head
from rpcmq.proxy.http.errors import ClientGone
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead, end_to_end

__all__ = ["tunnel"]

#: Bytes of each way that a tunnel holds for a side that is slow.
_CHUNK = 16 * 1024
_TURN_BYTES = 256 * 1024
#: Bytes that each piece counts for, however short: records of TLS may have one byte each.
_PIECE_BYTES = 2 * 1024
_HEAD_BYTES = 64 * 1024
_SWITCHED = b"HTTP/1.1 101"
_ATTEMPTS = 3
#: Seconds that the other side of a tunnel has when one has ended.
_LAST_SECONDS = 5.0
_KEEPALIVE_SECONDS = 60


def tunnel(exchange: Exchange, origins: Origins, *, trust_forwarded: bool) -> None:
    """Pass a request to switch to WebSocket to an origin, and then all that either side says to the other.

    An origin that does not switch gives its answer, as any response, after which the connection is closed.
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
            response = None if answer.startswith(_SWITCHED) else _response(connection, answer)
        except (TimeoutError, BlockingIOError):
            exchange.send_error(504, "The origin did not answer in time.", closes=True)
            return
        except OSError:
            exchange.send_error(502, "The origin did not answer.", closes=True)
            return
        except MalformedResponse:
            exchange.send_error(502, "The origin sent no response of HTTP.", closes=True)
            return
        if response is not None:
            upstream.settimeout(site.idle_seconds)
            _pass_on(exchange, response)
            return
        exchange.status = 101
        downstream, rest = exchange.tunnel()
        downstream.sendall(answer)
        exchange.is_finished = True
        if rest:
            upstream.sendall(rest)
        _relay(exchange, downstream, upstream)
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
    """Send ``head``; return the head of the response, and what came with it.

    Raises:
        MalformedResponse: it has no end.
        OSError: it does not come.
    """
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
    if b"\r\n\r\n" not in answer:
        raise MalformedResponse("its head has no end")
    return answer


def _response(connection: OriginConnection, answer: bytes) -> OriginResponse:
    """Return the response that begins with ``answer``.

    Raises:
        MalformedResponse: it is none.
        OSError: the rest of its head does not come.
    """
    parser = ResponseParser()
    parser.feed(answer)
    while not parser.has_head:
        data = connection.socket.recv(_CHUNK)
        if not data:
            raise MalformedResponse("the connection ended before a response")
        parser.feed(data)
    return OriginResponse(connection, parser)


def _pass_on(exchange: Exchange, response: OriginResponse) -> None:
    """Send a response to the client, after which its connection ends."""
    parser = response.parser
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in parser.headers]
    exchange.keep_alive = False
    exchange.start(ResponseHead(parser.status, end_to_end(Headers(fields)), parser.reason), parser.length)
    for piece in response.body():
        exchange.write(piece)
    exchange.finish()


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
            turn += max(len(data), _PIECE_BYTES)
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
