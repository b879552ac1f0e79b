"""Restrict the payload formats a key may send; applied only to links of keys that have such a restriction.

The router sees the number of the format in the header; it never looks at the payload.
"""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.model import Handler, Link
from rpcmq.payload.format import Format, format_name, with_streams
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    FORMAT_AT,
    KEY,
    Address,
    Kind,
    address_of,
    json_bytes,
    pack,
    parse,
)

__all__ = ["restrict_formats"]

_REQUESTS = (Kind.REQUEST, Kind.CAST, Kind.PUBLISH)
_ITEMS = (Kind.REQUEST_ITEM, Kind.REQUEST_END)
_ANSWERS = (Kind.REPLY, Kind.FAULT, Kind.ITEM)

#: Called with the link, the message, and the reason: short, and as a sentence without the key.
Refuse = Callable[[Link, bytes, str, str], str]


def restrict_formats(handlers: list[Handler], mask: int, refuse: Refuse) -> list[Handler]:
    """Wrap ``handlers`` in a check of the payload format.

    Args:
        handlers: by kind.
        mask: of the formats that may be sent.
        refuse: counts and notes a refusal; returns the sentence for whoever is to know. A sender of requests is
            told by it.
    """
    table = list(handlers)
    for kind in _REQUESTS:
        table[kind] = _request(handlers[kind], with_streams(mask), refuse)
    for kind in _ITEMS:
        table[kind] = _item(handlers[kind], handlers[Kind.CANCEL], mask, refuse)
    for kind in _ANSWERS:
        table[kind] = _answer(handlers[kind], handlers[Kind.FAULT], mask, refuse)
    table[Kind.ALIVE] = _progress(handlers[Kind.ALIVE], mask, refuse)
    return table


def _request(accept: Handler, mask: int, refuse: Refuse) -> Handler:
    def request(now: float, link: Link, message: bytes) -> None:
        if mask >> message[FORMAT_AT] & 1:
            accept(now, link, message)
            return
        parse(message)
        name = format_name(message[FORMAT_AT])
        refuse(link, message, name, f"may not send {name} to {str(Address.decode(address_of(message)))!r}")

    return request


def _item(accept: Handler, cancel: Handler, mask: int, refuse: Refuse) -> Handler:
    def item(now: float, link: Link, message: bytes) -> None:
        # Bytes as they are have 0 there.
        if mask >> message[FORMAT_AT] & 1 or not message[FORMAT_AT]:
            accept(now, link, message)
            return
        name = format_name(message[FORMAT_AT])
        refuse(link, message, name, f"may not send {name} as an item of a request's stream")
        cancel(now, link, message)  # without that item it is not what its sender means

    return item


def _answer(accept: Handler, fail: Handler, mask: int, refuse: Refuse) -> Handler:
    def answer(now: float, link: Link, message: bytes) -> None:
        if mask >> message[FORMAT_AT] & 1:
            accept(now, link, message)
            return
        text = refuse(
            link, message, format_name(message[FORMAT_AT]), f"may not answer in {format_name(message[FORMAT_AT])}"
        )
        # Send the caller an error, so that it waits no longer.
        record = json_bytes({"type": "rpcmq.errors:AccessDenied", "text": text})
        fault = pack(
            Kind.FAULT,
            record,
            format=Format.JSON,
            ttl=0,
            key=message[KEY],
            attempt=message[ATTEMPT_AT],
            consumer=message[CONSUMER_AT],
        )
        fail(now, link, fault)

    return answer


def _progress(accept: Handler, mask: int, refuse: Refuse) -> Handler:
    def progress(now: float, link: Link, message: bytes) -> None:
        # One without a value has any number there.
        if mask >> message[FORMAT_AT] & 1 or not message[FORMAT_AT]:
            accept(now, link, message)
        else:
            refuse(
                link, message, format_name(message[FORMAT_AT]), f"may not answer in {format_name(message[FORMAT_AT])}"
            )

    return progress
