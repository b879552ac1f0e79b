"""Two routers that are linked as one mesh, in two terminals.

    python -m examples.mesh a
    python -m examples.mesh b          # in another terminal

Each runs a router, a service at it, and a caller that asks the services of both once a second and prints who has
answered. ``rpcmq mesh --router tcp://127.0.0.1:7701`` shows the routers and their link. Try this:

* Ctrl-C in one terminal: the other one goes on with its own service, and says that nobody serves the other.
* ``kill -9`` the router of one of them, whose pid is printed: its service and its caller go on at the other router.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event

from rpcmq import Client, Service
from rpcmq.errors import RpcError

PORTS = {"a": 7701, "b": 7702}


class Clock:
    """Says which process it is in."""

    def __init__(self, name: str) -> None:
        self._name = name

    def who(self, ctx: Any) -> str:
        """Return the name of the terminal, and the process id."""
        return f"{self._name} (pid {os.getpid()})"


def url(name: str) -> str:
    return f"tcp://127.0.0.1:{PORTS[name]}"


def start_router(name: str) -> subprocess.Popen[bytes]:
    (other,) = PORTS.keys() - {name}
    command = [sys.executable, "-m", "rpcmq", "router", "--name", name, "--listen", url(name), "--peer", url(other)]
    # Ctrl-C is for this process, which then ends the router in order.
    return subprocess.Popen([*command, "--log-level", "warning"], start_new_session=True)


def ask_both(client: Client) -> str:
    answers = []
    for name in PORTS:
        try:
            answer = client.call(None, f"clock-{name}", {"method": "who", "args": {}}, timeout=2, mandatory=True)
        except RpcError as error:
            answer = f"{type(error).__name__}: {error}"
        answers.append(f"clock-{name}: {answer}")
    return "; ".join(answers)


def main() -> int:
    parser = argparse.ArgumentParser(description="Two routers of one mesh, each in a terminal.")
    parser.add_argument("name", choices=PORTS)
    name = parser.parse_args().name
    is_interrupted = Event()
    gevent.signal_handler(signal.SIGINT, is_interrupted.set)
    router = start_router(name)
    print(f"router {name}: {url(name)}, pid {router.pid}", flush=True)
    try:
        # One router is enough to name: it tells the other one.
        with Client(url(name), connect_timeout=20) as client, Service(f"clock-{name}", Clock(name), client=client):
            while not is_interrupted.wait(1):
                print(ask_both(client), flush=True)
    finally:
        router.terminate()
        router.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
