"""The brokers and databases of other queues: each private, on a free port, in a directory that is gone with it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import program

__all__ = ["QueueServer", "missing", "postgres", "rabbitmq", "redis"]

#: Debian's wrapper of the same name would run it as a user to whom the directory does not belong.
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
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
    "rabbitmq-server": lambda: _RABBITMQ.exists() and shutil.which("epmd") is not None,
    "redis-server": lambda: shutil.which("redis-server") is not None,
    "postgresql": _has_postgres,
}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def rabbitmq() -> Iterator[QueueServer]:
    """RabbitMQ as it comes, without plugins."""
    port, names = _free_port(), str(_free_port())
    with tempfile.TemporaryDirectory(prefix="rpcmq-rabbitmq-", ignore_cleanup_errors=True) as folder:
        env = {
            "HOME": folder,
            "ERL_EPMD_PORT": names,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"rpcmq-bench-{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/environment",
        }
        # Else RabbitMQ starts this one as a daemon, which outlives it.
        with (
            program("epmd", ["epmd", "-port", names], env),
            program("rabbitmq-server", [str(_RABBITMQ)], env) as server,
        ):
            server.line("Server startup complete", _STARTING)
            yield QueueServer(f"amqp://guest:guest@127.0.0.1:{port}/%2F", server.pid)


@contextmanager
def redis() -> Iterator[QueueServer]:
    """Redis that syncs each command before it answers."""
    port = _free_port()
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
