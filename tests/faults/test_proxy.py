"""The fault proxy: what goes through it, and what each fault does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent.server import StreamServer
from gevent.socket import create_connection

from rpcmq.drill.proxy import FaultProxy
from rpcmq.testing import eventually


class Echo:
    """Sends back what it gets, and knows who is connected."""

    def __init__(self) -> None:
        self.open = 0
        self.got = b""
        self.server = StreamServer(("127.0.0.1", 0), self._serve)
        self.server.start()
        self.url = f"tcp://127.0.0.1:{self.server.server_port}"

    def _serve(self, connection: Any, address: object) -> None:
        self.open += 1
        try:
            while data := connection.recv(65536):
                self.got += data
                connection.sendall(data)
        except OSError:
            pass
        finally:
            self.open -= 1
            connection.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.server.stop()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with closing(FaultProxy(echo.url)) as made:
        yield made
    assert made.open == 0


Connect = Callable[[FaultProxy], Any]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[Any] = []

    def connect(proxy: FaultProxy) -> Any:
        host, port = proxy.url.removeprefix("tcp://").split(":")
        made.append(create_connection((host, int(port)), timeout=10))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def is_silent(connection: Any) -> bool:
    """Whether nothing comes for a moment."""
    connection.settimeout(0.1)
    try:
        connection.recv(1)
    except TimeoutError:
        connection.settimeout(10)
        return True
    return False


def ask(connection: Any, data: bytes) -> bytes:
    connection.sendall(data)
    answer = b""
    while len(answer) < len(data):
        answer += connection.recv(65536)
    return answer


def test_it_passes_everything_on(proxy: FaultProxy, connect: Connect):
    data = bytes(range(256)) * 4096
    connection = connect(proxy)
    sender = gevent.spawn(connection.sendall, data)
    answer = b""
    while len(answer) < len(data):
        answer += connection.recv(65536)
    sender.get(timeout=20)
    assert answer == data and proxy.open == 1
    connection.close()
    eventually(lambda: proxy.open == 0)


def test_a_reset_ends_both_sides_and_the_next_connection_is_taken(proxy: FaultProxy, echo: Echo, connect: Connect):
    connection = connect(proxy)
    assert ask(connection, b"one") == b"one"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    eventually(lambda: echo.open == 0)
    assert ask(connect(proxy), b"two") == b"two"


def test_a_partition_holds_what_is_sent_until_it_heals(proxy: FaultProxy, echo: Echo, connect: Connect):
    connection = connect(proxy)
    ask(connection, b"before")
    proxy.partition(to_process=False)
    connection.sendall(b"up")
    assert is_silent(connection)
    assert echo.got == b"before" and echo.open == 1
    proxy.heal()
    assert connection.recv(10) == b"up"
    proxy.partition(to_router=False)
    connection.sendall(b"down")
    eventually(lambda: echo.got.endswith(b"down"))
    proxy.heal()
    assert connection.recv(10) == b"down"


def test_a_delay(proxy: FaultProxy, connect: Connect):
    connection = connect(proxy)
    proxy.delay_seconds = 0.1
    began = monotonic()
    assert ask(connection, b"late") == b"late"
    assert monotonic() - began >= 0.2


def test_half_open(proxy: FaultProxy, echo: Echo, connect: Connect):
    connection = connect(proxy)
    ask(connection, b"x")
    proxy.half_open()
    eventually(lambda: echo.open == 0)
    connection.sendall(b"into the void")
    assert is_silent(connection), "nobody has told this side"
    assert echo.got == b"x"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)


def test_without_a_router_connections_are_reset(echo: Echo, connect: Connect):
    echo.server.stop()
    with closing(FaultProxy(echo.url)) as proxy, pytest.raises(ConnectionResetError):
        connect(proxy).recv(1)
