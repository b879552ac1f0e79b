"""Messages over sockets become events, once each, and nothing of TCP is lost while the router is away."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent import socket as gevent_socket
from gevent import subprocess

from rpcmq.errors import ConfigError
from rpcmq.syslog import FrontEnd, load_settings
from rpcmq.testing import eventually

pytestmark = pytest.mark.integration

Start = Callable[..., FrontEnd]


@pytest.fixture
def start(client: Any) -> Iterator[Start]:
    """Starts front ends at free ports with settings by their keys."""
    made: list[FrontEnd] = []

    def start(**options: Any) -> FrontEnd:
        given = {key.replace("__", "."): value for key, value in options.items()}
        made.append(
            FrontEnd(client, load_settings(None, {"tcp.bind": "127.0.0.1:0", "udp.bind": "127.0.0.1:0"} | given))
        )
        made[-1].start()
        return made[-1]

    yield start
    for front_end in made:
        front_end.stop(5.0)


@pytest.fixture
def heard(connect: Callable[..., Any]) -> list[tuple[str, dict[str, Any]]]:
    """Topics and payloads of all events of syslog."""
    events: list[tuple[str, dict[str, Any]]] = []
    connect().subscribe("syslog.#", lambda ctx, topic, payload: events.append((topic, payload)))
    return events


def line(text: str, app: str = "app") -> bytes:
    return f"<165>1 - node-3 {app} - - - {text}".encode()


def counted(*messages: bytes) -> bytes:
    return b"".join(b"%d %s" % (len(message), message) for message in messages)


def connected(front_end: FrontEnd) -> Any:
    return gevent_socket.create_connection(front_end.addresses["tcp"], 10)


def send_datagrams(front_end: FrontEnd, *messages: bytes, host: str = "127.0.0.1") -> None:
    with gevent_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((host, 0))
        for message in messages:
            sender.sendto(message, front_end.addresses["udp"])


def test_a_message_is_an_event_with_all_that_it_has(start: Start, heard: list[Any]) -> None:
    front_end = start()
    with connected(front_end) as stream:
        stream.sendall(counted(line("over tcp")))
        send_datagrams(front_end, line("over udp", "other"))
        eventually(lambda: len(heard) == 2)
        peer = "{}:{}".format(*stream.getsockname())
    found = dict(heard)
    assert found["syslog.local4.notice.app.node-3"] == {
        "facility": "local4",
        "severity": "notice",
        "timestamp": None,
        "host": "node-3",
        "app": "app",
        "process_id": None,
        "message_id": None,
        "structured_data": {},
        "text": "over tcp",
        "transport": "tcp",
        "peer": peer,
    }
    assert found["syslog.local4.notice.other.node-3"]["transport"] == "udp"


def test_messages_of_a_connection_are_events_in_order(start: Start, heard: list[Any]) -> None:
    front_end = start()
    with connected(front_end) as stream:
        for first in range(0, 3000, 1000):
            stream.sendall(counted(*(line(str(n)) for n in range(first, first + 1000))))
    eventually(lambda: len(heard) == 3000)
    assert [payload["text"] for _, payload in heard] == [str(n) for n in range(3000)]
    counts = front_end.statistics()["tcp"]
    assert (counts["messages"], counts["lost"], counts["connections"]) == (3000, 0, 1)


def test_what_is_no_message_is_kept_for_people_and_counted(start: Start, heard: list[Any]) -> None:
    front_end = start(message__max_bytes=1024)
    with connected(front_end) as stream:
        stream.sendall(counted(b"<34>Oct 11 22:14:15 old su: text", line("x" * 2000), line("good")))
        eventually(lambda: len(heard) == 3)
    assert [topic for topic, _ in heard[:2]] == ["syslog.malformed"] * 2
    assert heard[0][1]["text"] == "<34>Oct 11 22:14:15 old su: text"
    assert "does not begin with a priority" in heard[0][1]["problem"]
    assert "more than message.max_bytes = 1024" in heard[1][1]["problem"] and len(heard[1][1]["text"]) == 1024
    counts = front_end.statistics()["tcp"]
    assert (counts["messages"], counts["malformed"], counts["too_long"]) == (1, 2, 1)


def test_a_connection_that_is_out_of_step_is_closed_and_others_go_on(start: Start, heard: list[Any]) -> None:
    front_end = start()
    with connected(front_end) as bad, connected(front_end) as good:
        bad.sendall(counted(line("before")) + b"GET / HTTP/1.0\r\n\r\n")
        assert bad.recv(1) == b""
        good.sendall(counted(line("after")))
        eventually(lambda: len(heard) == 2)
    assert front_end.statistics()["tcp"]["out_of_step"] == 1


@pytest.mark.fault
@pytest.mark.parametrize("flood", [b"\n" * 65536, b"x" * 65536], ids=["line ends", "a message without end"])
def test_a_connection_that_never_pauses_keeps_no_other_from_its_turn(
    start: Start, heard: list[Any], flood: bytes
) -> None:
    front_end = start()
    is_over = threading.Event()

    def send() -> None:
        with socket.create_connection(front_end.addresses["tcp"], 10) as stream:
            stream.sendall(b"9999999999 " if flood[0] == ord("x") else b"")
            while not is_over.is_set():
                stream.sendall(flood)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: front_end.statistics()["tcp"]["open"] == 2)
        with connected(front_end) as stream:
            stream.sendall(counted(line("heard all the same")))
            eventually(lambda: [payload["text"] for _, payload in heard] == ["heard all the same"])
    finally:
        is_over.set()
        eventually(lambda: not any(thread.is_alive() for thread in threads))


def test_a_silent_connection_is_closed(start: Start) -> None:
    front_end = start(tcp__idle_seconds=1.0)
    with connected(front_end) as stream:
        assert stream.recv(1) == b""
    eventually(lambda: front_end.statistics()["tcp"]["idle"] == 1)


def test_more_connections_than_allowed_wait_for_their_turn(start: Start, heard: list[Any]) -> None:
    front_end = start(tcp__max_connections=1)
    with connected(front_end) as first:
        first.sendall(counted(line("first")))
        eventually(lambda: len(heard) == 1)
        with connected(front_end) as second:
            second.sendall(counted(line("second")))
            first.close()
            eventually(lambda: len(heard) == 2)


def test_one_address_has_no_more_connections_than_it_may(start: Start, heard: list[Any]) -> None:
    front_end = start(tcp__max_connections_per_address=2)
    with connected(front_end) as first, connected(front_end):
        eventually(lambda: front_end.statistics()["tcp"]["open"] == 2)
        with connected(front_end) as third:
            assert third.recv(1) == b""
        first.sendall(counted(line("first")))
        eventually(lambda: len(heard) == 1)
    eventually(lambda: front_end.statistics()["tcp"]["open"] == 0)
    with connected(front_end) as again:
        again.sendall(counted(line("again")))
        eventually(lambda: len(heard) == 2)
    counts = front_end.statistics()["tcp"]
    assert (counts["connections"], counts["connections_refused"]) == (3, 1)


def test_datagrams_that_the_kernel_had_no_room_for_are_counted_without_a_later_one(client: Any) -> None:
    front_end = FrontEnd(client, load_settings(None, {"tcp.bind": "", "udp.bind": "127.0.0.1:0"}))
    try:
        # Nothing is read of it yet: the kernel keeps what it can, and drops the rest.
        send_datagrams(front_end, *(line("x" * 30_000) for _ in range(1000)))
        dropped = front_end.statistics()["udp"]["lost_in_kernel"]
        assert dropped > 0
    finally:
        front_end.start()
    eventually(lambda: front_end.statistics()["udp"]["messages"] == 1000 - dropped, 60)
    assert front_end.stop(10.0) == 0


def test_a_stop_publishes_what_has_come(start: Start, heard: list[Any]) -> None:
    front_end = start()
    with connected(front_end) as stream:
        stream.sendall(counted(*(line(str(n)) for n in range(2000))))
        send_datagrams(front_end, *(line(str(n)) for n in range(2000, 2100)))
        eventually(lambda: front_end.statistics()["tcp"]["connections"] == 1)
        assert front_end.stop(10.0) == 0
        eventually(lambda: len(heard) == 2100)
        assert stream.recv(1) == b""


class Away:
    """A client whose router takes no events at first."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.is_away = True

    def publish(self, ctx: Any, topic: str, payload: Any) -> None:
        if self.is_away:
            from rpcmq.errors import Overloaded

            raise Overloaded("10000 events wait for the router to take them")
        self._client.publish(ctx, topic, payload)

    def event_link(self) -> Any:
        return self._client.event_link()


