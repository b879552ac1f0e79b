"""A service in a pool of plain threads, whatever the program is."""

from __future__ import annotations

from rpcmq.threads.in_threads import InThreads

__all__ = ["Service"]


class Service(InThreads):
    """A :class:`rpcmq.Service` that runs each request in one of ``concurrency`` threads, 16 if nothing is said.

    Its arguments are those of :class:`rpcmq.Service`; a ``client`` must live in plain threads.

    Methods may block, and compute: heartbeats do not depend on them. They run beside one another, so what they share
    must be safe for threads. A thread is started when a request needs one, and ends when it has had nothing to do for
    half a minute.

    Raises:
        UsageError: a wrong argument.
    """
