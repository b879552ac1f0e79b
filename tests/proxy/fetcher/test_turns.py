"""An origin that is always ready lets others have their turns, however little comes at once."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from rpcmq.proxy.fetcher import connection
from rpcmq.proxy.fetcher.connection import OriginConnection
from tests.proxy.world import OK, SECONDS


class ReadySocket:
    """A socket on which the next byte has always come, as from records of TLS with one byte each."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.steps = 0

    def recv(self, size: int) -> bytes:
        self.steps += 1
        return self._data[self.steps - 1 : self.steps]

    def send(self, data: Any) -> int:
        return len(data)

    def gettimeout(self) -> float:
        return SECONDS

    def settimeout(self, seconds: float) -> None:
        """It is always in time."""

    def setsockopt(self, *_: Any) -> None:
        """Take no options."""

    def close(self) -> None:
        """There is nothing to close."""


HEAD = OK + b"X: " + b"x" * 5000 + b"\r\n"
FRAMINGS = {
    "a body": b"Content-Length: 5000\r\n\r\n" + b"b" * 5000,
    "a long body": b"Content-Length: 300000\r\n\r\n" + b"b" * 300_000,
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + b"b" * 5000 + b"\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_others_have_their_turns(monkeypatch: pytest.MonkeyPatch, framing: str) -> None:
    sock = ReadySocket(HEAD + FRAMINGS[framing])
    monkeypatch.setattr(connection, "create_connection", lambda *_, **__: sock)
    turns = [0]

    def other() -> None:
        while True:
            turns.append(sock.steps)
            gevent.sleep(0)

    def fetch() -> bytes:
        made = OriginConnection(("origin", 80), None, "", SECONDS)
        response = made.exchange(b"", b"", is_head=False, first_byte_seconds=SECONDS, idle_seconds=SECONDS)
        return response.body_at_hand(1 << 18, SECONDS) + b"".join(response.body())

    neighbour = gevent.spawn(other)
    body = gevent.spawn(fetch).get(timeout=SECONDS)
    neighbour.kill()
    assert set(body) == set(b"b") and len(body) == FRAMINGS[framing].count(b"b")
    assert max(later - earlier for earlier, later in zip(turns, [*turns[1:], sock.steps], strict=True)) <= 130
