"""The library that applications import: clients and services."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpcmq.client.client import Client, Target
    from rpcmq.client.event_subscription import Subscription
    from rpcmq.client.middleware import Middleware, OutgoingRequest, Tracing
    from rpcmq.client.options import CallOptions
    from rpcmq.client.request import Request, current_request
    from rpcmq.client.retry import Retry
    from rpcmq.client.service import Service
    from rpcmq.client.stubs import as_cast, as_fanout, with_options

__all__ = [
    "CallOptions",
    "Client",
    "Middleware",
    "OutgoingRequest",
    "Request",
    "Retry",
    "Service",
    "Subscription",
    "Target",
    "Tracing",
    "as_cast",
    "as_fanout",
    "current_request",
    "with_options",
]

_HOME = {
    "CallOptions": "options",
    "Client": "client",
    "Middleware": "middleware",
    "OutgoingRequest": "middleware",
    "Request": "request",
    "Retry": "retry",
    "Service": "service",
    "Subscription": "event_subscription",
    "Target": "client",
    "Tracing": "middleware",
    "as_cast": "stubs",
    "as_fanout": "stubs",
    "current_request": "request",
    "with_options": "stubs",
}


def __getattr__(name: str) -> Any:
    # On first use: modules of this package load gevent only where something is to live in it.
    if name not in _HOME:
        raise AttributeError(f"module 'rpcmq.client' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rpcmq.client.{_HOME[name]}"), name)
