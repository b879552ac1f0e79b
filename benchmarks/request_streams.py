"""Uploads: one request stream of 256 MiB through the router, and the same chunks through a plain pyzmq ROUTER.

The plain one has a sender, a ROUTER that passes on what it gets, and a receiver that grants a credit of chunks, all
with pyzmq's own calls and nothing else: no deadlines, sessions, bounds or other callers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from time import perf_counter
from typing import Any, NoReturn

import zmq

from benchmarks.children import Child, child, commands, cpu_seconds, peak_mib, router, say
from benchmarks.ends import answer
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq import Client, Service

__all__ = ["BENCHMARK"]

_OURS, _PLAIN = "rpcmq", "plain ROUTER"
_MIB = 1 << 20
_CHUNK = 256 << 10
_CREDIT = 8
#: Of one upload. Two rounds of the same show what grows with it.
_SIZE = 256 * _MIB
#: Time that an upload may take (seconds).
_TAKES = 30.0


def run(options: Options) -> list[Row]:
    """Megabytes a second, and by how much the memory of sender, router and receiver has grown at most (MiB)."""
    rows = [Row(_OURS, "256 MiB", []), Row(_PLAIN, "256 MiB", [])]
    for _ in range(options.rounds):
        rows[0].samples.append(_ours())
        rows[1].samples.append(_plain())
    return rows


def _ours() -> dict[str, float]:
    with ExitStack() as stack:
        enter = stack.enter_context
        daemon, url = enter(router())
        receiver = enter(child(serve, url=url))
        receiver.heard()
        sender = enter(child(upload, url=url))
        sender.heard()
        return _sample(sender, daemon, receiver)


def _plain() -> dict[str, float]:
    with ExitStack() as stack:
        enter = stack.enter_context
        middle = enter(child(plain_router))
        url = middle.heard()
        receiver = enter(child(plain_receiver, url=url))
        receiver.heard()
        sender = enter(child(plain_sender, url=url))
        sender.heard()
        return _sample(sender, middle, receiver)


def _sample(sender: Child, middle: Child, receiver: Child) -> dict[str, float]:
    processes = {"sender": sender.pid, "router": middle.pid, "receiver": receiver.pid}
    sender.ask(_TAKES, size=_MIB)  # what is made once is no growth
    before = {name: peak_mib(pid) for name, pid in processes.items()}
    cpu = cpu_seconds(middle.pid)
    seconds = sender.ask(_TAKES, size=_SIZE)
    grown = {f"{name}_mib": peak_mib(pid) - before[name] for name, pid in processes.items()}
    cpu = cpu_seconds(middle.pid) - cpu
    return {"megabytes_per_second": _SIZE / seconds / 1e6, "router_cpu_ms_per_mib": cpu * 1e3 / 256, **grown}


# --- rpcmq ---------------------------------------------------------------------------------------


class Sink:
    """Counts what it is sent."""

    def store(self, ctx: Any, body: Iterator[bytes]) -> int:
        """The bytes of the stream."""
        return sum(map(len, body))


def serve(url: str) -> None:
    """The receiver."""
    service = Service("files", Sink(), client=Client(url, shell="gevent"))
    service.start()
    say("ready")
    service.wait()


def upload(url: str) -> None:
    """The sender."""
    client = Client(url, shell="gevent")
    client.connect()
    say("ready")

    def send(size: int) -> float:
        began = perf_counter()
        message = {"method": "store", "args": {"body": _chunks(size)}}
        if client.call(None, "files", message) != size:
            raise RuntimeError("not everything has come")
        return perf_counter() - began

    answer(send)


def _chunks(size: int) -> Iterator[bytes]:
    chunk = os.urandom(_CHUNK)
    for _ in range(size // _CHUNK):
        yield chunk[:-1] + b"x"  # a new object each, as of a file


# --- a plain ROUTER ------------------------------------------------------------------------------


def plain_router() -> NoReturn:
    """Passes on to the other one what each of its two peers says."""
    socket = zmq.Context().socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    say(f"tcp://127.0.0.1:{port}")
    other = {b"sender": b"receiver", b"receiver": b"sender"}
    while True:
        who, *frames = socket.recv_multipart(copy=False)
        socket.send_multipart([other[who.bytes], *frames], copy=False)


def _dealer(url: str, identity: bytes) -> zmq.Socket[bytes]:
    socket = zmq.Context().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity)
    socket.connect(url)
    return socket


def plain_receiver(url: str) -> NoReturn:
    """Grants :data:`_CREDIT` chunks, and one more for each that it has taken."""
    socket = _dealer(url, b"receiver")
    say("ready")
    while True:
        left = int(socket.recv())
        socket.send(b"%d" % _CREDIT)
        while left:
            left -= len(socket.recv(copy=False).buffer)
            socket.send(b"1")
        socket.send(b"done")


def plain_sender(url: str) -> NoReturn:
    """Sends as many chunks as it was granted."""
    socket = _dealer(url, b"sender")
    say("ready")
    while True:
        size = commands().get()["size"]
        began = perf_counter()
        socket.send(b"%d" % size)
        credit = 0
        for chunk in _chunks(size):
            while not credit:
                credit += int(socket.recv())
            credit -= 1
            socket.send(chunk, copy=False)
        while socket.recv() != b"done":
            pass
        say(perf_counter() - began)


BENCHMARK = Benchmark(
    name="request-streams",
    title="An upload of 256 MiB in chunks of 256 KiB; growth of the memory of each process (MiB)",
    case="upload",
    metric="megabytes_per_second",
    ours=_OURS,
    run=run,
    targets=(
        Target("", "megabytes_per_second", ("256 MiB",), at_least=300),
        Target("", "sender_mib", ("256 MiB",), at_most=32),
        Target("", "router_mib", ("256 MiB",), at_most=32),
        Target("", "receiver_mib", ("256 MiB",), at_most=32),
    ),
)
