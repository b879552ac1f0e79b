"""Sockets that share an address: each sender fills one of them only."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from rpcmq.syslog import datagram_sockets
from rpcmq.syslog.datagram_sockets import DatagramSockets

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux chooses sockets by sender"),
]

KERNEL_BYTES = 4 << 20
Open = Callable[[str], DatagramSockets]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens sockets at an address."""
    with ExitStack() as stack:

        def open_at(address: str) -> DatagramSockets:
            made = DatagramSockets(address, KERNEL_BYTES)
            stack.callback(made.close)
            for each in made.all:
                each.settimeout(0.0)
            return made

        yield open_at


def send(sockets: DatagramSockets, host: str, count: int = 1) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((host, 0))
        at = (("::1" if ":" in host else "127.0.0.1"), sockets.all[0].getsockname()[1])
        for _ in range(count):
            sender.sendto(b"x" * 1000, at)


def read(sockets: DatagramSockets) -> dict[int, list[str]]:
    """Whose datagrams each socket has, by its number."""
    found: dict[int, list[str]] = {}
    for number, each in enumerate(sockets.all):
        try:
            while True:
                found.setdefault(number, []).append(each.recvfrom(2000)[1][0])
        except OSError:
            continue  # that was the last
        finally:
            if not found[number]:
                del found[number]
    return found


def test_all_of_a_sender_comes_to_one_socket_and_senders_have_many(opened: Open) -> None:
    sockets = opened("127.0.0.1:0")
    hosts = [f"127.3.0.{n}" for n in range(1, 101)]
    for host in hosts * 2:
        send(sockets, host)
    found = read(sockets)
    assert sorted(host for each in found.values() for host in set(each)) == sorted(hosts)
    assert len(found) > 10 and max(found) < 56


def test_a_flood_is_lost_by_its_sender_alone_and_counted_apart_once_that_is_known(opened: Open) -> None:
    sockets = opened("127.0.0.1:0")
    assert sockets.set_apart("127.3.0.1", 0.0) and sockets.loud == ["127.3.0.1"]
    assert not sockets.set_apart("127.3.0.1", 0.0), "it has one"
    send(sockets, "127.3.0.1", 5000)
    for n in range(2, 52):
        send(sockets, f"127.3.0.{n}", 5)
    lost, of_loud = sockets.drops()
    assert 0 < lost == of_loud < 5000
    found = read(sockets)
    assert len(found.pop(56)) == 5000 - lost
    assert sum(map(len, found.values())) == 250


def test_a_quiet_one_gives_its_socket_to_another_loud_one(opened: Open) -> None:
    sockets = opened("127.0.0.1:0")
    assert all(sockets.set_apart(f"127.3.0.{n}", 0.0) for n in range(1, 9))
    assert not sockets.set_apart("127.3.0.9", 59.0)
    for n in range(2, 9):
        send(sockets, f"127.3.0.{n}", 1000)  # more than one has room for
    assert sockets.set_apart("127.3.0.9", 60.0)
    assert sockets.loud == [f"127.3.0.{n}" for n in range(2, 10)]
    read(sockets)
    send(sockets, "127.3.0.9")
    assert read(sockets) == {56: ["127.3.0.9"]}
    assert not sockets.set_apart("127.3.0.10", 119.0), "they have lost some a minute ago"


def test_another_process_cannot_take_a_part_of_the_datagrams_by_mistake(opened: Open) -> None:
    port = opened("127.0.0.1:0").all[0].getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        opened(f"127.0.0.1:{port}")


def test_ipv6_senders_and_ipv4_ones_at_an_address_of_both(opened: Open) -> None:
    try:
        sockets = opened("[::]:0")
        send(sockets, "::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    send(sockets, "127.3.0.1")
    assert sorted(host for each in read(sockets).values() for host in each) == ["::1", "::ffff:127.3.0.1"]
    assert sockets.set_apart("::1", 0.0) and sockets.set_apart("::ffff:127.3.0.1", 0.0)
    send(sockets, "::1")
    send(sockets, "127.3.0.1")
    assert read(sockets) == {56: ["::1"], 57: ["::ffff:127.3.0.1"]}


def test_where_the_kernel_cannot_choose_one_socket_has_the_room_of_all(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(92, "Protocol not available")

    many = opened("127.0.0.1:0")
    monkeypatch.setattr(datagram_sockets, "attach", refused)
    sockets = opened("127.0.0.1:0")
    assert len(sockets.all) == 1 and not sockets.shares(0) and "not available" in sockets.problem
    assert len(many.all) == 64 and many.problem == ""
    with pytest.raises(OSError, match="not available"):
        many.set_apart("127.3.0.1", 0.0)
    assert many.loud == []
    assert sockets.asked_bytes == KERNEL_BYTES and sockets.granted_bytes > many.granted_bytes
    send(sockets, "127.3.0.1")
    send(sockets, "127.3.0.2")
    assert read(sockets) == {0: ["127.3.0.1", "127.3.0.2"]}
