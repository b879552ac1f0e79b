"""Listening sockets, and the HTTP request with which each connection begins."""

from __future__ import annotations

import socket
from itertools import chain
from time import monotonic
from typing import Any

import gevent
from gevent.socket import socket as GeventSocket

from rpcmq.errors import ConfigError
from rpcmq.gateway.http import BadRequest, HttpRequest, RequestReader, answer
from rpcmq.gateway.pages import Page

__all__ = ["end_connection", "listen", "read_request", "send_page", "send_refusal", "shown_address"]

_RECEIVE_BYTES = 16 * 1024
_BACKLOG = 1024
#: Time that the other side has to end a connection once it has its answer (seconds).
_LAST_SECONDS = 1.0
_LAST_BYTES = 64 * 1024


def listen(address: str, name: str) -> Any:
    """Return a socket that listens at ``address``, which the setting ``name`` gives.

    Raises:
        ConfigError: it cannot.
    """
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, where = found[0]
        made = GeventSocket(family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(where)
            made.listen(_BACKLOG)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise ConfigError(f"{name} = {address!r}: cannot listen there: {error.strerror or error}") from None
    return made


def shown_address(sock: Any) -> str:
    """Return host and port of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_request(sock: Any) -> HttpRequest | None:
    """Return the request that comes over ``sock``; None: the connection ended before it began.

    Raises:
        BadRequest: it is none.
    """
    reader = RequestReader()
    is_begun = False
    while data := sock.recv(_RECEIVE_BYTES):
        is_begun = True
        if request := reader.feed(data):
            return request
    if is_begun:
        raise BadRequest(400, "the connection ended before the request did")
    return None


def send_refusal(sock: Any, error: BadRequest) -> None:
    """Answer a request that is refused."""
    sock.sendall(answer(error.status, f"{error}\n".encode(), more=error.headers.items()))


def send_page(sock: Any, page: Page, head_only: bool, stalled_seconds: float) -> None:
    """Answer a request with a file, however long that takes.

    Args:
        stalled_seconds: in which the other side must take each piece of it.

    Raises:
        OSError: it does not, or the connection is broken.
    """
    headers = [("Content-Length", str(page.size))]
    pieces = chain([answer(200, content_type=page.content_type, more=headers)], () if head_only else page.chunks())
    for piece in pieces:
        try:
            with gevent.Timeout(stalled_seconds, TimeoutError):
                sock.sendall(piece)
        except TimeoutError:
            text = f"a page was not taken within times.stalled_seconds = {stalled_seconds:g}"
            raise ConnectionAbortedError(text) from None


def end_connection(sock: Any) -> None:
    """End a connection after its answer, so that the answer arrives: read first what still comes, within bounds."""
    try:
        sock.settimeout(_LAST_SECONDS)
        sock.shutdown(socket.SHUT_WR)
        end = monotonic() + _LAST_SECONDS
        while sock.recv(_LAST_BYTES) and monotonic() < end:
            gevent.sleep(0)  # to read what is there already lets nobody else run
    except OSError:
        pass  # it is broken, or the other side keeps it open
