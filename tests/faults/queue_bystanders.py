"""Ordinary calls beside queues whose disk fails or whose store is damaged: they go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from rpcmq import Client, Service
from rpcmq.testing import eventually
from tests.faults.queue_world import QueueWorld

__all__ = ["calls", "calls_go_on", "closed_store"]


class _Echo:
    def say(self, ctx: Any, text: str) -> str:
        return text


@contextmanager
def calls(urls: Sequence[str]) -> Iterator[Client]:
    """A client, and a service that it calls."""
    with Client(urls, shell="gevent") as client, Service("echo", _Echo(), router=urls):
        eventually(lambda: calls_go_on(client))
        yield client


def calls_go_on(client: Client) -> bool:
    """Return whether an ordinary call is answered."""
    return bool(client.call(None, "echo", {"method": "say", "args": {"text": "hello"}}, timeout=5.0) == "hello")


def closed_store(world: QueueWorld) -> Path:
    """Kill the router with its queue server, and return the file of the store, which is whole, and nobody has open."""
    server, store = world.server("a"), world.store("a")
    world.mesh["a"].kill()
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{store}").exists())
    file = world.folder / "queues-a" / "queue.db"
    # What was in the log goes into the file.
    apsw.Connection(str(file)).close()
    return file
