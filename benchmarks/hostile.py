"""Honest calls beside a hostile peer: how long they take, how many fail, and what memory the router takes.

``python -m benchmarks.hostile [--seconds 10] [attack ...]`` runs each attack against a fresh router on loopback,
without keys, beside one caller and one service, and prints a row for it. The first row is without an attack. It is not
part of ``python -m benchmarks``: the figures are to be judged by their size, not compared with a peer's.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import zmq

from benchmarks.children import ChildFailed, child, cpu_seconds, router, say
from rpcmq.wire import FIRST_SESSION_KIND, KEY, KIND_AT, Address, Flag, Kind, body_of, control, pack, split

__all__ = ["ATTACKS", "attack", "honest", "service"]

_TOPIC = "honest"
_COMPUTE = Address(_TOPIC).encode()
_NOWHERE = Address("nobody-serves-this").encode()
_OWN = Address("mallory-serves-this").encode()
_KIB, _MIB = 1 << 10, 1 << 20
#: An honest call that takes longer has failed (seconds).
_TIMEOUT = 10.0


# --- honest --------------------------------------------------------------------------------------


class _Echo:
    def echo(self, ctx: Any, text: str) -> str:
        return text


def service(url: str) -> None:
    """Serve until killed."""
    import gevent

    from rpcmq import Client, Service

    with Client(url, identity="service") as client, Service(_TOPIC, _Echo(), client=client, concurrency=1000):
        say("ready")
        gevent.sleep(3600)


def honest(url: str, seconds: float) -> None:
    """Call once every 5 ms for ``seconds``; say how long that took (ms) and how many failed."""
    import gevent

    from rpcmq import Client
    from rpcmq.errors import RpcError

    taken: list[float] = []
    failed = 0

    def call(client: Client) -> None:
        nonlocal failed
        began = perf_counter()
        try:
            client.call(None, _TOPIC, {"method": "echo", "args": {"text": "x" * 100}}, timeout=_TIMEOUT)
        except RpcError:
            failed += 1
        taken.append((perf_counter() - began) * 1e3)

    with Client(url, identity="honest") as client:
        call(client)
        taken.clear()
        say("ready")
        end, calls = monotonic() + seconds, []
        while monotonic() < end:
            calls.append(gevent.spawn(call, client))
            gevent.sleep(0.005)
        gevent.joinall(calls)
    taken.sort()
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    say({"calls": len(taken), "failed": failed, "p50_ms": p50, "p99_ms": p99, "max_ms": taken[-1]})


# --- hostile -------------------------------------------------------------------------------------


class _Raw:
    """Speaks ZMTP by hand: libzmq sends nothing of a message before its last frame, and bounds what it queues."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("tcp://").split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        ready = b"\x05READY\x0bSocket-Type" + len(b"DEALER").to_bytes(4) + b"DEALER"
        self._socket.sendall(b"\x04" + bytes([len(ready)]) + ready)
        # Before it has said so itself libzmq takes what comes for a part of the handshake, and ends it.
        answer = b""
        while b"READY" not in answer and (some := self._socket.recv(4096)):
            answer += some

    def send(self, frame: bytes, more: bool = False) -> None:
        self._socket.sendall(bytes([2 | more]) + len(frame).to_bytes(8) + frame)

    def send_raw(self, frames: bytes) -> None:
        self._socket.sendall(frames)


def _hello(identity: str) -> dict[str, Any]:
    return {"identity": identity, "queue_type": "roundrobin", "versions": [1], "accepts": ["json"]}


class _Link:
    """A link that sends what it likes, and reads only if asked to."""

    def __init__(self, url: str, identity: str = "mallory") -> None:
        context: zmq.Context[Any] = zmq.Context.instance()
        self._socket = context.socket(zmq.DEALER)
        self._socket.sndhwm = 100
        self._socket.rcvhwm = 1
        self._socket.linger = 0
        self._socket.connect(url)
        self.hello(identity)
        self.origin = b""
        while not self.origin:
            message = split(self._socket.recv_multipart()[0])[0]
            if message[KIND_AT] == Kind.WELCOME:
                welcome = body_of(message)
                self.origin = welcome["router_id"].to_bytes(4) + welcome["handle"].to_bytes(8)
        self.sequence = 0

    def hello(self, identity: str) -> None:
        self._socket.send(control(Kind.HELLO, _hello(identity)))

    def key(self) -> bytes:
        self.sequence += 1
        return self.origin + self.sequence.to_bytes(8)

    def receive(self) -> list[bytes]:
        """Messages that have come within 10 ms, but for those about the link."""
        if not self._socket.poll(10):
            return []
        messages = split(self._socket.recv_multipart()[0])
        return [] if messages[0][KIND_AT] < FIRST_SESSION_KIND else messages

    def skip(self) -> None:
        """Take what has come, and look at none of it."""
        while self._socket.poll(0):
            self._socket.recv_multipart()

    def send(self, messages: list[bytes]) -> None:
        payloads = [message.payload for message in messages if hasattr(message, "payload")]
        self._socket.send_multipart([b"".join(messages), *payloads])


