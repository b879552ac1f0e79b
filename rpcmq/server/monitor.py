"""The router's state over HTTP: JSON, and text for Prometheus; read-only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gevent import socket
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

from rpcmq.errors import ConfigError

__all__ = ["Monitor"]

#: Requests served at once, and how long a client may take to send one or take the answer (seconds).
_CONNECTIONS = 64
_IDLE_SECONDS = 10.0
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_STATUS = {200: "200 OK", 404: "404 Not Found", 405: "405 Method Not Allowed", 503: "503 Service Unavailable"}

#: What a page gives: a status, and a value for JSON, or text in the format of Prometheus.
Page = Callable[[], tuple[int, Any]]


class _Handler(WSGIHandler):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        # A client that says nothing would keep its place for ever.
        sock.settimeout(_IDLE_SECONDS)
        super().__init__(sock, *args, **kwargs)


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


class Monitor:
    """Serves ``pages`` until it is closed.

    Args:
        address: ``host:port``; port 0 is chosen by the system.
        pages: by path. ``/`` lists them.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        host, _, port = address.rpartition(":")
        self._pages: dict[str, Page] = {"/": self._index, **pages}
        try:
            self._listener = _listen(host.strip("[]"), int(port))
        except OSError as error:
            raise ConfigError(f"router.http = {address!r}: cannot listen there: {error.strerror or error}") from None
        self._server = WSGIServer(
            self._listener,
            self._answer,
            handler_class=_Handler,
            # A page that fails is reported to the hub; who asks amiss is told, and that is all.
            log=None,
            error_log=None,
            spawn=Pool(_CONNECTIONS),
        )
        self._server.start()
        self.url = f"http://{host}:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop listening; a request being answered has a moment to finish."""
        self._server.stop(timeout=0.5)
        self._listener.close()

    def _index(self) -> tuple[int, Any]:
        return 200, {"pages": [path for path in self._pages if path != "/"]}

    def _answer(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, method = str(environ["PATH_INFO"]), str(environ["REQUEST_METHOD"])
        headers = [("Cache-Control", "no-store")]
        value: Any
        page = self._pages.get(path)
        if method not in ("GET", "HEAD"):
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
