"""Requests from bytes: httptools, and stricter rules beside it (RFC 9112)."""

from __future__ import annotations

import re
from collections import deque

import httptools

from rpcmq.proxy.http.errors import RefusedRequest
from rpcmq.proxy.http.limits import Limits

__all__ = ["Request", "RequestParser"]

_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{1,5})?\Z")
_ABSOLUTE = re.compile(rb"(?i)https?://([^/?#]*)(.*)\Z", re.DOTALL)
_DIGITS = re.compile(rb"[0-9]+\Z")
_LIST_END = b" \t"
#: Fields that say nothing to a cache whose stored response does not vary.
_PLAIN = frozenset(
    b"accept accept-encoding accept-language accept-charset connection cookie dnt from host keep-alive origin priority"
    b" referer save-data sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest sec-fetch-mode sec-fetch-site"
    b" sec-fetch-user sec-gpc traceparent tracestate upgrade-insecure-requests user-agent via x-forwarded-for"
    b" x-forwarded-host x-forwarded-proto x-request-id".split()
)
#: Bytes of the longest Host: a name of DNS has 253, and a port is behind it.
_HOST_BYTES = 260
#: Bytes of the line ends and separators of a field.
_FIELD_OVERHEAD = 4
#: Bytes that the frame of a chunk may have for each byte in it: chunks of one byte have five, without extensions.
_FRAMING_OF_A_BYTE = 8
#: Requests that wait to be answered, above which what follows them stays bytes: a request takes forty times its bytes.
_MOST_WAITING = 8
#: Bytes that are parsed at once where requests may follow one another, and within a body that comes in chunks.
_STEP_BYTES, _CHUNKED_STEP_BYTES = 1024, 4096


