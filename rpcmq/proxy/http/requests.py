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
#: Bytes of the line ends and separators of a field.
_FIELD_OVERHEAD = 4


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

    def header(self, name: bytes) -> bytes | None:
        """Return the value of the first field ``name`` (in lower case); None: there is none."""
        for each, value in self.headers:
            if each.lower() == name:
                return value
        return None


class RequestParser:
    """Takes apart what a client sends.

    :meth:`feed` puts what has come into ``requests``. What cannot be served ends the stream: ``refused`` is then the
    answer that is due once the requests before it are answered. Trailers are dropped.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        #: Requests whose heads have come, oldest first.
        self.requests: deque[Request] = deque()
        self.refused: RefusedRequest | None = None
        #: Whether a head has begun and not ended.
        self.in_head = False
        #: Bytes that came after a request for another protocol.
        self.rest = b""
        self._open: Request | None = None
        self._new = Request()
        self._url = b""
        self._size = 0
        self._raw = 0
        self._is_last = False

    def feed(self, data: bytes) -> None:
        """Take what has come; see above."""
        if self.refused is not None or self._is_last:
            return
        was_in_head = self.in_head
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
            self._after_upgrade()
        except httptools.HttpParserInvalidMethodError:
            self.refused = RefusedRequest(501, "its method is unknown to this server")
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self.refused = cause if isinstance(cause, RefusedRequest) else RefusedRequest(400, "it cannot be parsed")
        except httptools.HttpParserError as error:
            if not self._is_last:
                self.refused = RefusedRequest(400, f"it is malformed: {_shown(error)}")
        if was_in_head and self.in_head:
            # Fields are handed over when they are complete: one without an end is counted here.
            self._raw += len(data)
            if self._raw > self._limits.header_bytes + self._limits.target_bytes and self.refused is None:
                self.refused = self._too_large()

    def _after_upgrade(self) -> None:
        """Go on in HTTP after a request that asks for another protocol, which is refused or taken later."""
        request = self.requests[-1] if self.requests else None
        if request is not None and request.upgrade == b"websocket" and request.method == b"GET":
            self._is_last = True  # the bytes that follow are of that protocol if it is agreed upon
            return
        rest, self.rest = self.rest, b""
        self._parser = httptools.HttpRequestParser(self)
        if rest:
            self.feed(rest)

    # --- what httptools calls ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """See httptools."""
        self.in_head = True
        self._new = Request()
        self._url = b""
        self._size = self._raw = 0

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._url += url
        if len(self._url) > self._limits.target_bytes:
            raise RefusedRequest(
                414, f"its target is longer than the {self._limits.target_bytes} bytes of limits.target_bytes"
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
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
        parser, request = self._parser, self._new
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise RefusedRequest(505, "its version of HTTP is not supported; 1.1 and 1.0 are")
        request.is_http_11 = version == "1.1"
        request.keep_alive = parser.should_keep_alive()
        request.method = parser.get_method()
        request.target = self._url
        _read_fields(request)
        _check_target(request)
        if request.length is not None and request.length > self._limits.body_bytes:
            raise _body_too_large(self._limits)
        self._size = 0
        self.in_head = False
        self._open = request
        self.requests.append(request)

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        request = self._open
        assert request is not None
        request.received += len(body)
        if request.received > self._limits.body_bytes:
            raise _body_too_large(self._limits)
        request.chunks.append(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        request, self._open = self._open, None
        assert request is not None
        request.is_complete = True
        if not request.keep_alive:
            self._is_last = True


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
    if hosts and not _HOST.match(request.host):
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
    if not _HOST.match(authority):
        raise RefusedRequest(400, "the authority of its target is no name or address with an optional port")
    # RFC 9112 section 3.2.2: the Host field is then ignored.
    request.host = authority.lower()
    request.headers = [(n, authority if n.lower() == b"host" else v) for n, v in request.headers]
    request.target = path if path.startswith(b"/") else b"/" + path


def _body_too_large(limits: Limits) -> RefusedRequest:
    return RefusedRequest(413, f"its body is longer than the {limits.body_bytes} bytes of limits.body_bytes")


def _shown(error: Exception) -> str:
    text = str(error)
    return text[:100] if text.isprintable() else "invalid bytes"
