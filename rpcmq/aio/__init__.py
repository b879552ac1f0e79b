"""rpcmq for asyncio programs: a client whose verbs are awaited."""

from __future__ import annotations

from rpcmq.aio.client import Client
from rpcmq.aio.middleware import Middleware

__all__ = ["Client", "Middleware"]
