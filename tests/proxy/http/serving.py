"""A server of the proxy's HTTP for tests, and raw connections to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gevent.socket import create_connection

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.messages import Headers, ResponseHead

SECONDS = 30
HEAD = ResponseHead(200, Headers((("Content-Type", "text/plain"),)))


def echo(exchange: Exchange) -> None:
    """Answer with the method, the target and the request's body."""
    body = b"".join(exchange.body())
    exchange.send(HEAD, exchange.request.method + b" " + exchange.request.target + b" " + body)


@dataclass
class Served:
    """A server, and its address."""

    server: HttpServer
    address: tuple[str, int]

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A socket of a client."""
        sock = create_connection(self.address, timeout=SECONDS)
        try:
            yield sock
        finally:
            sock.close()

    def said(self, data: bytes) -> bytes:
        """Send ``data`` and return all that comes until the server closes."""
        with self.connected() as sock:
            sock.sendall(data)
            return everything(sock)


def everything(sock: Any) -> bytes:
    """Return what comes until the end; a reset is an end, too."""
    pieces = []
    try:
        while piece := sock.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass  # how a broken response ends
    return b"".join(pieces)


@contextmanager
def serving(
    handler: Callable[[Exchange], None] = echo, *, context: Callable[[], Any] | None = None, **limits: Any
) -> Iterator[Served]:
    server = HttpServer(handler, Limits(**limits))
    listener = listen("127.0.0.1:0", name="test")
    address: tuple[str, int] = listener.getsockname()
    server.serve_on(listener, context)
    try:
        yield Served(server, address)
    finally:
        server.stop(SECONDS)
