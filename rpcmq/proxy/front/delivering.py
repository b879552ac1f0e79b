"""A response of an origin on its way to the client and into the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rpcmq.proxy.caching import Deliver
from rpcmq.proxy.caching.decisions import plan_size
from rpcmq.proxy.front.fetching import STREAM_BYTES, NoResponse, OriginAnswer
from rpcmq.proxy.front.flights import Flight, Landing
from rpcmq.proxy.front.plans import cut_passing
from rpcmq.proxy.front.serving import content_length, is_bodiless, send_cut
from rpcmq.proxy.http.errors import ClientGone, TruncatedBody
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.store.contract import Store, Writer

__all__ = ["deliver"]


def deliver(
    exchange: Exchange | None, answer: OriginAnswer, delivery: Deliver, store: Store, flight: Flight | None
) -> None:
    """Send a response to the client, if there is one, and store it, if it may be.

    Args:
        exchange: None: nobody waits for it but the store.
        flight: lands with it; those that wait for it can have the response if it can be stored.

    Raises:
        NoResponse: it broke off before anything was sent.
        TruncatedBody: it broke off.
        ClientGone: the client did.
    """
    entry = delivery.store
    writer = store.create(entry) if entry is not None else None
    try:
        if answer.is_whole:
            if writer is not None and (not answer.first or writer.write(answer.first)):
                writer.commit()
            if flight is not None and entry is not None:
                flight.land(Landing(entry.with_body_size(len(answer.first)), answer.first))
            if exchange is not None:
                send_cut(exchange, delivery.response, delivery.body, answer.first)
        else:
            if flight is not None and writer is None:
                flight.land(Landing())
            with _room(exchange) as size:
                _pass_on(exchange, answer, delivery, writer, flight, size)
    finally:
        if writer is not None:
            writer.abort()  # does nothing to one that is committed
        answer.close()


@contextmanager
def _room(exchange: Exchange | None) -> Iterator[int]:
    """Reserve memory for a response that its client may read slowly, and give the bytes that may be on their way.

    Raises:
        NoResponse: there is none.
    """
    if exchange is None:
        yield STREAM_BYTES[0]
        return
    size = exchange.begin_stream(STREAM_BYTES)
    if not size:
        raise NoResponse(503, "too many responses are being read slowly (limits.unread_bytes)")
    try:
        yield size
    finally:
        exchange.end_stream()


def _pass_on(
    exchange: Exchange | None,
    answer: OriginAnswer,
    delivery: Deliver,
    writer: Writer | None,
    flight: Flight | None,
    stream_bytes: int,
) -> None:
    head = delivery.response
    chunks = _stored(answer.body(stream_bytes), writer)
    try:
        first = next(chunks, None)
    except TruncatedBody as error:
        raise NoResponse(502, str(error)) from None
    gone: ClientGone | None = None
    parts = _parts(first, chunks, delivery)
    if exchange is not None:
        size = answer_size(answer, delivery)
        exchange.start(head, content_length(head) if is_bodiless(exchange, head) else size)
    for part in parts:
        if exchange is None or gone is not None:
            continue
        try:
            for piece in part:
                with flight.held() if flight is not None else nullcontext():
                    exchange.write(piece)
        except ClientGone as error:
            if writer is None or flight is None or not flight.followers:
                raise
            gone = error  # others wait for it
    if writer is not None and (committed := writer.commit()) is not None and flight is not None:
        flight.land(Landing(committed))
    if gone is not None:
        raise gone
    if exchange is not None:
        exchange.finish()


def answer_size(answer: OriginAnswer, delivery: Deliver) -> int | None:
    """Return the bytes of the body that the client gets, if they are known."""
    return content_length(answer.head) if delivery.body is None else plan_size(delivery.body)


def _parts(first: bytes | None, chunks: Iterator[bytes], delivery: Deliver) -> Iterator[list[bytes]]:
    def all_of_it() -> Iterator[bytes]:
        if first is not None:
            yield first
            yield from chunks

    if delivery.body is not None:
        yield from cut_passing(delivery.body, all_of_it())
    else:
        for chunk in all_of_it():
            yield [chunk]


def _stored(chunks: Iterator[bytes], writer: Writer | None) -> Iterator[bytes]:
    """Yield ``chunks``, each of which the writer has had before, as long as it takes them."""
    for chunk in chunks:
        if writer is not None and not writer.write(chunk):
            writer.abort()
            writer = None
        yield chunk
