"""The library that applications import: clients and services."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpcmq.client.client import Client, Target
    from rpcmq.client.event_subscription import Subscription
    from rpcmq.client.middleware import Middleware, OutgoingRequest, Tracing
    from rpcmq.client.options import CallOptions
    from rpcmq.client.queue.dialects import Dialect
    from rpcmq.client.queue.items import Item, Reject, RetryLater, current_item
    from rpcmq.client.queue.once import forget_marks, once, once_schema
    from rpcmq.client.queue.places import ItemState
    from rpcmq.client.queue.put_in import put_in
    from rpcmq.client.queue.receipt import Receipt
    from rpcmq.client.queue.worker import Worker
    from rpcmq.client.request import Request, current_request
    from rpcmq.client.request_stream import RequestStream
    from rpcmq.client.retry import Retry
    from rpcmq.client.service import Service
    from rpcmq.client.stream_argument import stream
    from rpcmq.client.stubs import as_cast, as_fanout, with_options

__all__ = [
    "CallOptions",
    "Client",
    "Dialect",
    "Item",
    "ItemState",
    "Middleware",
    "OutgoingRequest",
    "Receipt",
    "Reject",
    "Request",
    "RequestStream",
    "Retry",
    "RetryLater",
    "Service",
    "Subscription",
    "Target",
    "Tracing",
    "Worker",
    "as_cast",
    "as_fanout",
    "current_item",
    "current_request",
    "forget_marks",
    "once",
    "once_schema",
    "put_in",
    "stream",
    "with_options",
]

_HOME = {
    "CallOptions": "options",
    "Client": "client",
    "Dialect": "queue.dialects",
    "Item": "queue.items",
    "ItemState": "queue.places",
    "Middleware": "middleware",
    "OutgoingRequest": "middleware",
    "Receipt": "queue.receipt",
    "Reject": "queue.items",
    "Request": "request",
    "RequestStream": "request_stream",
    "Retry": "retry",
    "RetryLater": "queue.items",
    "Service": "service",
    "Subscription": "event_subscription",
    "Target": "client",
    "Tracing": "middleware",
    "Worker": "queue.worker",
    "as_cast": "stubs",
    "as_fanout": "stubs",
    "current_item": "queue.items",
    "current_request": "request",
    "forget_marks": "queue.once",
    "once": "queue.once",
    "once_schema": "queue.once",
    "put_in": "queue.put_in",
    "stream": "stream_argument",
    "with_options": "stubs",
}


def __getattr__(name: str) -> Any:
    # On first use: modules of this package load gevent only where something is to live in it.
    if name not in _HOME:
        raise AttributeError(f"module 'rpcmq.client' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rpcmq.client.{_HOME[name]}"), name)
