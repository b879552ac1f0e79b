"""The library that applications import: clients and services."""

from rpcmq.client.client import Client, Target
from rpcmq.client.middleware import Middleware, OutgoingRequest, Tracing
from rpcmq.client.options import CallOptions
from rpcmq.client.request import Request, current_request
from rpcmq.client.retry import Retry
from rpcmq.client.service import Service
from rpcmq.client.subscription import Subscription

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
