"""rpcmq for programs of plain threads: a client, a service and a worker that need no gevent."""

from __future__ import annotations

from rpcmq.threads.client import Client
from rpcmq.threads.service import Service
from rpcmq.threads.worker import Worker

__all__ = ["Client", "Service", "Worker"]
