"""A proxy before a PostgreSQL server that ends connections in the middle of a commit."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import Random
from typing import Any, Self
from urllib.parse import urlsplit

import gevent
from gevent.server import StreamServer
from gevent.socket import create_connection

__all__ = ["CommitCutter"]

_PIECE = 65536


class CommitCutter:
    """Passes on to the server at ``target``; of the commits a ``part`` is lost with its connection.

    Args:
        target: url of a server.

    Attributes:
        url: for its clients.
        lost: commits that the server never had.
        unanswered: commits whose clients were not told that they were done.
    """

    def __init__(self, target: str, random: Random, part: float) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None and parts.port is not None
        self._target = parts.hostname, parts.port
        self._random, self.part = random, part
        self.lost = self.unanswered = 0
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = target.replace(f":{parts.port}", f":{self._server.server_port}")

    def _serve(self, near: Any, _: object) -> None:
        with near:
            try:
                far = create_connection(self._target)
            except OSError:
                return
            with far:
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                answers = gevent.spawn(self._copy, far, near)
                with suppress(OSError):
                    self._pass_on(near, far, answers)
                answers.kill()

    def _copy(self, source: Any, sink: Any) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, near: Any, far: Any, answers: gevent.Greenlet[..., None]) -> None:
        while data := near.recv(_PIECE):
            if b"COMMIT" not in data or self._random.random() >= self.part:
                far.sendall(data)
            elif self._random.random() < 0.5:
                self.lost += 1
                return
            else:
                answers.kill()
                far.sendall(data)
                far.recv(_PIECE)
                self.unanswered += 1
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()
