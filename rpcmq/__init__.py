"""rpcmq: RPC for cloud controllers over ZeroMQ and gevent."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rpcmq import aio, rpc, threads
    from rpcmq.client import (
        CallOptions,
        Client,
        Dialect,
        Item,
        ItemState,
        Middleware,
        OutgoingRequest,
        Receipt,
        Reject,
        Request,
        RequestStream,
        Retry,
        RetryLater,
        Service,
        Subscription,
        Tracing,
        Worker,
        as_cast,
        as_fanout,
        current_item,
        current_request,
        forget_marks,
        once,
        once_schema,
        put_in,
        stream,
        with_options,
    )
    from rpcmq.payload import AllowList, Codec, ExceptionRegistry, Format, allow
    from rpcmq.wire import Address

__all__ = [
    "Address",
    "AllowList",
    "CallOptions",
    "Client",
    "Codec",
    "Dialect",
    "ExceptionRegistry",
    "Format",
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
    "Tracing",
    "Worker",
    "__version__",
    "aio",
    "allow",
    "as_cast",
    "as_fanout",
    "current_item",
    "current_request",
    "forget_marks",
    "once",
    "once_schema",
    "put_in",
    "rpc",
    "stream",
    "threads",
    "with_options",
]

_HOME = {
    "Address": "rpcmq.wire",
    "AllowList": "rpcmq.payload",
    "CallOptions": "rpcmq.client",
    "Client": "rpcmq.client",
    "Codec": "rpcmq.payload",
    "Dialect": "rpcmq.client",
    "ExceptionRegistry": "rpcmq.payload",
    "Format": "rpcmq.payload",
    "Item": "rpcmq.client",
    "ItemState": "rpcmq.client",
    "Middleware": "rpcmq.client",
    "OutgoingRequest": "rpcmq.client",
    "Receipt": "rpcmq.client",
    "Reject": "rpcmq.client",
    "Request": "rpcmq.client",
    "RequestStream": "rpcmq.client",
    "Retry": "rpcmq.client",
    "RetryLater": "rpcmq.client",
    "Service": "rpcmq.client",
    "Subscription": "rpcmq.client",
    "Tracing": "rpcmq.client",
    "Worker": "rpcmq.client",
    "allow": "rpcmq.payload",
    "as_cast": "rpcmq.client",
    "as_fanout": "rpcmq.client",
    "current_item": "rpcmq.client",
    "current_request": "rpcmq.client",
    "forget_marks": "rpcmq.client",
    "once": "rpcmq.client",
    "once_schema": "rpcmq.client",
    "put_in": "rpcmq.client",
    "stream": "rpcmq.client",
    "with_options": "rpcmq.client",
}


def __getattr__(name: str) -> Any:
    # On first use, so that the router process does not load what decodes payloads.
    if name in ("aio", "rpc", "threads"):
        return importlib.import_module(f"rpcmq.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'rpcmq' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
