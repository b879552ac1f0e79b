"""How a connection that libzmq owns is broken: only if its file descriptor still is that socket."""

from __future__ import annotations

import os
import socket

import pytest

from rpcmq.transport.router_shell import _break, _socket_of


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def is_broken(other: socket.socket) -> bool:
    other.setblocking(False)
    try:
        return other.recv(1) == b""
    except BlockingIOError:
        return False


def test_the_socket_that_is_meant_is_broken_and_stays_its_owner_s_to_close(pair):
    one, other = pair
    known = _socket_of(one.fileno())
    assert known is not None
    _break(one.fileno(), known)
    assert is_broken(other)
    assert one.fileno() >= 0 and os.fstat(one.fileno())
    _break(one.fileno(), known)


def test_another_socket_under_the_same_number_is_left_alone(pair):
    one, _ = pair
    known = _socket_of(one.fileno())
    assert known is not None
    new, newer = socket.socketpair()
    try:
        os.dup2(new.fileno(), one.fileno())
        _break(one.fileno(), known)
        assert not is_broken(newer)
    finally:
        new.close()
        newer.close()


def test_a_number_that_is_nobody_s_does_no_harm():
    assert _socket_of(-1) is None
    _break(-1, 1)
