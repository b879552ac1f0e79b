"""Fault row 17, of purges: a MongoDB server is away, and each front end that heard of a purge is killed meanwhile.

``python -m tests.faults.purge_drill --requests 25000 --seed 3`` prints counts, and ends with 1 if a response was served
that had been purged before it was asked for. It needs the server of ``make mongo-server``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
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
from tests.faults.proxy_drill import Process, free_ports, router
from tests.proxy.store.mongo_server import Server
from tests.proxy.world import BrokenOff, Reply, read_reply, request_bytes

__all__ = ["Outcome", "run"]

SECONDS = 60
FRONT_ENDS, CLIENTS, GROUPS, PAGES = 3, 8, 6, 20
#: Seconds after which a front end that was not told of a purge knows that it has missed it, and a margin.
HEARD = 5.0
BODY = b"x" * 3000

ORIGIN = """
import sys
sys.path.insert(0, {root!r})
import time
import gevent
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.messages import Headers, ResponseHead
from tests.faults.purge_drill import BODY

def answer(exchange):
    target = exchange.request.target.decode()
    made = ("X-Made", repr(time.time())), ("X-Target", target)
    tag = "Surrogate-Key", "group" + target.split("/")[1]
    exchange.send(ResponseHead(200, Headers((("Cache-Control", "max-age=3600"), tag, *made))), BODY)

server = HttpServer(answer, Limits())
server.serve_on(listen("127.0.0.1:" + sys.argv[1], name="origin"))
print("ready", flush=True)
gevent.sleep(10000)
"""


@dataclass
class Outcome:
    """Counts, and a line for each response that was served though it was purged."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    #: A page, a group (``/3/``) or all (``/``) -> times, of the wall clock, at which its purges were sent and answered.
    purged: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def has_purged(self, meant: str, sent_at: float, answered_at: float) -> None:
        """Take a purge that was answered with success."""
        self.purged.setdefault(meant, []).append((sent_at, answered_at))

    def check(self, front: int, target: str, reply: Reply, asked_at: float) -> None:
        """Take a response to a request that was sent at ``asked_at``."""
        self.seen[str(reply.status)] += 1
        if reply.status != 200:
            return
        self.seen["hits"] += reply.is_hit
        made = float(reply.headers.get("x-made") or 0.0)
        if reply.headers.get("x-target") != target or reply.body != BODY:
            self.wrong.append(f"{target}: not its own response: {reply.headers!r}")
        for meant in ("/", target[: target.rindex("/") + 1], target):
            for sent_at, answered_at in self.purged.get(meant, ()):
                if made < sent_at and asked_at > answered_at + HEARD:
                    self.wrong.append(
                        f"front end {front}, {target}: made {sent_at - made:.2f} s before a purge of {meant}, and "
                        f"served {asked_at - answered_at:.2f} s after it: {reply.cache}"
                    )
                    return


