"""Heads of responses as bytes."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from time import time

from rpcmq.proxy.messages import Headers, ResponseHead

__all__ = ["CONTINUE", "error_head", "head_bytes", "http_date", "response_bytes"]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Set anew for each response: they are about this connection or its framing.
_OWN_FIELDS = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "trailer", "upgrade"))
_REASONS = {status.value: status.phrase for status in HTTPStatus}

_date_second = 0
_date_text = ""


def http_date() -> str:
    """The time, as an HTTP-date (RFC 9110 section 5.6.7)."""
    global _date_second, _date_text
    now = int(time())
    if now != _date_second:
        _date_text = formatdate(now, usegmt=True)
        _date_second = now
    return _date_text


def head_bytes(head: ResponseHead, framing: str) -> bytes:
    """The status line and the fields of ``head``, and those of ``framing``, which end with line ends.

    Fields of the connection and Content-Length are not taken from ``head``; Date is added where it is missing.
    """
    lines = [f"HTTP/1.1 {head.status} {head.reason or _REASONS.get(head.status, '')}\r\n"]
    has_date = False
    for name, value in head.headers.fields:
        lower = name.lower()
        if lower in _OWN_FIELDS:
            continue
        if lower == "date":
            has_date = True
        lines.append(f"{name}: {value}\r\n")
    if not has_date:
        lines.append(f"Date: {http_date()}\r\n")
    lines.append(framing)
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")


def error_head(status: int, text: str) -> tuple[ResponseHead, bytes]:
    """Head and body of an answer that this server makes itself, for people to read.

    Args:
        text: a sentence without control characters.
    """
    body = f"{status} {_REASONS.get(status, '')}: {text}\n".encode("utf-8", "replace")
    headers = Headers((("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")))
    return ResponseHead(status, headers), body


def response_bytes(head: ResponseHead, body: bytes, *, closes: bool) -> bytes:
    """A whole response with ``body``, after which the connection is closed or not."""
    framing = f"Content-Length: {len(body)}\r\n" + ("Connection: close\r\n" if closes else "")
    return head_bytes(head, framing) + body
