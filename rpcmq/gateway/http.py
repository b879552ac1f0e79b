"""The HTTP of the gateway: one request on each connection, a page or the handshake of a WebSocket. No I/O.

Who asks must know the gateway by one of its names, so that a page of another site cannot come as one of its own by
having its name point here (DNS rebinding); and a WebSocket is for pages of the gateway itself and of the origins that
it was told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from socket import gethostname
from urllib.parse import urlsplit

import h11
from wsproto.utilities import generate_accept_token

from rpcmq.adapters.untrusted_values import short_repr
from rpcmq.gateway.messages import SUBPROTOCOL

__all__ = ["BadRequest", "Gate", "HttpRequest", "RequestReader", "answer", "client_address", "is_among"]

#: Bytes of a request: its first line and headers.
_HEAD_BYTES = 16 * 1024
_METHODS = ("GET", "HEAD")


class BadRequest(Exception):
    """A request that is refused: with this status, for this reason."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class HttpRequest:
    """A request.

    Attributes:
        path: without the query.
        headers: by names in lower case; of one that occurs twice, the values with commas.
        rest: bytes that came after it.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    rest: bytes = b""


def words_of(value: str) -> list[str]:
    """Return the words between the commas of a header, in lower case."""
    return [word.strip().lower() for word in value.split(",") if word.strip()]


class RequestReader:
    """Takes the bytes of one request."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._size = 0

    def feed(self, data: bytes) -> HttpRequest | None:
        """Take ``data``; return the request once it is there.

        Raises:
            BadRequest: it is none, or too long.
        """
        self._size += len(data)
        try:
            self._connection.receive_data(data)
            event = self._connection.next_event()
        except h11.RemoteProtocolError as error:
            text = f"the request has more than {_HEAD_BYTES} bytes" if error.error_status_hint == 431 else str(error)
            raise BadRequest(error.error_status_hint, text) from None
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Request):
            raise BadRequest(400, "the connection ended before the request did")
        return self._request(event)

    def _request(self, event: h11.Request) -> HttpRequest:
        headers: dict[str, str] = {}
        for name, value in event.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            if key in headers and key in ("host", "origin", "sec-websocket-key", "sec-websocket-version"):
                raise BadRequest(400, f"the request has the header {key} twice")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            raise BadRequest(400, "the gateway takes no request with a body", {})
        path = event.target.decode("latin-1").partition("?")[0]
        rest = self._connection.trailing_data[0]
        return HttpRequest(event.method.decode("ascii"), path, headers, rest)


class Gate:
    """Decides who may come in.

    Args:
        hosts: names of the gateway, beside addresses, ``localhost`` and this machine's name.
        origins: that may open a WebSocket, beside the gateway's own; ``*``: any.
        is_tls: whether the gateway itself speaks TLS.
    """

    def __init__(self, hosts: Collection[str], origins: Collection[str], is_tls: bool) -> None:
        self._hosts = {name.lower() for name in ("localhost", gethostname(), *hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._is_tls = is_tls

    def check(self, request: HttpRequest) -> None:
        """Check the method, and the name by which the gateway is asked.

        Raises:
            BadRequest: one is wrong.
        """
        if request.method not in _METHODS:
            text = f"{short_repr(request.method)} is not allowed"
            raise BadRequest(405, text, {"Allow": ", ".join(_METHODS)})
        host = request.headers.get("host", "")
        if not self._knows(host):
            text = f"{short_repr(host)} is not a name of this gateway; listen.hosts lists those that it has"
            raise BadRequest(421, text)

    def check_origin(self, request: HttpRequest) -> str:
        """Return the origin of the page that asks, "" for a program that is no browser.

        Raises:
            BadRequest: it may not.
        """
        origin = request.headers.get("origin")
        if origin is None:
            return ""
        given = origin.lower().rstrip("/")
        if "*" in self._origins or given in self._origins or self._is_own(given, request.headers.get("host", "")):
            return given
        text = f"pages of the origin {short_repr(origin)} may not connect; access.origins lists those that may"
        raise BadRequest(403, text)

    def accept(self, request: HttpRequest) -> bytes:
        """Return the answer to the handshake of a WebSocket (RFC 6455 section 4.2).

        Raises:
            BadRequest: it is none.
        """
        headers = request.headers
        if request.method != "GET" or "upgrade" not in words_of(headers.get("connection", "")):
            raise BadRequest(426, "expected the handshake of a WebSocket", {"Upgrade": "websocket"})
        if headers.get("sec-websocket-version") != "13":
            raise BadRequest(426, "the version of WebSocket is 13", {"Sec-WebSocket-Version": "13"})
        key = headers.get("sec-websocket-key", "")
        if len(key) != 24 or not key.endswith("==") or not key.isascii():
            raise BadRequest(400, "Sec-WebSocket-Key is missing or malformed")
        fields = {"Upgrade": "websocket", "Connection": "Upgrade"}
        fields["Sec-WebSocket-Accept"] = generate_accept_token(key.encode()).decode()
        offered = headers.get("sec-websocket-protocol")
        if offered is not None:
            if SUBPROTOCOL not in words_of(offered):
                raise BadRequest(400, f"the subprotocol of this gateway is {SUBPROTOCOL}")
            fields["Sec-WebSocket-Protocol"] = SUBPROTOCOL
        return _head(101, fields)

    def _knows(self, host: str) -> bool:
        name = _without_port(host)
        # Only names can be made to point here by others; and a browser always sends one.
        return not name or _is_address(name) or name.lower().rstrip(".") in self._hosts

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False  # brackets that do not match, or with no address between them
        if self._is_tls and parts.scheme != "https":
            return False
        return parts.scheme in ("http", "https") and bool(host) and parts.netloc == host.lower()


def answer(
    status: int, body: bytes = b"", content_type: str = "text/plain; charset=utf-8", head_only: bool = False,
    more: Iterable[tuple[str, str]] = (),
) -> bytes:  # fmt: skip
    """Return an HTTP response, after which the connection ends."""
    fields = {
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        "Connection": "close",
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        **dict(more),
    }
    return _head(status, fields) + (b"" if head_only else body)


def client_address(request: HttpRequest, peer: str, proxies: Sequence[str]) -> str:
    """Return the address of the browser: that of ``peer``, or where that is a proxy, the last one that is none."""
    forwarded = [word.strip("[]") for word in words_of(request.headers.get("x-forwarded-for", ""))]
    address = peer
    while forwarded and is_among(address, proxies):
        address = forwarded.pop()
    return address


def is_among(address: str, networks: Sequence[str]) -> bool:
    """Return whether ``address`` is in one of ``networks``."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in ip_network(network) for network in networks)


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    phrase = HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _without_port(host: str) -> str:
    return host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True
