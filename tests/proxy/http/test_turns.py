"""A client that is always ready lets others have their turns, whatever it sends or reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gevent
import pytest

from rpcmq.proxy.http.connection import ConnectionCounters, ServerConnection
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.unread import UnreadBytes
from tests.proxy.http.serving import HEAD, SECONDS

PIECE = 64 * 1024


class ReadySocket:
    """A socket on which something has always come, and that always takes what is sent."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self.steps = 0

    def recv(self, size: int) -> bytes:
        self.steps += 1
        return next(self._pieces, b"")

    def send(self, data: Any) -> int:
        self.steps += 1
        return len(data)

    def setsockopt(self, *_: Any) -> None:
        """Take no options."""

    def close(self) -> None:
        """There is nothing to close."""


def upload(exchange: Exchange) -> None:
    for _ in exchange.body():
        pass
    exchange.send(HEAD, b"")


def download(exchange: Exchange) -> None:
    exchange.start(HEAD, None)
    for _ in range(500):
        exchange.write(bytes(4 * PIECE))
    exchange.finish()


SHORT = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LONG = b"GET / HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n" % bytes(b"x" * 15_000)
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (500 * PIECE)


@pytest.mark.parametrize(
    ("pieces", "handler"),
    [
        pytest.param([SHORT * 500], upload, id="requests together"),
        pytest.param([LONG] * 500, upload, id="long requests"),
        pytest.param([POST] + [bytes(PIECE)] * 500, upload, id="a body"),
        pytest.param([POST] + [b"x"] * 5000, upload, id="a body in records of a byte"),
        pytest.param([bytes([byte]) for byte in LONG], upload, id="a head in records of a byte"),
        pytest.param([b"GET / HTTP/1.1\r\n\r\n"] + [b"x"] * 5000, upload, id="more than was asked for, in such ones"),
        pytest.param([SHORT], download, id="a response"),
    ],
)
def test_others_have_their_turns(pieces: list[bytes], handler: Any) -> None:
    sock = ReadySocket(pieces)
    connection = ServerConnection(sock, "peer", handler, Limits(), ConnectionCounters(), UnreadBytes(1 << 30))
    turns = [0]

    def other() -> None:
        while True:
            turns.append(sock.steps)
            gevent.sleep(0)

    neighbour = gevent.spawn(other)
    gevent.spawn(connection.serve).get(timeout=SECONDS)
    neighbour.kill()
    assert sock.steps > 500
    assert max(later - earlier for earlier, later in zip(turns, [*turns[1:], sock.steps], strict=True)) < 200