def without_router(client: Any, tcp: str, max_waiting_bytes: int) -> tuple[Away, FrontEnd]:
    """A front end that has begun to listen, and its client."""
    away = Away(client)
    options = {"tcp.bind": tcp, "udp.bind": "127.0.0.1:0", "udp.max_waiting_bytes": max_waiting_bytes}
    front_end = FrontEnd(away, load_settings(None, options))  # type: ignore[arg-type]
    front_end.start()
    return away, front_end


def test_while_the_router_takes_none_tcp_waits_and_of_udp_what_has_no_room_is_lost(
    client: Any, heard: list[Any]
) -> None:
    away, front_end = without_router(client, "127.0.0.1:0", 10_000)
    with connected(front_end) as stream:
        stream.settimeout(None)
        sent = gevent.spawn(stream.sendall, counted(*(line(f"{n} " + "x" * 10_000) for n in range(2000))))
        send_datagrams(front_end, *(line("x" * 1000) for _ in range(20)))
        eventually(lambda: front_end.statistics()["udp"]["lost"] == 14)
        assert front_end.statistics()["udp"]["waiting"] == 6
        assert not sent.ready(), "the sender does not wait"
        away.is_away = False
        sent.get(timeout=60)
    eventually(lambda: len(heard) == 2006, 60)
    assert front_end.statistics()["tcp"]["lost"] == 0
    assert front_end.stop(10.0) == 0


