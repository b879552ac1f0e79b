"""Responses of origins from bytes."""

from __future__ import annotations

from typing import Any

import httptools

__all__ = ["MalformedResponse", "ResponseParser"]

_HEADER_BYTES = 128 * 1024
_HEADER_COUNT = 256
_FIELD_OVERHEAD = 4
#: Bytes that the frame of a chunk may have for each byte in it: chunks of one byte have five, without extensions.
_FRAMING_OF_A_BYTE = 8
_MAX_INTERIM = 16
_NO_BODY = frozenset((204, 304))


class MalformedResponse(Exception):
    """An origin sent something that is no response; the text says why."""


class ResponseParser:
    """Takes apart one response.

    Interim responses (1xx) are passed over, trailers dropped.

    Args:
        is_head: the request was HEAD, so that no body follows whatever the fields say.

    Attributes:
        status, reason, headers: of the final response, once ``has_head``; names as they came.
        length: of its body, if the fields say so; None: chunked, or ended by the connection.
        ends_with_connection: whether only the connection's end ends the body.
        chunks: of the body, not taken yet.
        is_complete: whether all of it has come.
        may_reuse: whether the connection can be used again once it is complete.
        has_more: whether something came behind it.
    """

    def __init__(self, *, is_head: bool = False) -> None:
        self._is_head = is_head
        self._parser: Any = httptools.HttpResponseParser(self)
        self.status = 0
        self.reason = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_head = False
        self.length: int | None = None
        self.ends_with_connection = False
        self.chunks: list[bytes] = []
        self.is_complete = False
        self.may_reuse = self.has_more = False
        self._size = 0
        #: Bytes since anything whole has come, and those of the body with and without its frames.
        self._silent = self._raw = self._received = 0
        self._has_moved = False
        self._interim = 0
        self._status_text = b""
        self._is_interim = False

    def feed(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            MalformedResponse: it is none of HTTP/1.1, or too large a head.
        """
        if self.is_complete:
            self._more_came()
            return
        had_head = self.has_head
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.may_reuse = False
            if not self.has_head:
                raise MalformedResponse("it switched protocols, which nobody asked for") from None
        except httptools.HttpParserCallbackError as error:
            if self._has_ended():
                self._more_came()
                return
            cause = error.__context__
            raise cause if isinstance(cause, MalformedResponse) else MalformedResponse("cannot be parsed") from None
        except httptools.HttpParserError as error:
            if not self._has_ended():
                raise MalformedResponse(str(error)) from None
            self._more_came()
        self._check_size(len(data), had_head)

    def _check_size(self, size: int, had_head: bool) -> None:
        """Refuse bytes that bring nothing: httptools keeps a field until it is complete, and drops the rest."""
        self._silent = 0 if self._has_moved else self._silent + size
        self._has_moved = False
        if self._silent > 2 * _HEADER_BYTES:
            raise MalformedResponse("a line of it has no end" if self.has_head else "its head has no end")
        if had_head and not self.is_complete and self.length is None and not self.ends_with_connection:
            self._raw += size
            if self._raw > 2 * _HEADER_BYTES + (1 + _FRAMING_OF_A_BYTE) * self._received:
                raise MalformedResponse("its chunks are little more than their frames")

    @property
    def fields(self) -> bytes:
        """Names and values of the head, as lines."""
        return b"".join([b"%s: %s\r\n" % field for field in self.headers])

    def _has_ended(self) -> bool:
        return self.is_complete

    def _more_came(self) -> None:
        self.may_reuse, self.has_more = False, True

    def end(self) -> bool:
        """Note that the connection has ended; return whether the response is whole."""
        if self.has_head and self.ends_with_connection:
            self.is_complete = True
        return self.is_complete

    def release(self) -> None:
        """Let go of the parser of httptools, which refers to this object: nothing is fed any more.

        Else only Python's collector of cycles would free both.
        """
        self._parser = None

    def take(self) -> bytes:
        """Return what has come of the body."""
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        return data

    # --- what httptools calls ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """See httptools."""
        if self.is_complete:
            raise MalformedResponse("more than one response came")
        self._has_moved = True
        self._status_text = b""
        self.headers = []
        self._size = 0

    def on_status(self, text: bytes) -> None:
        """See httptools."""
        self._status_text += text
        if len(self._status_text) > _HEADER_BYTES:
            raise MalformedResponse("its reason is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self._has_moved = True
        self._size += len(name) + len(value) + _FIELD_OVERHEAD
        if self._size > _HEADER_BYTES or len(self.headers) >= _HEADER_COUNT:
            raise MalformedResponse(f"its fields are more than {_HEADER_COUNT}, or longer than {_HEADER_BYTES} bytes")
        if not self.has_head:
            self.headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """See httptools."""
        parser = self._parser
        status = parser.get_status_code()
        self._is_interim = 100 <= status < 200 and status != 101
        if self._is_interim:
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise MalformedResponse(f"more than {_MAX_INTERIM} interim responses came")
            return
        if parser.get_http_version() not in ("1.1", "1.0"):
            raise MalformedResponse("its version of HTTP is not 1.1 or 1.0")
        if not 200 <= status <= 599:
            raise MalformedResponse(f"its status is {status}")
        self.status = status
        self.reason = self._status_text.decode("latin-1")
        self.may_reuse = parser.should_keep_alive()
        self._size = 0
        self.has_head = True
        self._find_framing()
        if self._is_head or status in _NO_BODY:
            self.is_complete = True
            self.ends_with_connection = False
            if self._is_head and self.length != 0:
                # Some origins send the body all the same, later perhaps: it must not be the next response.
                self.may_reuse = False

    def _find_framing(self) -> None:
        is_chunked = False
        for name, value in self.headers:
            match name.lower():
                case b"content-length":
                    self.length = int(value)
                case b"transfer-encoding":
                    if value.lower() != b"chunked":
                        raise MalformedResponse(f"its Transfer-Encoding is {value[:40]!r}; only chunked is understood")
                    is_chunked = True
                    if self._parser.get_http_version() == "1.0":
                        self.may_reuse = False  # its framing counts as faulty (RFC 9112 section 6.1)
        self.ends_with_connection = self.length is None and not is_chunked
        if self.ends_with_connection:
            self.may_reuse = self.may_reuse and self.status in _NO_BODY

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._has_moved = True
        self._received += len(body)
        if self._is_interim:
            raise MalformedResponse("an interim response has a body")
        if self.is_complete:
            self.may_reuse = False  # of a response that has none
            return
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        if not self._is_interim:
            self.is_complete = True
