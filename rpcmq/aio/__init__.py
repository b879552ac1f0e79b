"""rpcmq for asyncio programs: a client whose verbs are awaited, and services whose methods may be ``async``.

The verbs of this module are those of one default client: :mod:`rpcmq.aio.default`.
"""

from __future__ import annotations

from rpcmq.aio.client import Client
from rpcmq.aio.default import (
    call,
    cast,
    client,
    configure,
    declare_periodic,
    declare_queue,
    fanout_cast,
    multicall,
    notify,
    publish,
    put,
    put_many,
    receipt,
    remove_periodic,
    stub,
    subscribe,
)
from rpcmq.aio.item_receipt import Receipt
from rpcmq.aio.middleware import Middleware
from rpcmq.aio.request_stream import RequestStream
from rpcmq.aio.service import Service
from rpcmq.aio.stubs import as_cast, as_fanout
from rpcmq.aio.worker import Worker

__all__ = [
    "Client",
    "Middleware",
    "Receipt",
    "RequestStream",
    "Service",
    "Worker",
    "as_cast",
    "as_fanout",
    "call",
    "cast",
    "client",
    "configure",
    "declare_periodic",
    "declare_queue",
    "fanout_cast",
    "multicall",
    "notify",
    "publish",
    "put",
    "put_many",
    "receipt",
    "remove_periodic",
    "stub",
    "subscribe",
]