def test_while_the_router_takes_none_a_sender_of_little_loses_nothing_beside_one_of_much(
    client: Any, heard: list[Any]
) -> None:
    away, front_end = without_router(client, "", 50_000)

    def counts(name: str) -> Any:
        return front_end.statistics()["udp"][name]

    send_datagrams(front_end, *(line("much") for _ in range(200)), host="127.4.0.1")
    eventually(lambda: counts("lost") + counts("waiting") == 200)
    before = counts("lost")
    assert 0 < before == counts("lost_without_room")
    send_datagrams(front_end, *(line(f"little {n}") for n in range(5)), host="127.4.0.2")
    eventually(lambda: counts("lost") > before)
    away.is_away = False
    eventually(lambda: counts("waiting") == 0 and len(heard) == counts("messages") == 205 - counts("lost"))
    texts = [payload["text"] for _, payload in heard]
    assert [text for text in texts if text != "much"] == [f"little {n}" for n in range(5)]
    assert texts.index("little 4") < 20, "they had to wait for all of the other"
    assert front_end.stop(10.0) == 0


#: Sends datagrams from an address to a port until it is killed.
FLOOD = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.bind((sys.argv[1], 0))
sender.connect(("127.0.0.1", int(sys.argv[2])))
while True:
    sender.send(b"<14>1 - loud flood - - - " + b"x" * 60)
"""


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux chooses sockets by sender")
def test_a_flood_from_one_address_costs_others_nothing(start: Start, connect: Callable[..., Any]) -> None:
    heard: set[str] = set()
    connect().subscribe("syslog.*.*.honest.#", lambda ctx, topic, payload: heard.add(payload["text"]))
    front_end = start()
    hosts = [f"127.4.1.{n}" for n in range(1, 21)]

    def say(text: str) -> bool:
        for host in hosts:
            send_datagrams(front_end, line(f"{host} {text}", "honest"), host=host)
        return len(heard) == len(hosts)

    flood = subprocess.Popen([sys.executable, "-c", FLOOD, "127.4.2.1", str(front_end.addresses["udp"][1])])
    try:
        eventually(lambda: front_end.statistics()["udp"]["loud"] == ["127.4.2.1"], 60)
        # The socket that the flood has shared with some of them until now is empty once they are heard.
        eventually(lambda: say("first"), 60)
        for n in range(10):
            say(str(n))
        eventually(lambda: len(heard) == 11 * len(hosts), 60)
    finally:
        flood.kill()
        flood.wait()
    counts = front_end.statistics()["udp"]
    assert counts["lost_in_kernel"] >= counts["lost_in_kernel_of_loud"] > 0 == counts["malformed"]


def test_what_cannot_be_published_in_time_is_counted_as_lost(client: Any) -> None:
    front_end = FrontEnd(Away(client), load_settings(None, {"tcp.bind": "127.0.0.1:0", "udp.bind": "127.0.0.1:0"}))  # type: ignore[arg-type]
    front_end.start()
    with connected(front_end) as stream:
        stream.sendall(counted(line("a"), line("b"), line("c")))
        send_datagrams(front_end, line("d"), line("e"))
        eventually(lambda: front_end.statistics()["udp"]["waiting"] == 2)
        eventually(lambda: front_end.statistics()["tcp"]["connections"] == 1)
        assert front_end.stop(0.5) == 5


def test_an_address_in_use_is_named(start: Start, client: Any) -> None:
    address = "{}:{}".format(*start().addresses["tcp"])
    with pytest.raises(ConfigError, match=f"tcp.bind = '{address}': cannot listen there: "):
        FrontEnd(client, load_settings(None, {"tcp.bind": address}))
