"""A private RabbitMQ: on a free port, in a directory that is gone with it; it can be killed and started again."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks.children import Child, program

__all__ = ["RabbitMq", "free_port", "has_rabbitmq"]

#: Debian's wrapper of the same name would run it as a user to whom the directory does not belong.
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_STARTING = 60.0


def has_rabbitmq() -> bool:
    """Return whether Debian's package is installed."""
    return _RABBITMQ.exists() and shutil.which("epmd") is not None


def free_port() -> int:
    """Return a port of loopback that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class RabbitMq:
    """RabbitMQ as it comes, without plugins, for as long as the block runs.

    Attributes:
        port: of AMQP, on loopback; guest is its user.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self._stack, self._running = ExitStack(), ExitStack()

    @property
    def pid(self) -> int:
        """The process whose tree does the work."""
        return self._server.pid

    def start(self) -> None:
        """Start it (again) with what its directory has; returns when it serves."""
        self._server: Child = self._running.enter_context(program("rabbitmq-server", [str(_RABBITMQ)], self._env))
        self._server.line("Server startup complete", _STARTING)

    def kill(self) -> None:
        """Kill it (SIGKILL), with all that it has started."""
        self._running.close()

    def __enter__(self) -> Self:
        folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="rpcmq-rabbitmq-", ignore_cleanup_errors=True)
        )
        names = str(free_port())
        self._env = {
            "HOME": folder,
            "ERL_EPMD_PORT": names,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"rpcmq-bench-{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/environment",
        }
        try:
            # Else RabbitMQ starts this one as a daemon, which outlives it.
            self._stack.enter_context(program("epmd", ["epmd", "-port", names], self._env))
            self._stack.callback(self._running.close)
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
