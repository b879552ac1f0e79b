"""Real processes for the tests, by the standard library alone: a router, and programs in a kind of thread each."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

#: Whether this process is one that eventlet or gevent has patched.
IS_PATCHED = time.sleep.__module__ != "time"
PROGRAMS = Path(__file__).parent / "programs"


def eventually(look: Callable[[], T], seconds: float = 60.0) -> T:
    """Look until there is something; fail when the time is over."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.01)
    return found


class Process:
    """A program whose output is read line by line; it does not outlive its ``with`` block."""

    def __init__(self, command: Sequence[str], **env: str) -> None:
        self.command = list(command)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("RPCMQ_")} | {"PYTHONUNBUFFERED": "1"} | env
        self.lines: list[str] = []
        self.start()

    def start(self) -> None:
        self.popen = subprocess.Popen(
            self.command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self.popen, self._news), daemon=True)
        self._reader.start()

    def _read(self, popen: Any, news: queue.SimpleQueue[str | None]) -> None:
        for line in popen.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            self.lines.append(text)
            news.put(text)
        popen.stdout.close()
        news.put(None)

    def expect(self, pattern: str, seconds: float = 60.0) -> re.Match[str]:
        """Wait for a line that matches; those before it are passed over."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._news.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no {pattern!r} in:\n" + "\n".join(self.lines[-60:])
            if found := re.search(pattern, line):
                return found

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, seconds: float = 60.0) -> int:
        code = self.popen.wait(seconds)
        self._reader.join(10)
        return code

    def kill(self) -> None:
        self.popen.kill()
        self.wait()

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
        self.popen.wait()
        if self.popen.stdin is not None:
            try:
                self.popen.stdin.close()
            except OSError:
                pass  # its reader is gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Router(Process):
    """A router; ``url`` is the transport url."""

    def __init__(self, **settings: str) -> None:
        variables = {f"RPCMQ_{name.upper()}": value for name, value in settings.items()}
        super().__init__(
            [sys.executable, "-m", "rpcmq", "router"],
            **{"RPCMQ_ROUTER_LISTEN": "tcp://127.0.0.1:0", "RPCMQ_ROUTER_HTTP": "127.0.0.1:0"} | variables,
        )
        self.await_ready()

    def await_ready(self) -> None:
        self.host = self.expect(r"listening on tcp://(\S+?), ")[1]
        self.url = f"rpcmq://{self.host}/"
        self.env["RPCMQ_ROUTER_LISTEN"] = f"tcp://{self.host}"

    def restart(self) -> None:
        """Start it again, after its end, on the same port."""
        self.close()
        self.start()
        self.await_ready()


def program(name: str, *arguments: str, **env: str) -> Process:
    """Start a program of the folder beside this file."""
    return Process([sys.executable, str(PROGRAMS / f"{name}.py"), *arguments], **env)


@contextmanager
def routers_of_mesh(names: str, **settings: str) -> Iterator[list[Router]]:
    """Routers that are linked to one another, each with a name of one letter; ``settings``: of each."""
    with ExitStack() as stack:
        made: list[Router] = []
        for number, name in enumerate(names, 1):
            peers = {"mesh_peers": f"tcp://{made[0].host}"} if made else {}
            # Their ids would be made of ports that they are given only once.
            own = {"router_name": name, "router_id": str(number)} | peers
            made.append(stack.enter_context(Router(**settings, **own)))
        made[0].env["RPCMQ_MESH_PEERS"] = f"tcp://{made[1].host}"
        await_mesh(made)
        yield made


def await_mesh(routers: list[Router]) -> None:
    """Wait until all are linked to one another."""
    urls = ",".join(f"tcp://{router.host}" for router in routers)
    command = [sys.executable, "-m", "rpcmq", "mesh", "--router", urls]
    eventually(lambda: subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0, 60)
