"""Ask the origins of a site: retries, and the answer where all fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import monotonic

from rpcmq.proxy.fetcher.connection import (
    OriginConnection,
    OriginResponse,
    OriginStalled,
    OriginUnreachable,
    StaleConnection,
)
from rpcmq.proxy.fetcher.origins import Origin, Origins
from rpcmq.proxy.fetcher.responses import MalformedResponse

__all__ = ["FetchFailed", "Fetched", "fetch", "request_head", "request_lines"]

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
#: Servers that are tried for one request.
_ATTEMPTS = 3


class FetchFailed(Exception):
    """No origin answered.

    Attributes:
        status: 502, or 504 where one took too long.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Fetched:
    """A response whose head has come; :meth:`close` must be called in the end."""

    def __init__(self, origin: Origin, response: OriginResponse) -> None:
        self.origin = origin
        self.response = response
        self.is_open = True

    def close(self) -> None:
        """Keep the connection if its response was taken whole, and close it otherwise. May be called again."""
        if not self.is_open:
            return
        self.is_open = False
        self.origin.in_flight -= 1
        connection, parser = self.response.connection, self.response.parser
        if parser.is_complete and parser.may_reuse and not parser.chunks:
            self.origin.keep(connection)
        else:
            connection.close()
        if parser.has_more:
            self.origin.has_said_more()
        parser.release()


def fetch(
    origins: Origins,
    method: str,
    fields: bytes,
    body: bytes | Iterable[bytes] = b"",
    deadline: float | None = None,
) -> Fetched:
    """Send a request to one of ``origins``.

    An idempotent request whose body is at hand goes to another origin when one fails, and once more to the same where a
    connection that was kept turns out to be closed; any request does where no connection could be made.

    Args:
        fields: the request line, and the fields to send, as lines: Host among them, and none of the framing.
        body: in one piece, or as it comes.
        deadline: time of the monotonic clock at which no further origin is tried.

    Raises:
        FetchFailed: none answered.
    """
    is_at_hand = isinstance(body, bytes)
    head = request_head(method, fields, len(body) if isinstance(body, bytes) else None)
    may_repeat = method in _IDEMPOTENT and is_at_hand
    site = origins.site
    failed = FetchFailed(502, "no origin is configured")
    for origin in list(origins.in_order())[:_ATTEMPTS]:
        if deadline is not None and monotonic() >= deadline:
            break
        origin.in_flight += 1
        origin.requests += 1
        was_sent = False
        try:
            connection = origin.connection()
            was_sent = True
            framed = body if isinstance(body, bytes) else _chunked(body)
            try:
                response = _exchange(connection, head, framed, origins, method)
            except StaleConnection:
                if not may_repeat:
                    raise
                response = _exchange(origin.connection(fresh=True), head, framed, origins, method)
        except OriginStalled as error:
            failed = FetchFailed(504, f"the origin {origin.name} of {site.name} did not answer: {error}")
        except OriginUnreachable as error:
            failed = FetchFailed(502, f"the origin {origin.name} of {site.name} failed: {error}")
        except MalformedResponse as error:
            failed = FetchFailed(502, f"the origin {origin.name} of {site.name} sent no response of HTTP: {error}")
        except BaseException:
            origin.in_flight -= 1
            raise
        else:
            origin.succeeded()
            return Fetched(origin, response)
        origin.in_flight -= 1
        origin.has_failed()
        if was_sent and not may_repeat:
            break
    raise failed


def request_lines(method: str, target: str, fields: Sequence[tuple[str, str]]) -> bytes:
    """The request line and the fields of a request, as lines.

    Raises:
        ValueError: a name or a value has a line end in it.
    """
    text = f"{method} {target} HTTP/1.1\r\n" + "".join([f"{name}: {value}\r\n" for name, value in fields])
    ends = len(fields) + 1
    if text.count("\n") != ends or text.count("\r") != ends or "\0" in text:
        raise ValueError("a field of the request has a line end in it")
    return text.encode("latin-1")


def request_head(method: str, lines: bytes, length: int | None) -> bytes:
    """The head of a request, as bytes.

    Args:
        lines: see :func:`request_lines`.
        length: of its body; None: it is chunked.

    Raises:
        FetchFailed: they are no lines of a request with this method.
    """
    is_one = b"\r\n\r\n" not in lines and lines.endswith(b"\r\n") and lines.count(b"\n") == lines.count(b"\r\n")
    if not is_one or not lines.startswith(method.encode("latin-1") + b" "):
        raise FetchFailed(502, "the lines of the request are none")
    if length is None:
        return lines + b"Transfer-Encoding: chunked\r\n\r\n"
    if length or method in ("POST", "PUT", "PATCH"):
        return b"%sContent-Length: %d\r\n\r\n" % (lines, length)
    return lines + b"\r\n"


def _exchange(
    connection: OriginConnection, head: bytes, body: bytes | Iterator[bytes], origins: Origins, method: str
) -> OriginResponse:
    site = origins.site
    return connection.exchange(
        head,
        body,
        is_head=method == "HEAD",
        first_byte_seconds=site.first_byte_seconds,
        idle_seconds=site.idle_seconds,
    )


def _chunked(body: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in body:
        if chunk:
            yield b"%x\r\n%s\r\n" % (len(chunk), chunk)
    yield b"0\r\n\r\n"
