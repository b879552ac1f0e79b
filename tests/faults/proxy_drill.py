"""Fault row 17: origins, fetchers, front ends and routers of a proxy are killed while clients check each response.

``python -m tests.faults.proxy_drill --requests 25000 --seed 3 [--router] [--mongo URI]`` prints counts, and ends with 1
if a response was wrong, mixed up, truncated and stored, or staler than its origin allows.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event
from gevent.socket import create_connection

from rpcmq.testing import eventually
from tests.cli.test_proxy import children_of
from tests.proxy.world import BrokenOff, Reply, read_reply, request_bytes

__all__ = ["Outcome", "body_of", "run"]

SECONDS = 60
#: Of 32 URLs one has the longest body, two the next one, ...: in one piece, and as streams.
SIZES = (2_000_000, *[400_000] * 2, *[20_000] * 9, *[100] * 20)
CLIENTS, URLS = 12, 150
#: Seconds for which a response is fresh, and after which it must not be served without saying why.
FRESH = 1.0
#: Of the measurement: between the decision of the proxy and the clocks that are compared.
MARGIN = 0.25

ORIGIN = """
import sys
sys.path.insert(0, {root!r})
import time
import gevent
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.messages import Headers, ResponseHead
from tests.faults.proxy_drill import body_of

def answer(exchange):
    target = exchange.request.target.decode()
    fields = [("Cache-Control", "max-age=1, stale-if-error=30"), ("X-Target", target), ("X-Made", repr(time.time()))]
    body = body_of(target)
    exchange.start(ResponseHead(200, Headers(fields)), None if target.endswith("c") else len(body))
    for at in range(0, len(body), 50_000):
        exchange.write(body[at:at + 50_000])
        gevent.sleep(0.002)
    exchange.finish()

server = HttpServer(answer, Limits())
server.serve_on(listen("127.0.0.1:" + sys.argv[1], name="origin"))
print("ready", flush=True)
gevent.sleep(10000)
"""


def body_of(target: str) -> bytes:
    """The only body that is right for ``target``: made of its name, and of a size that follows from that."""
    digest = hashlib.sha256(target.encode()).digest()
    size = SIZES[digest[0] % len(SIZES)]
    return (digest * (size // len(digest) + 1))[:size]


@dataclass
class Outcome:
    """Counts of all clients, and a line for each response that was not as it must be."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def responses(self) -> int:
        """Whole responses of any status."""
        return sum(count for name, count in self.seen.items() if name.isdigit())

    def check(self, target: str, reply: Reply, asked_at: float) -> None:
        """Take a response to a request that was sent at ``asked_at``, of the wall clock."""
        self.seen[str(reply.status)] += 1
        if reply.status != 200:
            return
        self.seen["hits"] += reply.is_hit
        if reply.body != body_of(target) or reply.headers.get("x-target") != target:
            self.wrong.append(f"{target}: {len(reply.body)} bytes of {len(body_of(target))}, {reply.headers!r}")
        age = asked_at - float(reply.headers.get("x-made") or 0.0)
        if "stale-if-error" in reply.cache:
            self.seen["stale instead of an error"] += 1
            if age > FRESH + 3600.0:
                self.wrong.append(f"{target}: stale for {age:.1f} s: {reply.cache}")
        elif age > FRESH + MARGIN:
            self.wrong.append(f"{target}: {age:.2f} s old, and not said to be stale: {reply.cache}")


