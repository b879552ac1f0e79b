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
    "current_request",
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
    "current_request": "request",
}


def __getattr__(name: str) -> Any:
    # On first use: modules of this package load gevent only where something is to live in it.
    if name not in _HOME:
        raise AttributeError(f"module 'rpcmq.client' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rpcmq.client.{_HOME[name]}"), name)
