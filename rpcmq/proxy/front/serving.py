"""Answers from the store."""

from __future__ import annotations

from collections.abc import Iterator

from rpcmq.proxy.caching import BodyPlan, Serve
from rpcmq.proxy.caching.decisions import plan_size
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.front.plans import cut
from rpcmq.proxy.http.errors import TruncatedBody
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.heads import response_bytes
from rpcmq.proxy.messages import ResponseHead
from rpcmq.proxy.store.contract import Body, Store

__all__ = ["content_length", "send_cut", "serve"]

#: Bodies up to this size are sent together with their heads.
_TOGETHER = 256 * 1024
#: Longest body of a response that is kept ready.
_HOT_BODY = 64 * 1024


def content_length(head: ResponseHead) -> int | None:
    """Return the Content-Length of ``head``, if it has one."""
    text = head.headers.get("content-length")
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def is_bodiless(exchange: Exchange, head: ResponseHead) -> bool:
    """Return whether a response to this request has no body."""
    return exchange.request.method == b"HEAD" or head.status in (204, 304)


def serve(exchange: Exchange, serving: Serve, store: Store, hot: HotResponses | None, now: float) -> bool:
    """Answer with a stored response; return False, and send nothing, if its body is not there any more.

    Args:
        hot: keeps the response ready for requests of the same second; None: it is not for all requests.

    Raises:
        TruncatedBody: the store has lost the body while it was sent.
    """
    head, plan = serving.response, serving.body
    if is_bodiless(exchange, head):
        exchange.start(head, content_length(head))
        exchange.finish()
        return True
    body = store.open(serving.entry)
    if body is None:
        return False
    if plan is None:
        raise ValueError("a stored response has to say which part of its body is served")
    try:
        size = plan_size(plan)
        pieces = _pieces(plan, body)
        try:
            first = b"".join(pieces) if size <= _TOGETHER else next(pieces)
        except (OSError, StopIteration):
            return False
        if size > _TOGETHER:
            exchange.start(head, size)
            exchange.write(first)
            _send_rest(exchange, pieces)
        elif hot is not None and size <= _HOT_BODY and exchange.keep_alive and exchange.request.is_http_11:
            data = response_bytes(head, first, closes=False)
            hot.add(exchange.scheme, exchange.request, serving.entry.key, now, (data, head.status, size))
            exchange.send_prepared(data, head.status, size)
        else:
            exchange.send(head, first)
    finally:
        body.close()
    return True


def send_cut(exchange: Exchange, head: ResponseHead, plan: BodyPlan | None, body: bytes) -> None:
    """Answer with what ``plan`` takes of a body that is at hand; None: all of it."""
    if is_bodiless(exchange, head):
        exchange.start(head, content_length(head))
        exchange.finish()
    else:
        exchange.send(head, body if plan is None else cut(plan, body))


def _send_rest(exchange: Exchange, pieces: Iterator[bytes]) -> None:
    try:
        for piece in pieces:
            exchange.write(piece)
    except OSError as error:
        raise TruncatedBody(f"the store has lost the body: {error}") from None
    exchange.finish()


def _pieces(plan: BodyPlan, body: Body) -> Iterator[bytes]:
    for piece in plan:
        if isinstance(piece, bytes):
            yield piece
        else:
            yield from body.read(piece.start, piece.stop)
