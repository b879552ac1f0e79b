"""The brokers and databases of other queues: each private, on a free port, in a directory that is gone with it."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.children import program
from benchmarks.rabbitmq import RabbitMq, free_port, has_rabbitmq

__all__ = ["QueueServer", "missing", "postgres", "rabbitmq", "redis"]

_STARTING = 60.0


@dataclass(frozen=True)
class QueueServer:
    """One that runs: its url, and the process whose tree does its work."""

    url: str
    pid: int


def missing(server: str, *modules: str) -> str:
    """Why it cannot be measured here with these modules; empty if it can. Some need no ``server``."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if server and not _FOUND[server]():
        absent.insert(0, f"{server} (Debian's package)")
    return f"{', '.join(absent)} not installed" if absent else ""


def _has_postgres() -> bool:
    from tests.store.postgres_server import binaries

    return binaries() is not None


_FOUND = {
    "rabbitmq-server": has_rabbitmq,
    "redis-server": lambda: shutil.which("redis-server") is not None,
    "postgresql": _has_postgres,
}


@contextmanager
def rabbitmq() -> Iterator[QueueServer]:
    """RabbitMQ as it comes, without plugins."""
    with RabbitMq() as server:
        yield QueueServer(f"amqp://guest:guest@127.0.0.1:{server.port}/%2F", server.pid)


@contextmanager
def redis() -> Iterator[QueueServer]:
    """Redis that syncs each command before it answers."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rpcmq-redis-", ignore_cleanup_errors=True) as folder:
        settings = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always"]
        with program("redis-server", ["redis-server", *settings, *durable]) as server:
            server.line("eady to accept connections", _STARTING)
            yield QueueServer(f"redis://127.0.0.1:{port}/0", server.pid)


@contextmanager
def postgres() -> Iterator[QueueServer]:
    """PostgreSQL as it comes."""
    from tests.store.postgres_server import PostgresServer

    with PostgresServer() as server:
        yield QueueServer(server.url, server.pid)
