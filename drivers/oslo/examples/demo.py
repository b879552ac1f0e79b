"""A small cloud of oslo.messaging over two routers of rpcmq: servers are built while a compute and a router are killed.

python drivers/oslo/examples/demo.py

It needs rpcmq-oslo in its environment, and no message broker. The exit code is 0 if nothing was lost.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import oslo_messaging
from oslo_config import cfg

SERVICE = Path(__file__).with_name("service.py")
SECONDS = 60


class Program:
    """A process of the demo; it is there when it has said so, and does not outlive its ``with`` block."""

    def __init__(self, name: str, ready: str, *command: str) -> None:
        self.name, self.ready, self.command = name, ready, [sys.executable, *command]
        self.start()

    def start(self) -> None:
        self.log = tempfile.TemporaryFile("w+")
        self.popen = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)
        self.found = eventually(f"{self.name} to be there", self._look)

    def _look(self) -> re.Match[str] | None:
        assert self.popen.poll() is None, self.said()
        return re.search(self.ready, self.said())

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def kill(self) -> None:
        print(f"kill -9 {self.popen.pid}: {self.name}", flush=True)
        self.popen.kill()
        self.popen.wait()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.log.close()


def eventually(what: str, look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: waited {SECONDS} s for {what}")
        time.sleep(0.05)
    return found


def router(name: str, *arguments: str) -> Program:
    command = ("-m", "rpcmq", "router", "--name", name, "--listen", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0")
    return Program(f"router {name}", r"listening on tcp://(\S+?),", *command, *arguments)


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        one = stack.enter_context(router("one"))
        two = stack.enter_context(router("two", "--peer", f"tcp://{one.found[1]}"))
        conf = folder / "cloud.conf"
        conf.write_text(f"[DEFAULT]\ntransport_url = rpcmq://{one.found[1]},{two.found[1]}/\n")
        print(conf.read_text(), flush=True)

        def service(role: str, name: str) -> Program:
            command = (str(SERVICE), "--config-file", str(conf), role, name)
            return stack.enter_context(Program(f"{role} {name}", f"{role} {name} is there", *command))

        service("conductor", "controller")
        nodes = {name: service("compute", name) for name in ("node-1", "node-2")}

        cfg.CONF(["--config-file", str(conf)])
        transport = oslo_messaging.get_rpc_transport(cfg.CONF)
        stack.callback(transport.cleanup)
        conductor = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="conductor"), timeout=SECONDS)
        booted: list[str] = []

        def boot(count: int) -> None:
            for _ in range(count):
                booted.append(f"server-{len(booted) + 1}")
                conductor.call({}, "boot", name=booted[-1], host=f"node-{len(booted) % 2 + 1}")

        def all_active() -> bool:
            shown = conductor.call({}, "show")
            return all(shown[name].startswith("active") for name in booted)

        boot(4)
        eventually("4 servers to be active", all_active)
        print("4 servers are active: each a call, a cast to a host, a call back and a notification", flush=True)

        nodes["node-2"].kill()
        boot(4)
        print("4 more were booted, 2 of them on node-2; their casts wait in the router", flush=True)
        nodes["node-2"].start()
        eventually("8 servers to be active", all_active)
        print("node-2 is back: 8 servers are active", flush=True)

        one.kill()
        boot(4)
        eventually("12 servers to be active", all_active)
        print("12 servers are active: everybody has gone on at router two", flush=True)

        compute = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="compute", fanout=True))
        compute.cast({}, "refresh")
        eventually("both computes to refresh", lambda: {"(node-1)", "(node-2)"} <= set(conductor.call({}, "show")))
        print("a fanout has reached both computes", flush=True)

        service("audit", "auditor")
        audit = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="audit"), timeout=SECONDS)
        kept = set(booted[8:])
        eventually("the notifications", lambda: kept <= set(audit.call({}, "names")))
        print("a listener that came late got the notifications that were kept for it", flush=True)


if __name__ == "__main__":
    main()