class FrontEnd:
    """A front end in a process of its own, which is killed and started again."""

    def __init__(self, config: Path, router_url: str, ports: list[int], errors: Any) -> None:
        self.port, self.admin = ports
        self._command = [sys.executable, "-m", "rpcmq", "--router", router_url, "proxy", "--config", str(config)]
        self._command += ["--role", "front", "--http", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        self._errors = errors
        self.running: Any = None

    def start(self) -> None:
        self.running = subprocess.Popen(self._command, stderr=self._errors, stdout=self._errors)
        eventually(self.answers, SECONDS)

    def answers(self) -> bool:
        if self.running.poll() is not None:
            self.running = subprocess.Popen(self._command, stderr=self._errors, stdout=self._errors)
        try:
            return asked(self.admin, "GET", "/healthz", host="127.0.0.1").status == 200
        except (OSError, BrokenOff):
            return False

    def owes(self) -> int:
        found: int = json.loads(asked(self.admin, "GET", "/status", host="127.0.0.1").body)["purges_owed"]
        return found

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()


def asked(port: int, method: str, target: str, *, host: str = "a.example") -> Reply:
    with create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(request_bytes(method, target, host=host))
        return read_reply(sock)


@contextmanager
def fetcher(config: Path, router_url: str, errors: Any) -> Iterator[None]:
    command = [sys.executable, "-m", "rpcmq", "--router", router_url, "proxy", "--config", str(config)]
    process = subprocess.Popen([*command, "--role", "fetch"], stderr=errors, stdout=errors)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _client(front_ends: list[FrontEnd], seed: int, requests: int, stop: Event, outcome: Outcome) -> None:
    """Ask for pages at random, over connections that are kept for a while, and check each response."""
    choose = random.Random(seed)
    while not stop.is_set():
        front = choose.randrange(len(front_ends))
        try:
            with create_connection(("127.0.0.1", front_ends[front].port), timeout=20) as sock:
                for _ in range(20):
                    if outcome.seen["200"] >= requests:
                        gevent.sleep(0.05)  # what the faults do last is checked, too
                    target = f"/{choose.randrange(GROUPS)}/{choose.randrange(PAGES)}"
                    asked_at = time()
                    sock.sendall(request_bytes("GET", target))
                    outcome.check(front, target, read_reply(sock), asked_at)
        except (OSError, BrokenOff):
            outcome.seen["broken off"] += 1
            gevent.sleep(0.05)


def _purge(front_end: FrontEnd, choose: random.Random, outcome: Outcome) -> None:
    """Purge a page, a group by tag or by prefix, or all."""
    group, page = choose.randrange(GROUPS), choose.randrange(PAGES)
    meant, query = choose.choice(
        [
            (f"/{group}/{page}", f"url=http://a.example/{group}/{page}"),
            (f"/{group}/", f"prefix=http://a.example/{group}/"),
            (f"/{group}/", f"tag=group{group}"),
            ("/", "all=1"),
        ]
    )
    query += choose.choice(["", "", "&soft=1"])
    sent_at = time()
    try:
        reply = asked(front_end.admin, "POST", f"/purge?{query}", host="127.0.0.1")
    except (OSError, BrokenOff):
        outcome.seen["purges that nobody has confirmed"] += 1
        return
    outcome.seen[f"purges: {reply.status}"] += 1
    if reply.status in (200, 202):
        outcome.has_purged(meant, sent_at, time())


def _double_fault(front_ends: list[FrontEnd], server: Server, choose: random.Random, outcome: Outcome) -> None:
    """Purge while the server is away, and kill all that heard of it before it is back, one after the other."""
    is_killed = choose.random() < 0.5
    with ExitStack() as stack:
        if is_killed:
            server.kill()
        else:
            stack.enter_context(server.stopped())
        outcome.seen["servers killed" if is_killed else "servers stopped"] += 1
        order = choose.sample(front_ends, len(front_ends))
        for _ in range(choose.randrange(1, 4)):
            _purge(order[0], choose, outcome)
        for front_end in order:
            front_end.kill()
            outcome.seen["front ends killed while purges were owed"] += 1
            if choose.random() < 0.5:
                gevent.sleep(choose.random())
            front_end.start()
    if is_killed:
        server.start()


def run(folder: Path, requests: int, seed: int, server: Server) -> Outcome:
    """Have clients ask while faults come, until they had ``requests`` responses, for 220 s at most."""
    outcome = Outcome()
    choose = random.Random(seed)
    origin_port, router_port, *ports = free_ports(2 + 2 * FRONT_ENDS)
    script, config = folder / "origin.py", folder / "proxy.toml"
    script.write_text(ORIGIN.format(root=str(Path(__file__).parents[2])))
    config.write_text(
        f'[front]\nhttps = ""\ndrain_seconds = 1\n[cache]\nmongodb = "{server.uri}"\n'
        f'mongodb_database = "purges{seed}"\nmemory_bytes = "64KiB"\nstale_if_disconnected = 0\n'
        f'[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:{origin_port}"]\n'
    )
    url = f"tcp://127.0.0.1:{router_port}"
    with ExitStack() as stack:
        errors = stack.enter_context((folder / "err").open("w"))
        origin = Process(sys.executable, str(script), str(origin_port))
        origin.start()
        stack.callback(origin.kill)
        restart_router = stack.enter_context(router(router_port, errors))
        stack.enter_context(fetcher(config, url, errors))
        front_ends = [FrontEnd(config, url, ports[2 * n : 2 * n + 2], errors) for n in range(FRONT_ENDS)]
        for front_end in front_ends:
            stack.callback(front_end.kill)
            front_end.start()
        eventually(lambda: asked(front_ends[0].port, "GET", "/0/0").status == 200, SECONDS)
        stop = Event()
        clients = [
            gevent.spawn(_client, front_ends, seed * CLIENTS + number, requests, stop, outcome)
            for number in range(CLIENTS)
        ]
        end = monotonic() + 220.0
        turn = 0
        while (outcome.seen["200"] < requests or turn == 0) and monotonic() < end:
            _double_fault(front_ends, server, choose, outcome)
            turn += 1
            # The purges that it was owed are there soon after it is.
            eventually(lambda: not any(each.owes() for each in front_ends), SECONDS)
            for _ in range(4):
                _purge(choose.choice(front_ends), choose, outcome)
                gevent.sleep(choose.random())
            if turn % 3 == 0:
                restart_router()
                outcome.seen["routers killed"] += 1
        gevent.sleep(HEARD + 1.0)
        stop.set()
        gevent.joinall(clients, timeout=SECONDS)
        assert all(greenlet.successful() for greenlet in clients)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "mongo").mkdir()
        server = Server(path / "mongo")
        try:
            outcome = run(path, given.requests, given.seed, server)
        finally:
            server.kill()
    print(f"{outcome.seen['200']} responses, {len(outcome.wrong)} wrong; {dict(outcome.seen)}")
    print("\n".join(outcome.wrong[:20]))
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
