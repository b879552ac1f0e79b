"""Bytes that clients have yet to read have a bound, of all of them together."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.unread import UnreadBytes
from rpcmq.testing import eventually
from tests.proxy.http.serving import HEAD, everything, serving

BODY = bytes(1 << 18)
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Client:
    """A reader that is told when it is cut off."""

    def __init__(self) -> None:
        self.is_cut_off = False

    def cut_off(self) -> None:
        self.is_cut_off = True


def test_the_slowest_client_makes_room() -> None:
    unread = UnreadBytes(100)
    first, second, third = Client(), Client(), Client()
    unread.begin_write(first, 40)
    unread.begin_write(second, 40)
    unread.end_write(first)
    unread.begin_write(first, 40)
    assert unread.total == 80
    # The second one has taken longest over its piece.
    unread.begin_write(third, 40)
    assert [each.is_cut_off for each in (first, second, third)] == [False, True, False]
    assert unread.total == 80 and unread.cut_off == 1
    unread.end_write(second)  # as its connection does when it notices
    for each in (first, third):
        unread.end_write(each)
    assert unread.total == 0


def test_a_stream_has_less_room_where_others_have_much() -> None:
    unread = UnreadBytes(100)
    clients = [Client() for _ in range(10)]
    assert [unread.begin_stream(each, (30, 10)) for each in clients] == [30, *[10] * 4, *[0] * 5]
    assert unread.total == 70
    unread.end_stream(clients[0])
    assert [unread.begin_stream(each, (30, 10)) for each in clients[5:]] == [10, 10, 10, 0, 0]
    # One that has only just begun to read is not the reason why there is no room.
    unread.begin_write(clients[1], 10)
    assert unread.begin_stream(clients[9], (30, 10)) == 0 and unread.total == 70
    assert not any(each.is_cut_off for each in clients)


def test_a_client_that_is_cut_off_gives_back_its_stream() -> None:
    unread = UnreadBytes(100)
    slow, quick = Client(), Client()
    assert unread.begin_stream(slow, (90, 60)) == 60
    unread.begin_write(slow, 30)
    unread.begin_write(quick, 50)
    assert slow.is_cut_off and not quick.is_cut_off and unread.total == 50
    unread.end_stream(slow)
    unread.end_write(slow)
    assert unread.total == 50


def test_clients_that_read_nothing_are_cut_off_where_they_keep_too_much() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.start(HEAD, None)
        for _ in range(100):
            exchange.write(BODY)
        exchange.finish()

    most = 17 * len(BODY) - 1
    with serving(answer, min_rate=0, unread_bytes=most) as served, ExitStack() as stack:
        unread = served.server.unread

        def slow_client() -> Any:
            sock = stack.enter_context(served.connected())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(REQUEST)
            return sock

        for count in range(1, 17):
            slow_client()
            eventually(lambda count=count: unread.total >= count * len(BODY))  # type: ignore[misc]
        for count in range(1, 9):
            slow_client()
            eventually(lambda count=count: unread.cut_off == count)  # type: ignore[misc]
            assert unread.total <= most
        # Who reads is served meanwhile: others make room, which have kept theirs for longer.
        with served.connected() as sock:
            sock.sendall(REQUEST)
            assert len(everything(sock)) > 100 * len(BODY)
    assert unread.total == 0