class Process:
    """A process that is killed and started again."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self.running: Any = None

    def start(self) -> None:
        eventually(self._has_started, SECONDS)

    def _has_started(self) -> bool:
        self.running = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        if self.running.stdout.readline() == b"ready\n":
            return True
        self.kill()  # a connection to somewhere has its port for the moment
        return False

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()
        self.running.stdout.close()


@contextmanager
def router(port: int, errors: Any) -> Iterator[Callable[[], None]]:
    """A router of its own; give a function that kills it and starts it again."""

    def start() -> Any:
        command = [sys.executable, "-m", "rpcmq", "router", "--listen", f"tcp://127.0.0.1:{port}"]
        return subprocess.Popen(command, stderr=errors, stdout=errors)

    def is_listening() -> bool:
        if running[0].poll() is not None:
            running[0] = start()  # a connection to somewhere had its port
        try:
            create_connection(("127.0.0.1", port), timeout=20).close()
        except OSError:
            return False
        return True

    running = [start()]

    def restart() -> None:
        running[0].kill()
        running[0].wait()
        gevent.sleep(0.2)
        running[0] = start()
        eventually(is_listening, SECONDS)

    try:
        yield restart
    finally:
        running[0].kill()
        running[0].wait()


@contextmanager
def proxy(folder: Path, ports: list[int], port: int, cache: str, urls: str, errors: Any) -> Iterator[Any]:
    path = folder / "proxy.toml"
    origins = ", ".join(f'"http://127.0.0.1:{each}"' for each in ports)
    path.write_text(
        f'[front]\nhttps = ""\nadmin = ""\nhttp = "127.0.0.1:{port}"\nprocesses = 2\ndrain_seconds = 2\n'
        f'[router]\nurls = [{urls}]\n[cache]\n{cache}\nmemory_bytes = "4MiB"\n'
        f'[[sites]]\nnames = ["*"]\norigins = [{origins}]\ndown_seconds = 0.5\nconnect_seconds = 1\n'
    )
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


def _client(port: int, seed: int, requests: int, stop: Event, outcome: Outcome) -> None:
    """Ask for URLs at random, over connections that are kept, and check each response."""
    choose = random.Random(seed)
    sock: Any = None
    while not stop.is_set() and outcome.responses < requests:
        target = f"/{choose.randrange(URLS)}{choose.choice('ac')}"
        try:
            if sock is None:
                sock = create_connection(("127.0.0.1", port), timeout=20)
            asked_at = time()
            sock.sendall(request_bytes("GET", target))
            reply = read_reply(sock)
        except (OSError, BrokenOff):
            outcome.seen["broken off"] += 1
            if sock is not None:
                sock.close()
            sock = None
            gevent.sleep(0.05)
            continue
        outcome.check(target, reply, asked_at)
    if sock is not None:
        sock.close()


def run(folder: Path, requests: int, seed: int, *, with_router: bool = False, mongo: str = "") -> Outcome:
    """Have clients ask for ``requests`` responses while processes are killed every few seconds, for 200 s at most."""
    *ports, port, router_port = free_ports(5)
    script = folder / "origin.py"
    script.write_text(ORIGIN.format(root=str(Path(__file__).parents[2])))
    outcome = Outcome()
    with ExitStack() as stack:
        errors = stack.enter_context((folder / "err").open("w"))
        origins = [Process(sys.executable, str(script), str(each)) for each in ports]
        for origin in origins:
            origin.start()
            stack.callback(origin.kill)
        restart = stack.enter_context(router(router_port, errors)) if with_router else None
        cache = f'mongodb = "{mongo}"\nmongodb_database = "drill{seed}"' if mongo else f'directory = "{folder}/cache"'
        urls = f'"tcp://127.0.0.1:{router_port}"' if with_router else ""
        process = stack.enter_context(proxy(folder, ports, port, cache, urls, errors))
        eventually(lambda: _answers(port), SECONDS)
        stop = Event()
        clients = [
            gevent.spawn(_client, port, seed * CLIENTS + number, requests, stop, outcome) for number in range(CLIENTS)
        ]
        _kill_until_done(process, origins, restart, clients, outcome, random.Random(seed))
        stop.set()
        gevent.joinall(clients, timeout=SECONDS)
        assert all(greenlet.successful() for greenlet in clients)
        # What is stored by now is right, too, whoever has it.
        eventually(lambda: _answers(port), SECONDS)
        for number in range(URLS):
            for kind in "ac":
                _check_once(port, f"/{number}{kind}", outcome)
    return outcome


def _kill_until_done(
    process: Any, origins: list[Process], restart: Any, clients: list[Any], outcome: Outcome, choose: random.Random
) -> None:
    end = monotonic() + 200.0
    turn = 0
    while not all(greenlet.ready() for greenlet in clients) and monotonic() < end:
        gevent.sleep(1.0)
        down = choose.sample(origins, 2)
        for origin in down:
            origin.kill()
        gevent.sleep(0.5)
        # In turn: the fetcher, and each front end; and now and then the router.
        children = children_of(process.pid)
        if restart is not None and turn % 4 == 3:
            restart()
            outcome.seen["routers killed"] += 1
        elif len(children) == 3:
            os.kill(children[turn % 3], signal.SIGKILL)
            outcome.seen["processes killed"] += 1
        turn += 1
        gevent.sleep(1.0)
        for origin in down:
            origin.start()
        outcome.seen["origins killed"] += len(down)


def _answers(port: int) -> bool:
    try:
        with create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(request_bytes("GET", "/0a"))
            return read_reply(sock).status == 200
    except (OSError, BrokenOff):
        return False


def _check_once(port: int, target: str, outcome: Outcome) -> None:
    for _ in range(50):
        try:
            with create_connection(("127.0.0.1", port), timeout=20) as sock:
                asked_at = time()
                sock.sendall(request_bytes("GET", target))
                reply = read_reply(sock)
        except (OSError, BrokenOff):
            gevent.sleep(0.2)
            continue
        outcome.check(target, reply, asked_at)
        if reply.status == 200:
            return
        gevent.sleep(0.2)
    outcome.wrong.append(f"{target} was not answered any more")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--router", action="store_true", help="a router of its own, which is killed, too")
    parser.add_argument("--mongo", default="", metavar="URI", help="a store in place of a folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(Path(folder), given.requests, given.seed, with_router=given.router, mongo=given.mongo)
    print(f"{outcome.responses} responses, {len(outcome.wrong)} wrong; {dict(outcome.seen)}")
    print("\n".join(outcome.wrong[:20]))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
