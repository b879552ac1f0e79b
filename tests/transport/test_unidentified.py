"""Connections that have not said who they are, and how one is broken: only if it still is that socket."""

from __future__ import annotations

import os
import socket

import pytest

from rpcmq.transport.owned_sockets import break_connection, socket_inode
from rpcmq.transport.unidentified import UnidentifiedConnections


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
    known = socket_inode(one.fileno())
    assert known is not None
    break_connection(one.fileno(), known)
    assert is_broken(other)
    assert one.fileno() >= 0 and os.fstat(one.fileno())
    break_connection(one.fileno(), known)


def test_another_socket_under_the_same_number_is_left_alone(pair):
    one, _ = pair
    known = socket_inode(one.fileno())
    assert known is not None
    new, newer = socket.socketpair()
    try:
        os.dup2(new.fileno(), one.fileno())
        break_connection(one.fileno(), known)
        assert not is_broken(newer)
    finally:
        new.close()
        newer.close()


def test_a_number_that_is_nobody_s_does_no_harm():
    assert socket_inode(-1) is None
    break_connection(-1, 1)


def test_the_oldest_are_cut_when_there_are_too_many_and_all_when_their_time_is_over():
    pairs = [socket.socketpair() for _ in range(6)]
    reasons: list[str] = []
    waiting = UnidentifiedConnections(3, 10.0, reasons.append)
    assert waiting.next_deadline() is None
    for at, (one, _) in enumerate(pairs[:5]):
        waiting.admit(float(at), one.fileno())
    waiting.admit(9.0, -1)
    assert [is_broken(other) for _, other in pairs] == [True, True, False, False, False, False]
    assert len(waiting) == 3 and reasons == ["cut: too many handshakes"] * 2
    # Who has said who he is, or is gone, is none any more.
    assert waiting.forget(pairs[3][0].fileno()) and not waiting.forget(pairs[3][0].fileno())
    assert waiting.next_deadline() == 12.0
    waiting.close_expired(11.9)
    assert len(waiting) == 2
    waiting.close_expired(13.0)
    assert [is_broken(other) for _, other in pairs] == [True, True, True, False, False, False]
    waiting.close_expired(100.0)
    assert [is_broken(other) for _, other in pairs] == [True, True, True, False, True, False]
    assert len(waiting) == 0 and reasons[2:] == ["cut: no HELLO in time"] * 2
    for pair in pairs:
        for end in pair:
            end.close()
