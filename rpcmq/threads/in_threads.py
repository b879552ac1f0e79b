"""Services that run what they are sent in plain threads, whatever the program is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpcmq.client.service import Service as AnyService
from rpcmq.client.verbs import ClientVerbs
from rpcmq.errors import UsageError
from rpcmq.threads.client import Client
from rpcmq.transport.thread_shell import ThreadShell

__all__ = ["InThreads"]


class InThreads(AnyService):
    """A service over a client in plain threads."""

    def _check_client(self, client: ClientVerbs) -> None:
        super()._check_client(client)
        if not isinstance(client.shell, ThreadShell):
            name = type(self).__name__
            raise UsageError(
                f"{client!r} lives in gevent: a {name.lower()} of rpcmq.threads runs over a client in plain threads, "
                f"such as rpcmq.threads.Client; over this one, use rpcmq.{name}"
            )

    def _new_client(self, settings: Mapping[str, Any]) -> Client:
        return Client(**settings)
