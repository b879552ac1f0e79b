"""A worker in a pool of plain threads, whatever the program is."""

from __future__ import annotations

from rpcmq.client.queue.worker import Worker as AnyWorker
from rpcmq.threads.in_threads import InThreads

__all__ = ["Worker"]


class Worker(InThreads, AnyWorker):
    """A :class:`rpcmq.Worker` that works at each item in one of ``concurrency`` threads, 16 if nothing is said.

    Its arguments are those of :class:`rpcmq.Worker`; a ``client`` must live in plain threads. Methods may block, and
    compute: their items' leases do not depend on them.

    Raises:
        UsageError: a wrong argument.
    """
