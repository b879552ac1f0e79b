"""A service in a pool of plain threads, whatever the program is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpcmq.client.service import Service as AnyService
from rpcmq.client.verbs import ClientVerbs
from rpcmq.errors import UsageError
from rpcmq.threads.client import Client
from rpcmq.transport.thread_shell import ThreadShell

__all__ = ["Service"]


class Service(AnyService):
    """A :class:`rpcmq.Service` that runs each request in one of ``concurrency`` threads, 16 if nothing is said.

    Its arguments are those of :class:`rpcmq.Service`; a ``client`` must live in plain threads.

    Methods may block, and compute: heartbeats do not depend on them. They run beside one another, so what they share
    must be safe for threads. A thread is started when a request needs one, and ends when it has had nothing to do for
    half a minute.

    Raises:
        UsageError: a wrong argument.
    """

    def _check_client(self, client: ClientVerbs) -> None:
        super()._check_client(client)
        if not isinstance(client.shell, ThreadShell):
            raise UsageError(
                f"{client!r} lives in gevent: a service of rpcmq.threads runs over a client in plain threads, such as "
                "rpcmq.threads.Client; over this one, use rpcmq.Service"
            )

    def _new_client(self, settings: Mapping[str, Any]) -> Client:
        return Client(**settings)