def _nothing(url: str) -> None:
    sleep(3600)


def _hellos(url: str) -> None:
    """HELLO after HELLO on one connection, each under another identity."""
    link = _Link(url)
    number = 0
    while True:
        number += 1
        link.hello(f"mallory-{number}")


def _endless_before_hello(url: str) -> None:
    """A ZeroMQ message that never ends, on a connection that has not said HELLO; again when it is cut."""
    while True:
        try:
            raw = _Raw(url)
            while True:
                raw.send(bytes(_MIB), more=True)
        except OSError:
            sleep(0.01)


def _endless_on_a_link(url: str) -> None:
    """The same after HELLO."""
    number = 0
    while True:
        number += 1
        try:
            raw = _Raw(url)
            raw.send(control(Kind.HELLO, _hello(f"m-{number}")))
            while True:
                raw.send(bytes(_MIB), more=True)
        except OSError:
            sleep(0.01)


def _large_hellos(url: str) -> None:
    """HELLO with a body of 78 MB."""
    body = control(Kind.HELLO, {"identity": "x"})
    body = (len(body) + 78 * _MIB).to_bytes(4) + body[4:] + bytes(78 * _MIB)
    while True:
        try:
            raw = _Raw(url)
            while True:
                raw.send(body)
        except OSError:
            sleep(0.01)


def _unread_answers(url: str) -> None:
    """Calls of a service of its own, which answers each with 1 MiB, and never a look at an answer."""
    server, caller = _Link(url, "mallory-serves"), _Link(url)
    server.send([pack(Kind.REGISTER, b'{"credit":100}', key=server.key(), format=1, address=_OWN)])
    received = 0
    while True:
        caller.send([pack(Kind.REQUEST, b"{}", key=caller.key(), format=1, address=_OWN, ttl=60_000)])
        for message in server.receive():
            received += 1
            if message[KIND_AT] == Kind.REQUEST:
                server.send([pack(Kind.REPLY, bytes(_MIB), key=message[KEY], format=1)])
        server.send([pack(Kind.ACK, sequence=received)])


def _heartbeats(url: str) -> None:
    """Heartbeats that want an answer, and never a look at one."""
    link = _Link(url)
    message = pack(Kind.HEARTBEAT, flags=Flag.ANSWER_WANTED)
    while True:
        link.send([message])


def _mailboxes(url: str) -> None:
    """Casts of 1 MiB to ever new topics that nobody serves."""
    link = _Link(url)
    number = 0
    while True:
        number += 1
        address = Address(f"nobody-{number % 9000}").encode()
        link.send([pack(Kind.CAST, bytes(_MIB), key=link.key(), format=1, address=address)])


def _repeated(url: str) -> None:
    """A call and its cancellation under one sequence, again and again."""
    link = _Link(url)
    key = link.key()
    request = pack(Kind.REQUEST, b"{}", key=key, format=1, address=_COMPUTE, method=b"echo")
    batch = [request, pack(Kind.CANCEL, key=key)] * 64
    while True:
        link.send(batch)


def _methods(url: str) -> None:
    """Calls of methods that are made up, and cancelled."""
    link = _Link(url)
    number = 0
    while True:
        batch = []
        for _ in range(64):
            number += 1
            key = link.key()
            method = b"%010d" % number + b"x" * 245
            batch.append(pack(Kind.REQUEST, b"{}", key=key, format=1, address=_NOWHERE, method=method))
            batch.append(pack(Kind.CANCEL, key=key))
        link.send(batch)