class Request:
    """A request, whose body may still be on its way.

    Attributes:
        method: as it was sent; methods are case-sensitive.
        target: in origin-form, or ``*``.
        host: the value of the Host field, in lower case; of a target in absolute-form: its authority. Empty where a
            request of HTTP/1.0 has none.
        is_http_11: whether its client understands chunked responses.
        keep_alive: whether the client wants another request on this connection.
        headers: names and values, in the order in which they came.
        is_plain: whether it is a GET of which only the target and the host say anything to a cache, unless responses
            vary by other fields.
        length: of the body in bytes; None: not known beforehand (chunked).
        expects_continue: whether the client waits for ``100 Continue`` with its body.
        upgrade: the protocol that the client would like to switch to, in lower case; empty: none.
        chunks: what has come of the body and was not taken yet.
        is_complete: whether the body has come to its end.
    """

    __slots__ = (
        "chunks", "expects_continue", "headers", "host", "is_complete", "is_http_11", "is_plain", "keep_alive",
        "length", "method", "received", "target", "upgrade",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.host = b""
        self.is_http_11 = True
        self.keep_alive = True
        self.is_plain = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = 0
        self.expects_continue = False
        self.upgrade = b""
        self.chunks: deque[bytes] = deque()
        self.is_complete = False
        #: Bytes of the body that have come.
        self.received = 0

    @property
    def has_body(self) -> bool:
        """Whether there is a body, be it empty because it is chunked."""
        return self.length is None or self.length > 0

    @property
    def wants_websocket(self) -> bool:
        """Whether its client asks for WebSocket; of HTTP/1.0 that is ignored (RFC 9110 section 7.8)."""
        return self.upgrade == b"websocket" and self.method == b"GET" and self.is_http_11

    def header(self, name: bytes) -> bytes | None:
        """Return the value of the first field ``name`` (in lower case); None: there is none."""
        for each, value in self.headers:
            if each.lower() == name:
                return value
        return None


class RequestParser:
    """Takes apart what a client sends.

    :meth:`feed` puts what has come into ``requests``, a few of them: what follows them stays as it is until they are
    taken, and :meth:`resume` is called. What cannot be served ends the stream: ``refused`` is then the answer that is
    due once the requests before it are answered. Trailers are dropped.

    A request that asks for another protocol than WebSocket is one of HTTP like any other, with its body.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        #: Requests whose heads have come, oldest first.
        self.requests: deque[Request] = deque()
        self.refused: RefusedRequest | None = None
        #: Whether a head has begun and not ended.
        self.in_head = False
        #: Bytes that are not parsed: behind a request for another protocol, or while enough requests wait.
        self.rest = b""
        self._open: Request | None = None
        self._new = Request()
        self._url = b""
        self._size = 0
        #: Bytes since the present request began to come in chunks, and since anything whole has come.
        self._raw = self._silent = 0
        self._has_moved = False
        self._is_last = False
        self._is_resuming = False

    def feed(self, data: bytes) -> None:
        """Take what has come; see above."""
        if self.rest:
            data = self.rest + data
        at, end = 0, len(data)
        while at < end and self.refused is None and not self._is_last and len(self.requests) < _MOST_WAITING:
            was_open = self._open
            most = _STEP_BYTES if was_open is None else _step_within(was_open)
            step = data if not at and end <= most else data[at : at + most]
            size = len(step)
            at += size - len(self._parsed(step))
            if self.refused is None:
                self._check_size(size, was_open)
        self.rest = data[at:] if at < end else b""

    def resume(self) -> bool:
        """Go on with what has come before; return whether anything had."""
        if not self.rest or self._is_last:
            return False
        self.feed(b"")
        return True

    def _parsed(self, data: bytes) -> bytes:
        """Parse ``data``; return what comes after a request that asks for another protocol."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._after_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserInvalidMethodError:
            self.refused = RefusedRequest(501, "its method is unknown to this server")
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self.refused = cause if isinstance(cause, RefusedRequest) else RefusedRequest(400, "it cannot be parsed")
        except httptools.HttpParserError as error:
            if not self._is_last:
                self.refused = RefusedRequest(400, f"it is malformed: {_shown(error)}")
        return b""

    def _check_size(self, size: int, was_open: Request | None) -> None:
        """Refuse bytes that bring nothing: httptools keeps a field until it is complete, and drops the rest."""
        limits = self._limits
        self._silent = 0 if self._has_moved else self._silent + size
        self._has_moved = False
        if self._silent > limits.header_bytes + limits.target_bytes:
            self.refused = self._too_large() if self.in_head else RefusedRequest(400, "a line of it has no end")
        request = self._open
        if request is not None and request is was_open and request.length is None:
            self._raw += size
            most = limits.header_bytes + (1 + _FRAMING_OF_A_BYTE) * request.received
            if self._raw > most + limits.target_bytes:
                self.refused = RefusedRequest(400, "its chunks are little more than their frames")

    def _after_upgrade(self, rest: bytes) -> bytes:
        """Go on after a request that asks for another protocol; return what is still to be parsed.

        httptools takes all that follows its head for that protocol, and so the body, too.
        """
        request = self._new
        if request.wants_websocket:
            self._is_last = True  # the bytes that follow are of that protocol if it is agreed upon
            return rest
        self._parser = httptools.HttpRequestParser(self)
        if not request.is_complete:
            self._is_resuming = True
            self._parser.feed_data(_framing_of(request))
            self._is_resuming = False
        return rest

    # --- what httptools calls ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """See httptools."""
        if self._is_resuming:
            return
        self._has_moved = self.in_head = True
        self._new = Request()
        self._url = b""
        self._size = 0

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        if self._is_resuming:
            return
        self._has_moved = True
        self._url += url
        if len(self._url) > self._limits.target_bytes:
            raise RefusedRequest(
                414, f"its target is longer than the {self._limits.target_bytes} bytes of limits.target_bytes"
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if self._is_resuming:
            return
        self._has_moved = True
        if not self.in_head:
            self._size += len(name) + len(value) + _FIELD_OVERHEAD
            if self._size > self._limits.header_bytes:
                raise self._too_large()
            return  # a trailer
        headers = self._new.headers
        headers.append((name, value.rstrip(_LIST_END)))
        self._size += len(name) + len(value) + _FIELD_OVERHEAD
        if self._size > self._limits.header_bytes:
            raise self._too_large()
        if len(headers) > self._limits.header_count:
            raise RefusedRequest(431, f"it has more than the {self._limits.header_count} fields of limits.header_count")

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(
            431, f"its fields are longer than the {self._limits.header_bytes} bytes of limits.header_bytes"
        )

    def on_headers_complete(self) -> None:
        """See httptools."""
        if self._is_resuming:
            return
        parser, request = self._parser, self._new
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise RefusedRequest(505, "its version of HTTP is not supported; 1.1 and 1.0 are")
        request.is_http_11 = version == "1.1"
        request.keep_alive = parser.should_keep_alive()
        request.method = parser.get_method()
        request.target = self._url
        _read_fields(request)
        if request.upgrade and not parser.should_upgrade():
            request.upgrade = b""  # Connection does not name it (RFC 9110 section 7.8)
        if request.wants_websocket and request.has_body:
            raise RefusedRequest(400, "a request for WebSocket has no body")
        _check_target(request)
        if request.length is not None and request.length > self._limits.body_bytes:
            raise _body_too_large(self._limits)
        self._size = self._raw = 0
        self.in_head = False
        self._open = request
        self.requests.append(request)

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        request = self._open
        assert request is not None
        self._has_moved = True
        request.received += len(body)
        if request.received > self._limits.body_bytes:
            raise _body_too_large(self._limits)
        request.chunks.append(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        request = self._open
        assert request is not None
        self._has_moved = True
        if request.upgrade and request.has_body and self._parser.should_upgrade():
            return  # its body follows
        self._open = None
        request.is_complete = True
        if not request.keep_alive:
            self._is_last = True


def _step_within(request: Request) -> int:
    """Return how many bytes to parse at once within the body of ``request``: of what is behind it little."""
    if request.length is None:
        return _CHUNKED_STEP_BYTES
    return max(request.length - request.received, _STEP_BYTES)


def _read_fields(request: Request) -> None:
    """Find out what the fields say about the connection and the body."""
    hosts = 0
    is_plain = request.method == b"GET"
    for name, value in request.headers:
        name = name.lower()
        if name not in _PLAIN:
            is_plain = False
        if name == b"host":
            hosts += 1
            request.host = value.lower()
        elif name == b"content-length":
            if not _DIGITS.match(value) or len(value) > 18:
                raise RefusedRequest(400, "its Content-Length is no number")
            request.length = int(value)
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise RefusedRequest(501, "its Transfer-Encoding is not chunked, and others are not supported")
            if not request.is_http_11:
                raise RefusedRequest(400, "HTTP/1.0 has no Transfer-Encoding")
            request.length = None
        elif name == b"expect":
            if value.lower() != b"100-continue":
                raise RefusedRequest(417, "it expects something other than 100-continue")
            request.expects_continue = request.is_http_11
        elif name == b"upgrade":
            request.upgrade = value.lower()
    request.is_plain = is_plain
    if hosts > 1:
        raise RefusedRequest(400, "it has several Host fields")
    if not hosts and request.is_http_11:
        raise RefusedRequest(400, "it has no Host field")
    if hosts and not _is_host(request.host):
        raise RefusedRequest(400, "its Host is no name or address with an optional port")


def _check_target(request: Request) -> None:
    target = request.target
    if request.method in (b"CONNECT", b"TRACE"):
        raise RefusedRequest(405, f"{request.method.decode()} is not served here")
    if b"#" in target:
        raise RefusedRequest(400, "its target has a fragment")
    if target.startswith(b"/") or (target == b"*" and request.method == b"OPTIONS"):
        return
    found = _ABSOLUTE.match(target)
    if found is None:
        raise RefusedRequest(400, "its target is neither a path nor a URL")
    authority, path = found.groups()
    if not _is_host(authority):
        raise RefusedRequest(400, "the authority of its target is no name or address with an optional port")
    # RFC 9112 section 3.2.2: the Host field is then ignored.
    request.host = authority.lower()
    request.headers = [(n, authority if n.lower() == b"host" else v) for n, v in request.headers]
    request.target = path if path.startswith(b"/") else b"/" + path


def _is_host(value: bytes) -> bool:
    return len(value) <= _HOST_BYTES and _HOST.match(value) is not None


def _framing_of(request: Request) -> bytes:
    """A head with which a parser finds the end of the body of ``request``."""
    length = b"Transfer-Encoding: chunked" if request.length is None else b"Content-Length: %d" % request.length
    closes = b"" if request.keep_alive else b"Connection: close\r\n"
    return b"POST / HTTP/1.1\r\nHost: a\r\n%s%s\r\n\r\n" % (closes, length)


def _body_too_large(limits: Limits) -> RefusedRequest:
    return RefusedRequest(413, f"its body is longer than the {limits.body_bytes} bytes of limits.body_bytes")


def _shown(error: Exception) -> str:
    text = str(error)
    return text[:100] if text.isprintable() else "invalid bytes"
