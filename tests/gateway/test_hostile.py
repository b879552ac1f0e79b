"""Peers that mean no good: each gets a defined answer, nobody else notices, and memory stays bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent import socket

from rpcmq.gateway import Gateway
from rpcmq.testing import eventually
from tests.gateway.browsers import SECONDS, Browser, browser, frame
from tests.gateway.conftest import Demo, Start, address_of

pytestmark = [pytest.mark.integration, pytest.mark.fault]

MIB = 1 << 20


def at_rest(look: Callable[[], int]) -> int:
    """Wait until ``look`` gives the same for a second, and return that."""
    since, found = monotonic(), look()

    def is_at_rest() -> bool:
        nonlocal since, found
        if (later := look()) != found:
            since, found = monotonic(), later
        return monotonic() - since >= 1.0

    eventually(is_at_rest, SECONDS)
    return found


@pytest.fixture
def gateway(start: Start) -> Gateway:
    return start()


@pytest.fixture
def neighbour(gateway: Gateway, token: str, demo: Demo) -> Iterator[Browser]:
    """Somebody honest, who is served before and after."""
    with browser(address_of(gateway)) as made:
        made.hello(token)
        assert made.ask("call", topic="demo", method="echo")["op"] == "result"
        yield made
        assert made.ask("call", topic="demo", method="echo")["op"] == "result"
        assert "InternalError" not in json.dumps(list(made.messages))


BAD = {
    "unmasked": (frame(1, b"{}", is_masked=False), 1002),
    "long ping": (frame(9, b"x" * 200), 1002),
    "no UTF-8": (frame(1, b"\xff\xfe"), 1007),
    "binary": (frame(2, b"{}"), 1003),
    "too long": (frame(1, b"x" * (MIB + 1)), 1009),
    "fragments": (frame(1, is_last=False) + frame(0, is_last=False) * 6000, 1008),
    "deep": (frame(1, b"[" * 5000), 1007),
    "twice": (frame(1, b'{"op":"call","op":"cast","id":[]}'), 1007),
    "close code": (frame(8, b"\x03\xe7"), 1002),
    "reserved bits": (b"\xf1\x80\0\0\0\0", 1002),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_frames_close_the_connection_with_their_code(
    gateway: Gateway, token: str, neighbour: Browser, name: str
) -> None:
    frames, code = BAD[name]
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.socket.sendall(frames)
        assert page.ended() == code
    eventually(lambda: gateway.statistics()["connections"] == 1)


def test_a_frame_that_says_it_is_huge_is_refused_by_what_has_come(gateway: Gateway, token: str) -> None:
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.socket.sendall(frame(1, b"x" * (MIB + 1), length=1 << 40))
        assert page.ended() == 1009


def test_slow_handshakes_are_cut_off(start: Start, token: str) -> None:
    gateway = start(times__handshake_seconds=1.5)
    with socket.create_connection(address_of(gateway), SECONDS) as silent, browser(address_of(gateway)) as no_hello:
        silent.sendall(b"GET /rpcmq HTTP/1.1\r\nHost: local")
        assert silent.recv(1) == b""
        assert no_hello.ended() == 1008
    eventually(lambda: gateway.statistics()["connections"] == 0)
    assert gateway.statistics()["refused"]["handshake timeout"] == 1


def test_a_flood_of_pings_is_cut_off(gateway: Gateway, token: str, neighbour: Browser) -> None:
    with browser(address_of(gateway)) as page:
        page.hello(token)
        with gevent.Timeout(SECONDS):
            for number in range(100_000):
                try:
                    page.socket.sendall(b"".join(frame(1, b'{"op":"ping","id":%d}' % number) for _ in range(50)))
                except OSError:
                    break
        assert page.ended() in (1008, 1006)


def test_a_flood_of_frames_is_read_slowly_and_answered_within_bounds(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__bytes_per_second=64 * 1024)
    pings = frame(9) * 2000
    with browser(address_of(gateway)) as page, browser(address_of(gateway)) as other:
        page.hello(token), other.hello(token)
        flood = gevent.spawn(page.socket.sendall, pings * 20)
        for _ in range(5):
            assert other.ask("call", topic="demo", method="echo")["op"] == "result"
        assert gateway.statistics()["outgoing_bytes"] < MIB
        flood.kill()


def test_a_browser_that_reads_nothing_has_its_events_lost_and_counted(start: Start, token: str, client: Any) -> None:
    gateway = start(limits__outgoing_bytes=100_000)
    with browser(address_of(gateway), buffer=4096) as page, browser(address_of(gateway)) as other:
        page.hello(token), other.hello(token)
        page.ask("subscribe", pattern="disk.#")
        other.ask("subscribe", pattern="disk.#")
        payload = "x" * 20_000

        def publish() -> None:
            for number in range(600):
                client.publish(None, f"disk.n{number}", payload, confirm=True)

        publisher = gevent.spawn(publish)
        seen = [other.next()["topic"] for _ in range(600)]
        publisher.get(timeout=SECONDS)
        assert seen == [f"disk.n{number}" for number in range(600)]
        assert gateway.statistics()["outgoing_bytes"] < 250_000
        assert gateway.statistics()["messages"]["events lost"] > 50
        # It comes to its senses: what was lost is told, and it all adds up.
        got = lost = 0
        while got + lost < 600:
            message = page.next()
            got += message["op"] == "event"
            lost += message.get("count", 0)
        assert got + lost == 600 and lost == gateway.statistics()["messages"]["events lost"]


def test_a_stream_waits_for_a_browser_that_reads_nothing(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__outgoing_bytes=100_000)
    with browser(address_of(gateway), buffer=4096) as page:
        page.hello(token)
        page.send(op="stream", id=1, topic="demo", method="count", args={"n": 2000, "size": 20_000}, credit=1000)
        page.send(op="credit", id=1, count=1000)
        eventually(lambda: gateway.statistics()["outgoing_bytes"] > 50_000)
        assert at_rest(lambda: demo.made) < 1000 and gateway.statistics()["outgoing_bytes"] < 200_000
        items = 0
        while (message := page.next())["op"] == "item":
            items += 1
        assert message["op"] == "end" and items == 2000


def test_a_browser_that_takes_nothing_for_too_long_is_cut_off(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__outgoing_bytes=50_000, times__stalled_seconds=1.0)
    with browser(address_of(gateway), buffer=4096) as page:
        page.hello(token)
        for number in range(40):
            page.send(op="call", id=number, topic="demo", method="large", args={"size": 500_000})
        eventually(lambda: gateway.statistics()["ended"].get("stalled") == 1)
    assert gateway.statistics()["outgoing_bytes"] == 0


def test_while_much_waits_no_more_requests_are_read(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__outgoing_bytes=50_000, limits__messages_per_second=0)
    with browser(address_of(gateway), buffer=4096) as page:
        page.hello(token)

        def ask() -> None:
            for number in range(500):
                args = {"size": 500_000, "pad": "x" * 20_000}
                page.send(op="call", id=number, topic="demo", method="large", args=args)

        sender = gevent.spawn(ask)
        eventually(lambda: gateway.statistics()["outgoing_bytes"] > 500_000)
        assert at_rest(lambda: gateway.statistics()["messages"]["call"]) < 300
        sender.kill()


def test_when_too_much_waits_for_all_the_one_with_most_goes(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__outgoing_bytes=MIB, limits__total_outgoing_bytes=4 * MIB)
    with browser(address_of(gateway), buffer=4096) as page, browser(address_of(gateway)) as other:
        page.hello(token), other.hello(token)
        for number in range(60):
            page.send(op="call", id=number, topic="demo", method="large", args={"size": 500_000})
        eventually(lambda: gateway.statistics()["ended"].get("shed") == 1)
        assert other.ask("call", topic="demo", method="echo")["op"] == "result"
    assert gateway.statistics()["outgoing_bytes"] < MIB


def test_a_silent_browser_is_pinged_and_then_taken_for_lost(start: Start, token: str) -> None:
    gateway = start(times__ping_seconds=0.5)
    with browser(address_of(gateway)) as alive, browser(address_of(gateway)) as dead:
        alive.hello(token), dead.hello(token)
        reader = gevent.spawn(alive.next)  # answers pings
        eventually(lambda: gateway.statistics()["ended"].get("silent") == 1)
        assert gateway.statistics()["connections"] == 1 and not reader.ready()
        reader.kill()


def test_a_result_that_is_too_long_is_an_error_for_that_call_alone(start: Start, token: str, demo: Demo) -> None:
    gateway = start(message__max_result_bytes=10_000)
    with browser(address_of(gateway)) as page:
        page.hello(token)
        error = page.ask("call", topic="demo", method="large", args={"size": 20_000})["error"]
        assert error["type"] == "PayloadError" and "10000" in error["text"]
        error = page.ask("stream", topic="demo", method="count", args={"n": 3, "size": 20_000}, credit=9)["error"]
        assert error["type"] == "PayloadError"
        assert page.ask("call", topic="demo", method="echo")["op"] == "result"


def test_connections_come_and_go_and_leave_nothing(gateway: Gateway, token: str, demo: Demo) -> None:
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.ask("subscribe", pattern="disk.first")
        before = len(os.listdir("/proc/self/fd"))
    for number in range(60):
        with browser(address_of(gateway)) as page:
            page.hello(token)
            page.send(op="subscribe", id=1, pattern=f"disk.{number}")
            page.send(op="stream", id=2, topic="demo", method="count", args={"n": 10**6})
            if number % 2:
                page.next()
    eventually(lambda: gateway.statistics()["connections"] == 0)
    shown = gateway.statistics()
    assert (shown["requests"], shown["subscriptions"], shown["patterns"], shown["outgoing_bytes"]) == (0, 0, 0, 0)
    eventually(lambda: len(os.listdir("/proc/self/fd")) < before + 20)


def test_a_page_may_take_longer_than_a_handshake_but_not_stand_still(start: Start, tmp_path: Path) -> None:
    body = os.urandom(24 * MIB)
    (tmp_path / "large.bin").write_bytes(body)
    patient = start(times__handshake_seconds=2.0, pages__folder=str(tmp_path))
    strict = start(times__stalled_seconds=0.5, pages__folder=str(tmp_path))
    request = b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(address_of(patient), SECONDS) as slow:
        slow.sendall(request)
        data = b""
        end = monotonic() + 3.0
        while piece := slow.recv(MIB // 4):
            data += piece
            gevent.sleep(0.1 if monotonic() < end else 0)
        assert data.partition(b"\r\n\r\n")[2] == body
    with socket.create_connection(address_of(strict), SECONDS) as stuck:
        stuck.sendall(request)
        eventually(lambda: strict.statistics()["refused"].get("broken") == 1, SECONDS)
