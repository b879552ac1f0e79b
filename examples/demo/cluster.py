"""The processes of the demo: started in order, killed on demand, none left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from time import monotonic

import gevent
from gevent.subprocess import DEVNULL, Popen, TimeoutExpired

import rpcmq
from examples.demo.exceptions import REGISTRY
from rpcmq.errors import RpcError

NODES = ("node-1", "node-2", "node-3")
_CHECKOUT = Path(__file__).parents[2]
_START_SECONDS = 30.0
_STOP_SECONDS = 2.0


class ClusterFailed(Exception):
    """A process did not come up; the text has the end of its log."""


class Cluster:
    """Use as a context manager; afterwards no process is left, whatever happened.

    Args:
        seed: of all that is random.
        dispatch_log: the directory of the router's dispatch log; None: it writes none.
    """

    def __init__(self, seed: int, dispatch_log: Path | None = None) -> None:
        self._seed = seed
        self._dispatch_log = dispatch_log
        self._processes: dict[str, Popen[bytes]] = {}
        self.logs = Path(tempfile.mkdtemp(prefix="rpcmq-demo-"))
        self.keep_logs = False
        self.url = ""

    def __enter__(self) -> Cluster:
        try:
            self._start_router()
            with rpcmq.Client(self.url, identity="starter", shell="gevent") as client:
                # A call to a service that isn't there yet waits in the router: no need to poll.
                self._start(client, "network", "scheduler", "api")
                self._start(client, *NODES)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Of those that were started."""
        return {name: process.pid for name, process in self._processes.items()}

    def client(self) -> rpcmq.Client:
        """For the users."""
        return rpcmq.Client(self.url, identity="users", exceptions=REGISTRY, shell="gevent")

    def kill(self, name: str) -> int:
        """SIGKILL, at once; returns the pid it had."""
        process = self._processes[name]
        process.kill()
        return process.pid

    def stop(self) -> None:
        """SIGTERM to all, the router last; SIGKILL to those that do not go."""
        services = [process for name, process in self._processes.items() if name != "router"]
        _end(services)
        _end([process for process in self._processes.values() if process not in services])
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    # --- parts -------------------------------------------------------------------------------

    def _start_router(self) -> None:
        log = ["--dispatch-log", str(self._dispatch_log)] if self._dispatch_log is not None else []
        self._spawn("router", "rpcmq", "router", "--listen", "tcp://127.0.0.1:0", *log)
        deadline = monotonic() + _START_SECONDS
        while not (found := re.search(r"tcp://127\.0\.0\.1:([1-9]\d*)", self._log("router"))):
            if self._processes["router"].poll() is not None or monotonic() > deadline:
                raise ClusterFailed(f"the router did not start; its log:\n{self._log('router')}")
            gevent.sleep(0.02)
        self.url = found[0]

    def _start(self, client: rpcmq.Client, *names: str) -> None:
        for name in names:
            if name in NODES:
                self._spawn(name, "examples.demo.compute", "--host", name, "--seed", str(self._seed))
            else:
                self._spawn(name, f"examples.demo.{name}")
        for name in names:
            topic = f"compute.{name}" if name in NODES else name
            try:
                client.call(None, topic, {"method": "rpcmq.ping"}, timeout=_START_SECONDS)
            except RpcError as error:
                raise ClusterFailed(f"{name} did not start: {error}; its log:\n{self._log(name)}") from None

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        with (self.logs / f"{name}.log").open("wb") as log:
            self._processes[name] = Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=_CHECKOUT,
                env=os.environ | {"RPCMQ_ROUTER": self.url},
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops these in order
            )

    def _log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace")[-2000:]


def _end(processes: list[Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = monotonic() + _STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.01, deadline - monotonic()))
        except TimeoutExpired:
            process.kill()
            process.wait()


def exit_on_signals() -> None:
    """SIGINT (Ctrl-C) and SIGTERM raise SystemExit in the calling greenlet; a second one is ignored."""
    interrupted = gevent.getcurrent()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            gevent.kill(interrupted, SystemExit(128 + number))

    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, on_signal, number)
