"""eventlet's HTTP server on gevent's handler."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from gevent import socket, ssl
from gevent.pywsgi import WSGIHandler, WSGIServer
from greenlet import GreenletExit

from . import greenpool

__all__ = ["DEFAULT_LOG_FORMAT", "HttpProtocol", "Server", "server"]

DEFAULT_MAX_SIMULTANEOUS_REQUESTS = 1024
DEFAULT_MAX_HTTP_VERSION = "HTTP/1.1"
MAX_REQUEST_LINE = 8192
MAX_HEADER_LINE = 8192
MINIMUM_CHUNK_SIZE = 4096
DEFAULT_LOG_FORMAT = (
    '%(client_ip)s - - [%(date_time)s] "%(request_line)s" %(status_code)s %(body_length)s %(wall_seconds).6f'
)

#: A connection that was gone before it was accepted, or a broken pipe: the next one may do better.
ACCEPT_ERRNO = {errno.EPIPE, errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.EMFILE, errno.ENFILE}
#: Our own socket is closed.
CLOSED_ERRNO = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}


class HttpProtocol(WSGIHandler):
    """Serves one connection. What a subclass may set: ``protocol_version``, ``log_request``."""

    server: Server
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        """Serve requests until the connection is done with."""
        self.server.idle.add(self)
        try:
            super().handle()
        finally:
            self.server.idle.discard(self)

    def read_request(self, raw_requestline: str) -> Any:
        """Parse a request; from here to its end the connection is not idle."""
        self.server.idle.discard(self)
        result = super().read_request(raw_requestline)
        if not self.server.keepalive or self.server.closing:
            self.close_connection = True
        return result

    def handle_one_request(self) -> Any:
        """Serve one request; tell whether to wait for another."""
        result = super().handle_one_request()
        if result is True:
            if self.server.closing:
                return None
            self.server.idle.add(self)
        return result

    def handle_one_response(self) -> None:
        """Run the application, then the hooks that it left in ``eventlet.posthooks``."""
        hooks: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        assert self.environ is not None
        self.environ["eventlet.posthooks"] = hooks
        try:
            super().handle_one_response()
        finally:
            for hook, args, kwargs in hooks:
                hook(self.environ, *args, **kwargs)

    def format_request(self) -> str:
        """Give the line of the access log."""
        address: Any = self.client_address
        forwarded = self.headers.get("X-Forwarded-For") if self.server.log_x_forwarded_for and self.headers else None
        peer = (address[0] if isinstance(address, tuple) else address) or "-"
        status: str = getattr(self, "_orig_status", None) or "000"
        return self.server.log_format % {
            "client_ip": f"{forwarded.replace(' ', '')},{peer}" if forwarded else peer,
            "client_port": address[1] if isinstance(address, tuple) else "-",
            "date_time": time.strftime("%d/%b/%Y %H:%M:%S"),
            "request_line": self.requestline or "",
            "status_code": status.split()[0],
            "body_length": self.response_length,
            "wall_seconds": self.time_finish - self.time_start if self.time_finish else 0.0,
        }

    def disconnect(self) -> None:
        """Have the green thread that reads from the connection see its end."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except (AttributeError, OSError):
            pass  # gone already


class Server(WSGIServer):
    """The server as its handlers see it. It accepts nothing itself: ``server`` does."""

    def __init__(
        self,
        sock: Any,
        address: Any,
        application: Callable[..., Any],
        log: Any = None,
        environ: dict[str, Any] | None = None,
        keepalive: bool = True,
        log_x_forwarded_for: bool = True,
        log_format: str = DEFAULT_LOG_FORMAT,
        log_output: bool = True,
    ) -> None:
        super().__init__(("", 0), application, log=log if log_output else None)
        if log is None or not log_output:
            log = sys.stderr
        self.error_log = log if hasattr(log, "flush") else sys.stderr
        self.sock = sock
        self.address = address
        self.keepalive = keepalive
        self.log_x_forwarded_for = log_x_forwarded_for
        self.log_format = log_format
        #: Set while the last requests are served.
        self.closing = False
        #: Connections that wait for a request.
        self.idle: set[HttpProtocol] = set()
        self.environ.update(
            {
                "wsgi.url_scheme": "https" if isinstance(sock, ssl.SSLSocket) else "http",
                "wsgi.multithread": True,
                "wsgi.errors": self.error_log,
            }
        )
        self.environ.update(environ or {})
        self.update_environ()


def server(
    sock: Any,
    site: Callable[..., Any],
    log: Any = None,
    environ: dict[str, Any] | None = None,
    max_size: int | None = None,
    max_http_version: str = DEFAULT_MAX_HTTP_VERSION,
    protocol: type[HttpProtocol] = HttpProtocol,
    server_event: Any = None,
    minimum_chunk_size: int | None = None,
    log_x_forwarded_for: bool = True,
    custom_pool: greenpool.GreenPool | None = None,
    keepalive: bool = True,
    log_output: bool = True,
    log_format: str = DEFAULT_LOG_FORMAT,
    url_length_limit: int = MAX_REQUEST_LINE,
    debug: bool = True,
    socket_timeout: float | None = None,
    capitalize_response_headers: bool = True,
) -> None:
    """Serve ``site`` on a listening socket until the green thread is killed or the socket closed.

    Then idle connections are closed, running requests ended, and the socket is closed. ``log`` is a file-like
    object; each connection has a green thread of ``custom_pool``, or of one of ``max_size``. ``socket_timeout``
    (seconds) applies to each read and write. The other arguments are accepted and ignored: gevent sends what
    the application yields as it comes, and shows no traceback to a client.
    """
    address = sock.getsockname()
    serv = Server(sock, address, site, log, environ, keepalive, log_x_forwarded_for, log_format, log_output)
    if server_event is not None:
        server_event.send(serv)
    pool = greenpool.GreenPool(max_size or DEFAULT_MAX_SIMULTANEOUS_REQUESTS) if custom_pool is None else custom_pool
    scheme = serv.environ["wsgi.url_scheme"]
    where = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else address
    _say(
        serv, f"wsgi starting up on {scheme}://{where}/" if isinstance(address, tuple) else f"wsgi starting on {where}"
    )
    try:
        _accept(sock, serv, pool, protocol, socket_timeout)
    finally:
        serv.closing = True
        for idle in tuple(serv.idle):
            idle.disconnect()
        try:
            pool.waitall()
        finally:
            _say(serv, "wsgi exited")
            sock.close()


def _say(serv: Server, text: str) -> None:
    serv.log.write(f"({os.getpid()}) {text}\n")


def _accept(
    sock: Any, serv: Server, pool: greenpool.GreenPool, protocol: type[HttpProtocol], timeout: float | None
) -> None:
    while True:
        try:
            client, address = sock.accept()
        except OSError as error:
            if error.errno in CLOSED_ERRNO:
                return
            # A client that fails its TLS handshake concerns nobody else.
            if error.errno not in ACCEPT_ERRNO and not isinstance(error, ssl.SSLError):
                raise
            continue
        except (KeyboardInterrupt, SystemExit):
            _say(serv, "wsgi exiting")
            return
        client.settimeout(timeout)
        pool.spawn_n(_handle, protocol, client, address, serv)


def _handle(protocol: type[HttpProtocol], client: Any, address: Any, serv: Server) -> None:
    try:
        protocol(client, address, serv).handle()
    except (GreenletExit, ssl.SSLError):
        pass  # the server ends, or the client has broken its encryption off
    finally:
        client.close()
