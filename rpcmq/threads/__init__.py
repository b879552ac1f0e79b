"""rpcmq for programs of plain threads: a client and a service that need no gevent."""

from __future__ import annotations

from rpcmq.threads.client import Client
from rpcmq.threads.service import Service

__all__ = ["Client", "Service"]
