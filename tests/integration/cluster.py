"""Processes and a faulty network for the integration tests."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import gevent
import pytest
from gevent.server import StreamServer
from gevent.socket import create_connection

from rpcmq.client import Client
from rpcmq.testing import InProcessRouter
from rpcmq.testing.processes import Program

Failed = TypeVar("Failed", bound=Exception)

PROGRAMS = Path(__file__).parent / "programs"

Routers = tuple[InProcessRouter, InProcessRouter]

#: Heartbeats quick enough to see what becomes of one who is silent; a machine that stands still for a second is not.
QUICK: dict[str, Any] = {"link_heartbeat_seconds": 0.1, "link_unresponsive_seconds": 1.5, "link_lost_seconds": 30}
#: The same of routers that route from their start.
BRISK: dict[str, Any] = {"link_heartbeat_seconds": 0.1, "link_unresponsive_seconds": 1.5, "router_recovery_seconds": 0}


def message(method: str, /, **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


def program(name: str, *arguments: object, **env: str) -> Program:
    return Program([sys.executable, str(PROGRAMS / f"{name}.py"), *map(str, arguments)], env, name=name)


def explained(expected: type[Failed], call: Callable[..., Any], *args: Any, **options: Any) -> Failed:
    """How a call ends that times out, with the reason that the router gives.

    It is made again where the router's process was held up for longer than a caller waits for the reason.
    """
    for _ in range(5):
        with pytest.raises(expected) as ended:
            call(*args, **options)
        if "no answer within" not in str(ended.value):
            break
    return ended.value


def node(router: str, host: str = "node-1", *rest: object) -> Program:
    """A service on topic ``compute``; returns when it serves."""
    started = program("node", router, host, *rest)
    try:
        started.expect("serving")
    except BaseException:
        started.close()
        raise
    return started


def counts(client: Client, host: str = "node-1") -> dict[Any, int]:
    """The number of runs of each method on the node."""
    found: dict[Any, int] = client.call(None, f"compute.{host}", message("counts"), 20)
    return found


def consumers(client: Client) -> dict[str, dict[str, Any]]:
    """The router's rows about the consumers of ``compute``, by identity."""
    rows = [row for row in client.query("topics")["topics"] if row["topic"] == "compute"]
    return {row["identity"]: row for row in rows[0]["consumers"]} if rows else {}


class Proxy:
    """Stands between processes and the router at ``url``, and cuts their connections."""

    def __init__(self, url: str) -> None:
        #: The url to which new connections lead.
        self.target = url
        self._pairs: set[tuple[Any, Any]] = set()
        self.connections = 0
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = f"tcp://127.0.0.1:{self._server.server_port}"

    def _serve(self, near: Any, address: object) -> None:
        try:
            host, port = self.target.removeprefix("tcp://").split(":")
            far = create_connection((host, int(port)))
        except OSError:
            near.close()
            return
        self.connections += 1
        pair = near, far
        self._pairs.add(pair)
        pumps = [gevent.spawn(self._pump, near, far), gevent.spawn(self._pump, far, near)]
        gevent.joinall(pumps, count=1)
        self._cut(pair)
        gevent.joinall(pumps)

    def _pump(self, source: Any, sink: Any) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass

    def _cut(self, pair: tuple[Any, Any]) -> None:
        self._pairs.discard(pair)
        for end in pair:
            try:
                # The other side gets a RST, and what was on its way is gone.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._pairs)

    def reset(self) -> None:
        """Reset all connections."""
        for pair in list(self._pairs):
            self._cut(pair)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()
        self.reset()
