"""Origins, fetchers and front ends are killed under load: no response is wrong, mixed up, or truncated and kept."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.event import Event
from gevent.socket import create_connection

from rpcmq.testing import eventually
from tests.cli.test_proxy import children_of
from tests.proxy.world import BrokenOff, read_reply, request_bytes

pytestmark = [pytest.mark.fault, pytest.mark.long, pytest.mark.timeout(300)]

SECONDS = 60
#: Sizes of bodies: in one piece, and as streams.
SIZES = (100, 20_000, 400_000, 2_000_000)
CLIENTS, URLS = 12, 60
ROUNDS = 6

ORIGIN = """
import sys
sys.path.insert(0, {root!r})
import gevent
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.messages import Headers, ResponseHead
from tests.faults.test_proxy import body_of

def answer(exchange):
    target = exchange.request.target.decode()
    fields = [("Cache-Control", "max-age=1, stale-if-error=30"), ("X-Target", target)]
    body = body_of(target)
    exchange.start(ResponseHead(200, Headers(fields)), None if target.endswith("c") else len(body))
    for at in range(0, len(body), 50_000):
        exchange.write(body[at:at + 50_000])
        gevent.sleep(0.002)
    exchange.finish()

server = HttpServer(answer, Limits())
server.serve_on(listen("127.0.0.1:" + sys.argv[1], name="origin"))
print("ready", flush=True)
gevent.sleep(1000)
"""


def body_of(target: str) -> bytes:
    """The only body that is right for ``target``: made of its name, and of a size that follows from that."""
    digest = hashlib.sha256(target.encode()).digest()
    size = SIZES[digest[0] % len(SIZES)]
    return (digest * (size // len(digest) + 1))[:size]


class Process:
    """A process that is killed and started again."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self.running: Any = None

    def start(self) -> None:
        self.running = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self.running.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()
        self.running.stdout.close()


@contextmanager
def proxy(tmp_path: Path, ports: list[int], port: int) -> Iterator[Any]:
    path = tmp_path / "proxy.toml"
    origins = ", ".join(f'"http://127.0.0.1:{each}"' for each in ports)
    path.write_text(
        f'[front]\nhttps = ""\nadmin = ""\nhttp = "127.0.0.1:{port}"\nprocesses = 2\ndrain_seconds = 2\n'
        f'[cache]\ndirectory = "{tmp_path}/cache"\nmemory_bytes = "4MiB"\n'
        f'[[sites]]\nnames = ["*"]\norigins = [{origins}]\ndown_seconds = 0.5\nconnect_seconds = 1\n'
    )
    with (tmp_path / "err").open("w") as errors:
        process = subprocess.Popen([sys.executable, "-m", "rpcmq", "proxy", "--config", str(path)], stderr=errors)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=SECONDS)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        import socket

        socks = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in socks]


def client(port: int, seed: int, stop: Event, seen: Counter[str], wrong: list[str]) -> None:
    """Ask for URLs at random, over connections that are kept, and check each response."""
    choose = random.Random(seed)
    sock: Any = None
    while not stop.is_set():
        target = f"/{choose.randrange(URLS)}{choose.choice('ac')}"
        try:
            if sock is None:
                sock = create_connection(("127.0.0.1", port), timeout=20)
            sock.sendall(request_bytes("GET", target))
            reply = read_reply(sock)
        except (OSError, BrokenOff):
            seen["broken off"] += 1
            if sock is not None:
                sock.close()
            sock = None
            gevent.sleep(0.05)
            continue
        seen[str(reply.status)] += 1
        if reply.status == 200:
            seen["hits"] += reply.is_hit
            if reply.body != body_of(target) or reply.headers.get("x-target") != target:
                wrong.append(f"{target}: {len(reply.body)} bytes of {len(body_of(target))}, {reply.headers!r}")
    if sock is not None:
        sock.close()


def test_nothing_is_wrong_or_truncated_while_everything_is_killed(tmp_path: Path) -> None:
    *ports, port = free_ports(4)
    script = tmp_path / "origin.py"
    script.write_text(ORIGIN.format(root=str(Path(__file__).parents[2])))
    origins = [Process(sys.executable, str(script), str(each)) for each in ports]
    for origin in origins:
        origin.start()
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    with proxy(tmp_path, ports, port) as process:
        eventually(lambda: answers(port), SECONDS)
        stop = Event()
        clients = [gevent.spawn(client, port, seed, stop, seen, wrong) for seed in range(CLIENTS)]
        choose = random.Random(1)
        for number in range(ROUNDS):
            gevent.sleep(1.0)
            down = choose.sample(origins, 2)
            for origin in down:
                origin.kill()
            gevent.sleep(0.5)
            # In turn: the fetcher, and each front end.
            eventually(lambda: len(children_of(process.pid)) == 3, SECONDS)
            os.kill(children_of(process.pid)[number % 3], signal.SIGKILL)
            seen["processes killed"] += 1
            gevent.sleep(1.0)
            for origin in down:
                origin.start()
        stop.set()
        gevent.joinall(clients, timeout=SECONDS)
        assert all(greenlet.successful() for greenlet in clients)
        # What is stored by now is right, too, whoever has it.
        eventually(lambda: answers(port), SECONDS)
        for _ in range(2):
            for number in range(URLS):
                for kind in "ac":
                    check_once(port, f"/{number}{kind}", wrong)
    for origin in origins:
        origin.kill()
    print(dict(seen))
    assert wrong == []
    assert seen["200"] > 200 and seen["hits"] > 20 and seen["processes killed"] == ROUNDS


def answers(port: int) -> bool:
    try:
        with create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(request_bytes("GET", "/0a"))
            return read_reply(sock).status == 200
    except (OSError, BrokenOff):
        return False


def check_once(port: int, target: str, wrong: list[str]) -> None:
    for _ in range(20):
        try:
            with create_connection(("127.0.0.1", port), timeout=20) as sock:
                sock.sendall(request_bytes("GET", target))
                reply = read_reply(sock)
        except (OSError, BrokenOff):
            gevent.sleep(0.2)
            continue
        if reply.status == 200:
            if reply.body != body_of(target):
                wrong.append(f"{target} afterwards: {len(reply.body)} bytes of {len(body_of(target))}")
            return
        gevent.sleep(0.2)
    wrong.append(f"{target} was not answered any more")
