"""A thousand browsers at one gateway: WebSocket clients of this module, all in one process beside it.

*busy*: some of them call as fast as they are answered; an event goes out as soon as all have had the one before.
*paced*: each calls once a second, and there are five events a second, so that latencies are not those of a queue.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NoReturn

import gevent
from gevent import socket
from gevent.event import Event

from benchmarks.children import Child, child, commands, cpu_seconds, program, router, say
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq import Client, Service

__all__ = ["BENCHMARK"]

_BROWSERS = (100, 1000)
#: Those that call at the same time where they call as fast as they can.
_CALLERS = 32
_EVENTS_A_SECOND = 5.0
_PATIENCE = 60.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HANDSHAKE = (
    b"GET /rpcmq HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_TEXT, _PING, _PONG = 1, 9, 10


def run(options: Options) -> list[Row]:
    """Connections, calls and events a second, latencies, and what each connection costs."""
    rows = []
    for count in _BROWSERS:
        rows.append(Row("gateway", count, [_measured(count, options.seconds) for _ in range(options.rounds)]))
        options.progress(f"{count} browsers: {rows[-1].samples[-1]}")
    return rows


def _measured(count: int, seconds: float) -> dict[str, float]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        _, url = stack.enter_context(router())
        stack.enter_context(child(serve, url=url)).heard()
        gateway, address, token = _gateway(stack, folder, url, count)
        load = stack.enter_context(child(browse, address=address, token=token, url=url))
        load.heard()
        before = _resident(gateway)
        opened = load.ask(_PATIENCE, step="open", count=count)
        found = {"connections_per_s": count / opened["seconds"]}
        found["kib_per_connection"] = (_resident(gateway) - before) / count / 1024
        for step, unit in (("calls", "call"), ("events", "event")):
            for pace in ("busy", "paced"):
                cpu = cpu_seconds(gateway.pid)
                made = load.ask(seconds + _PATIENCE, step=step, pace=pace, seconds=seconds)
                cpu = cpu_seconds(gateway.pid) - cpu
                found |= {f"{pace}_{unit}_{name}_ms": made[name] for name in ("p50", "p99")}
                found["lost"] = found.get("lost", 0) + made["lost"]
                if pace == "busy":
                    found[f"{step}_per_s"] = made["done"] / made["seconds"]
                    found[f"cpu_us_per_{unit}"] = 1e6 * cpu / made["done"]
        return found


def _gateway(stack: ExitStack, folder: Path, url: str, count: int) -> tuple[Child, list[Any], str]:
    """Start a gateway with one token; return it, its host and port, and the token."""
    rpcmq, tokens = [sys.executable, "-m", "rpcmq"], str(folder / "tokens.toml")
    add = ["gateway", "token", "add", "web", "--tokens", tokens, "--json"]
    rights = ["--allow", "call:demo", "--allow", "subscribe:disk.#"]
    token = json.loads(stack.enter_context(program("token", [*rpcmq, *add, *rights])).line("rpcmqt_"))["token"]
    config = folder / "gateway.toml"
    config.write_text(
        f"[limits]\nconnections = {count + 10}\nconnections_per_address = {count + 10}\nmessages_per_second = 0\n"
    )
    serve = ["gateway", "--bind", "127.0.0.1:0", "--tokens", tokens, "--config", str(config)]
    started = stack.enter_context(program("gateway", [*rpcmq, *serve], {"RPCMQ_ROUTER": url}))
    host, _, port = started.line("WebSockets at ws://").partition("ws://")[2].partition("/")[0].rpartition(":")
    return started, [host, int(port)], token


def _resident(process: Child) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE


class Demo:
    """The service that is called."""

    def echo(self, ctx: Any, value: Any) -> Any:
        """Return ``value``."""
        return value


def serve(url: str) -> NoReturn:
    """Serve :class:`Demo`."""
    with Service("demo", Demo(), router=url):
        say("here")
        while True:
            gevent.sleep(60)


class Browser:
    """A WebSocket, and what its events have told."""

    def __init__(self, address: list[Any], token: str, crowd: Crowd) -> None:
        self._socket: Any = socket.create_connection((address[0], address[1]), _PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._crowd = crowd
        self._data = b""
        self._answered = Event()
        self._socket.sendall(_HANDSHAKE)
        while b"\r\n\r\n" not in self._data:
            self._more()
        self._data = self._data.partition(b"\r\n\r\n")[2]
        self.say({"op": "hello", "version": 1, "token": token})
        assert b'"welcome"' in self._frame()
        self.say({"op": "subscribe", "id": 1 << 20, "pattern": "disk.#"})
        assert b'"result"' in self._frame()
        self._socket.settimeout(None)
        self._reader = gevent.spawn(self._read)

    def say(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._send(_TEXT, json.dumps(message).encode())

    def call(self, number: int) -> float:
        """Make a call; return the seconds that it took."""
        began = monotonic()
        self._answered.clear()
        message = {"op": "call", "id": number, "topic": "demo", "method": "echo", "args": {"value": number}}
        self.say(message)
        if not self._answered.wait(_PATIENCE):
            self._crowd.lost += 1
        return monotonic() - began

    def _send(self, opcode: int, body: bytes) -> None:
        size = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2, "big")
        # A mask of zeros is one, too, and costs nothing.
        self._socket.sendall(bytes([0x80 | opcode]) + size + bytes(4) + body)

    def _read(self) -> None:
        while True:
            text = self._frame()
            if text.startswith(b'{"op":"event"'):
                self._crowd.event(text)
            else:
                self._answered.set()

    def _frame(self) -> bytes:
        """The next text."""
        while True:
            if len(self._data) >= 2:
                head, size = 2, self._data[1]
                if size == 126:
                    head, size = 4, int.from_bytes(self._data[2:4], "big")
                if len(self._data) >= head + size:
                    opcode, body = self._data[0] & 15, self._data[head : head + size]
                    self._data = self._data[head + size :]
                    if opcode == _PING:
                        self._send(_PONG, body)
                    elif opcode == _TEXT:
                        return body
                    continue
            self._more()

    def _more(self) -> None:
        data = self._socket.recv(65536)
        assert data, "the gateway has closed the connection"
        self._data += data


class Crowd:
    """All browsers, and a publisher, who is no browser."""

    def __init__(self, address: list[Any], token: str, url: str) -> None:
        self._address, self._token = address, token
        self._client = Client(url)
        self._client.connect()
        self._browsers: list[Browser] = []
        self._seconds: list[float] = []
        self._heard = 0
        self._all_heard = Event()
        self.lost = 0

    def open(self, count: int) -> dict[str, Any]:
        """Connect so many browsers, 20 at a time, up to their subscription."""
        began = monotonic()
        numbers = iter(range(count))

        def work() -> None:
            for _ in numbers:
                self._browsers.append(Browser(self._address, self._token, self))

        gevent.joinall([gevent.spawn(work) for _ in range(20)], raise_error=True)
        return {"seconds": monotonic() - began}

    def event(self, text: bytes) -> None:
        """A browser has an event."""
        self._seconds.append(monotonic() - float(json.loads(text)["payload"]["at"]))
        self._heard += 1
        if self._heard == len(self._browsers):
            self._all_heard.set()

    def calls(self, pace: str, seconds: float) -> dict[str, Any]:
        """Have browsers call for ``seconds``: some as fast as they can, or each once a second."""
        end, taken = monotonic() + seconds, []

        def work(number: int, browser: Browser) -> None:
            if pace == "paced":
                gevent.sleep(number / len(self._browsers))
            due = monotonic()
            while due < end:
                taken.append(browser.call(number))
                due = due + 1.0 if pace == "paced" else monotonic()
                gevent.sleep(max(0.0, due - monotonic()))

        chosen = self._browsers if pace == "paced" else self._browsers[:_CALLERS]
        gevent.joinall([gevent.spawn(work, *each) for each in enumerate(chosen)], raise_error=True)
        return self._told(taken, seconds)

    def events(self, pace: str, seconds: float) -> dict[str, Any]:
        """Publish for ``seconds``: the next one when all have had the last, or five a second."""
        began = monotonic()
        end, due = began + seconds, began
        self._seconds = []
        while monotonic() < end:
            self._heard = 0
            self._all_heard.clear()
            self._client.publish(None, "disk.node-3", {"at": monotonic(), "free": 7})
            if not self._all_heard.wait(_PATIENCE):
                self.lost += len(self._browsers) - self._heard
            if pace == "paced":
                due += 1 / _EVENTS_A_SECOND
                gevent.sleep(max(0.0, due - monotonic()))
        return self._told(self._seconds, monotonic() - began)

    def _told(self, taken: list[float], seconds: float) -> dict[str, Any]:
        taken.sort()
        lost, self.lost = self.lost, 0
        parts = {name: 1e3 * taken[int(part * (len(taken) - 1))] for name, part in (("p50", 0.5), ("p99", 0.99))}
        return {"done": len(taken), "seconds": seconds, "lost": lost, **parts}


def browse(address: list[Any], token: str, url: str) -> NoReturn:
    """All browsers; asked for a step, it says what it measured."""
    crowd = Crowd(address, token, url)
    say("here")
    lines = commands()
    while True:
        if lines.empty():
            gevent.sleep(0.01)
            continue
        asked = lines.get()
        say(getattr(crowd, asked.pop("step"))(**asked))


BENCHMARK = Benchmark(
    name="browsers",
    title="Browsers at one gateway",
    case="browsers",
    metric="events_per_s",
    ours="gateway",
    run=run,
    targets=(Target("", "lost", _BROWSERS, at_most=0.0),),
)