def _inline(url: str) -> None:
    """Casts of 1.5 MB that are not detached, as large batches as the router's libzmq takes."""
    link = _Link(url)
    while True:
        batch = []
        for _ in range(40):
            head = pack(Kind.CAST, key=link.key(), format=1, address=_COMPUTE, method=b"echo")
            batch.append((len(head) + 3 * _MIB // 2).to_bytes(4) + head[4:] + bytes(3 * _MIB // 2))
        link.send(batch)


def _small_calls(url: str) -> None:
    """Calls as fast as they can be sent, from a link that reads nothing."""
    link = _Link(url)
    while True:
        link.send([
            pack(Kind.REQUEST, b"{}", key=link.key(), format=1, address=_NOWHERE, method=b"echo") for _ in range(256)
        ])  # fmt: skip


def _views(url: str) -> None:
    """40 links that ask for views without pause, of a router that nobody's casts to 9000 topics wait in."""
    links = [_Link(url, f"mallory-{number}") for number in range(40)]
    for number in range(9000):
        address = Address(f"nobody-{number}").encode()
        links[0].send([pack(Kind.CAST, b"{}", key=links[0].key(), format=1, address=address)])
    number = 0
    while True:
        for link in links:
            number += 1
            view = ("overview", "topics", "methods", "stuck", "calls", "stats")[number % 6]
            link.send([control(Kind.QUERY, {"what": view}, key=link.key())])
            link.skip()


def _empty_frames(url: str, identity: str = "") -> None:
    """A ZeroMQ message of empty frames that never ends: 2 bytes each, for which libzmq keeps 64."""
    frames = b"\x01\x00" * (32 * _KIB)
    number = 0
    while True:
        number += 1
        try:
            raw = _Raw(url)
            if identity:
                raw.send(control(Kind.HELLO, _hello(f"{identity}-{number}")))
            while True:
                raw.send_raw(frames)
        except OSError:
            sleep(0.01)


def _empty_frames_on_a_link(url: str) -> None:
    """The same after HELLO."""
    _empty_frames(url, "mallory")


ATTACKS: dict[str, Callable[[str], None]] = {
    "none": _nothing,
    "hellos": _hellos,
    "endless message before HELLO": _endless_before_hello,
    "endless message on a link": _endless_on_a_link,
    "empty frames before HELLO": _empty_frames,
    "empty frames on a link": _empty_frames_on_a_link,
    "HELLO of 78 MB": _large_hellos,
    "answers not read": _unread_answers,
    "heartbeats not read": _heartbeats,
    "casts of 1 MiB to nobody": _mailboxes,
    "one sequence again": _repeated,
    "made-up methods": _methods,
    "1.5 MB not detached": _inline,
    "calls to nobody": _small_calls,
    "views for 40 links": _views,
}


def attack(url: str, name: str) -> None:
    """Attack until killed, from the start whenever the link ends."""
    # It would be on another host, and take no CPU of the router's: with `chrt -r 1` the others go first.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    say("ready")
    while True:
        try:
            ATTACKS[name](url)
        except (zmq.ZMQError, OSError):
            sleep(0.05)


# --- in the parent -------------------------------------------------------------------------------


def _peak(pid: int) -> float:
    """The most memory that a process has had (MiB)."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found is not None else 0.0


def _measure(name: str, seconds: float, settings: dict[str, str]) -> str:
    with ExitStack() as stack:
        daemon, url = stack.enter_context(router(**settings))
        stack.enter_context(child(service, url=url)).heard()
        stack.enter_context(child(attack, url=url, name=name)).heard()
        sleep(1.0)
        caller = stack.enter_context(child(honest, url=url, seconds=seconds))
        try:
            caller.heard()
            before = cpu_seconds(daemon.pid)
            found = caller.heard(seconds + 2 * _TIMEOUT + 30.0)
            cpu = (cpu_seconds(daemon.pid) - before) / seconds
        except ChildFailed as error:
            return f"{name:30} {str(error)[:80]}  peak {_peak(daemon.pid):.0f} MiB"
        return (
            f"{name:30} {found['calls']:6} {found['failed']:6} {found['p50_ms']:9.2f} {found['p99_ms']:9.2f} "
            f"{found['max_ms']:9.2f} {_peak(daemon.pid):9.0f} {cpu * 100:6.0f} %"
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("attacks", nargs="*", metavar="attack", help=f"which; default: all of {', '.join(ATTACKS)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each")
    parser.add_argument("--router-max-bytes", default="1GiB", help="router.max_bytes")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.attacks if name not in ATTACKS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: no such attack; there are {', '.join(ATTACKS)}")
    columns = ("calls", 6), ("failed", 6), ("p50 ms", 9), ("p99 ms", 9), ("max ms", 9), ("peak MiB", 9), ("CPU", 8)
    print(f"{'attack':30} " + " ".join(f"{title:>{width}}" for title, width in columns), flush=True)
    for name in arguments.attacks or ATTACKS:
        print(_measure(name, arguments.seconds, {"router_max_bytes": arguments.router_max_bytes}), flush=True)


if __name__ == "__main__":
    # Under its real name, by which its children find it.
    importlib.import_module("benchmarks.hostile").main()
