"""A NATS cluster, each of whose servers is linked to each other one."""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.children import Child, ChildFailed, program
from benchmarks.peers import nats_missing, nats_server

__all__ = ["NatsServer", "nats_cluster", "nats_missing"]

#: Time that the servers have to find each other (seconds).
_PATIENCE = 20.0


@dataclass(frozen=True)
class NatsServer:
    """A server of the cluster."""

    process: Child
    url: str
    _monitoring: str

    @property
    def routes(self) -> list[dict[str, Any]]:
        """Its connections to other servers, with the messages that went over each."""
        with urllib.request.urlopen(f"{self._monitoring}/routez", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["routes"]
        return found


@contextmanager
def nats_cluster(count: int = 3) -> Iterator[list[NatsServer]]:
    """``count`` servers on ports that the system picks, all linked."""
    with ExitStack() as stack:
        servers: list[NatsServer] = []
        routes = ""
        for number in range(count):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nats-")))
            command = [
                nats_server() or "nats-server", "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-n", f"n{number}",
                "--ports_file_dir", str(folder), "--cluster_name", "benchmark", "--cluster", "nats://127.0.0.1:-1",
            ]  # fmt: skip
            if routes:
                command += ["--routes", routes]
            server = stack.enter_context(program("nats-server", command))
            server.line("Server is ready")
            ports = _ports(folder)
            routes = routes or ports["cluster"][0]
            servers.append(NatsServer(server, ports["nats"][0], ports["monitoring"][0]))
        _wait_until_linked(servers)
        yield servers


def _ports(folder: Path) -> dict[str, list[str]]:
    for _ in range(100):
        for file in folder.glob("*.ports"):
            try:
                found: dict[str, list[str]] = json.loads(file.read_text())
            except ValueError:
                continue  # still being written
            if all(found.get(name) for name in ("nats", "monitoring", "cluster")):
                return found
        sleep(0.05)
    raise ChildFailed("nats-server did not tell its ports")


def _wait_until_linked(servers: list[NatsServer]) -> None:
    end = monotonic() + _PATIENCE
    while any(len(server.routes) < len(servers) - 1 for server in servers):
        if monotonic() > end:
            raise ChildFailed("the servers of the NATS cluster do not find each other")
        sleep(0.05)
