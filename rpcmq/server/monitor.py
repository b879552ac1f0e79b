"""The router's state over HTTP: JSON, and text for Prometheus; read-only.

Whoever reaches the port may ask, so what a connection can hold is bounded: one request, its bytes, its time from
the first byte to the last of the answer, and the number of connections, of which the oldest of whoever has most is
cut for a new one. A page of another site cannot ask through the browser of somebody who may: the name in ``Host``
must be one of this router (DNS rebinding).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from socket import gethostname
from typing import Any

from gevent import get_hub, socket
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from rpcmq.errors import ConfigError

__all__ = ["Monitor"]

#: Connections at once, and what each may take from its first byte to the last of its answer (seconds).
_CONNECTIONS = 64
_SECONDS = 10.0
#: Time that the other side has to end a connection once it has its answer (seconds).
_LAST_SECONDS = 1.0
#: Bytes of a request: its first line and headers.
_REQUEST_BYTES = 16 * 1024
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_STATUS = {
    200: "200 OK",
    404: "404 Not Found",
    405: "405 Method Not Allowed",
    421: "421 Misdirected Request",
    503: "503 Service Unavailable",
}

#: Result of a page: a status, and a JSON value or Prometheus text.
Page = Callable[[], tuple[int, Any]]


class _Head:
    """A request as it is read: its first line and headers, and no more of them than may be."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = _REQUEST_BYTES

    def readline(self, limit: int) -> bytes:
        line: bytes = self._file.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise ValueError(f"the request has more than {_REQUEST_BYTES} bytes")
        return line

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._file.close()


class _Handler(WSGIHandler):
    """One request, then the connection is closed: further ones that came with it are not answered."""

    server: _Server

    def __init__(self, sock: Any, address: Any, server: _Server) -> None:
        super().__init__(sock, address, server)
        head: Any = _Head(self.rfile)
        self.rfile = head

    def get_environ(self) -> dict[str, Any]:
        self.close_connection = True
        # No page reads a request body, so do not wait for one.
        self.content_length = 0
        del self.headers["Transfer-Encoding"]
        del self.headers["Expect"]
        return super().get_environ()

    def handle(self) -> None:
        # A second descriptor, for what is left to do when the first is closed.
        with self.socket.dup() as connection, self.server.place(connection, self.client_address):
            super().handle()
            _end(connection)


class _Server(WSGIServer):
    def __init__(self, listener: socket.socket, application: Callable[..., Iterable[bytes]]) -> None:
        # One slot is always free for a new connection, so that no client can hold all of them.
        places = Pool(_CONNECTIONS + 1)
        # A failing page is reported to the hub; bad requests only get an error response.
        super().__init__(listener, application, spawn=places, handler_class=_Handler, log=None, error_log=None)
        #: Connections by the host that they come from, the oldest first.
        self._open: defaultdict[str, dict[Any, None]] = defaultdict(dict)

    @contextmanager
    def place(self, sock: Any, address: Any) -> Iterator[None]:
        """Hold a connection slot for ``sock``, for a limited time."""
        host = address[0] if isinstance(address, tuple) else ""
        while sum(map(len, self._open.values())) >= _CONNECTIONS:
            self._cut_one()
        self._open[host][sock] = None
        deadline = get_hub().loop.timer(_SECONDS)
        deadline.start(_cut, sock)
        try:
            yield
        finally:
            deadline.close()
            self._forget(host, sock)

    def _cut_one(self) -> None:
        host = max(self._open, key=lambda host: len(self._open[host]))
        oldest = next(iter(self._open[host]))
        self._forget(host, oldest)
        _cut(oldest)

    def _forget(self, host: str, sock: Any) -> None:
        if host in self._open:
            self._open[host].pop(sock, None)
            if not self._open[host]:
                del self._open[host]


def _end(sock: Any) -> None:
    """End a connection after its answer, so that the answer arrives.

    A socket that is closed with something unread, such as further requests or a body, breaks its connection, and what
    is on its way to the other side is lost. So that is read first, until the other side ends, too, or is slow.
    """
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(_LAST_SECONDS)
        while sock.recv(_REQUEST_BYTES):
            pass
    except OSError:
        pass  # it is broken, or the other side keeps it open


def _cut(sock: Any) -> None:
    """Shut the connection down: readers and writers see its end."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is broken already


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


class Monitor:
    """Serves ``pages`` until it is closed.

    Args:
        address: ``host:port``; port 0 is chosen by the system.
        pages: by path. ``/`` lists them.
        hosts: names that requests may call this router by, beside addresses, ``localhost``, this machine's name and
            the host in ``address``.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(self, address: str, pages: Mapping[str, Page], hosts: Collection[str] = ()) -> None:
        host, _, port = address.rpartition(":")
        self._pages: dict[str, Page] = {"/": self._index, **pages}
        self._hosts = {name.lower() for name in ("localhost", gethostname(), host, *hosts)}
        try:
            self._listener = _listen(host.strip("[]"), int(port))
        except OSError as error:
            raise ConfigError(f"router.http = {address!r}: cannot listen there: {error.strerror or error}") from None
        self._server = _Server(self._listener, self._answer)
        self._server.start()
        self.url = f"http://{host}:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop listening; a request being answered has a moment to finish."""
        self._server.stop(timeout=0.5)
        self._listener.close()

    def _index(self) -> tuple[int, Any]:
        return 200, {"pages": [path for path in self._pages if path != "/"]}

    def _knows(self, host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        # Only names can be rebound to this machine by others; and a browser always sends one.
        return not name or _is_address(name) or name.lower().rstrip(".") in self._hosts

    def _answer(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, method = str(environ["PATH_INFO"]), str(environ["REQUEST_METHOD"])
        headers = [("Cache-Control", "no-store"), ("Connection", "close")]
        value: Any
        page = self._pages.get(path)
        host = str(environ.get("HTTP_HOST", ""))
        if not self._knows(host):
            text = f"{host[:200]!r} is not a name of this router; router.http_hosts lists those that it has"
            status, value = 421, {"error": text}
        elif method not in ("GET", "HEAD"):
            headers.append(("Allow", "GET, HEAD"))
            status, value = 405, {"error": f"{method[:20]} is not allowed: these pages are read-only"}
        elif page is None:
            status, value = 404, {"error": f"no page {path[:200]}", **self._index()[1]}
        else:
            status, value = page()
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode() + b"\n"
        headers.append(("Content-Type", _PROMETHEUS if isinstance(value, str) else "application/json"))
        headers.append(("Content-Length", str(len(body))))
        start_response(_STATUS[status], headers)
        return [] if method == "HEAD" else [body]
