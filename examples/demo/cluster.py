"""The processes of the demo: routers with their queues, and services at them; killed on demand, none left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import gevent
from gevent.subprocess import DEVNULL, Popen, TimeoutExpired, call

import rpcmq
from examples.demo.billing import LEASE, QUEUE, make_accounts
from examples.demo.exceptions import REGISTRY
from examples.demo.ledger import FOLDER
from rpcmq.errors import RpcError

ROUTERS = ("router-a", "router-b", "router-c")
NODES = ("node-1", "node-2", "node-3")
BILLERS = ("biller-1", "biller-2")
#: The router that each service is told of; it learns the others from that one.
_HOMES = {
    "api": "router-a", "network": "router-b", "scheduler": "router-c",
    "node-1": "router-a", "node-2": "router-b", "node-3": "router-c", "biller-1": "router-b", "biller-2": "router-c",
}  # fmt: skip
#: The queue server of a router is shown as this.
_QUEUES = ".queues"
_CHECKOUT = Path(__file__).parents[2]
_START_SECONDS = 30.0
_STOP_SECONDS = 2.0


class ClusterFailed(Exception):
    """A process did not come up; the text has the end of its log."""


class Cluster:
    """Use as a context manager; afterwards no process is left, whatever happened.

    Args:
        seed: of all that is random.
        dispatch_log: the directory of the routers' dispatch log, which they share; None: they write none.
    """

    def __init__(self, seed: int, dispatch_log: Path | None = None) -> None:
        self._seed = seed
        self._dispatch_log = dispatch_log
        self._processes: dict[str, Popen[bytes]] = {}
        self.logs = Path(tempfile.mkdtemp(prefix="rpcmq-demo-"))
        self.keep_logs = False
        #: Endpoints of the routers by their names.
        self.urls: dict[str, str] = {}
        #: The pids of the queue servers of the routers.
        self._queue_servers: dict[str, int] = {}

    def __enter__(self) -> Cluster:
        try:
            self._start_routers()
            with rpcmq.Client(self.urls[ROUTERS[0]], identity="starter", shell="gevent") as client:
                self._wait_until_linked(client)
                self._meet_queue_servers(client)
                # A call to a service that isn't there yet waits in the router: no need to poll.
                self._start(client, "network", "scheduler", "api")
                self._start(client, *NODES)
                self._start_billers(client)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Of all processes, also of those that the routers have started."""
        servers = {name + _QUEUES: pid for name, pid in self._queue_servers.items()}
        return {name: process.pid for name, process in self._processes.items()} | servers

    def place(self, name: str) -> str:
        """The endpoint of a router, or the router that a service is at."""
        return self.urls.get(name) or f"at {_HOMES.get(name) or name.removesuffix(_QUEUES)}"

    def client(self, router: str) -> rpcmq.Client:
        """For users who are at ``router`` at first."""
        return rpcmq.Client(self.urls[router], identity=f"users-{router}", exceptions=REGISTRY, shell="gevent")

    def kill(self, name: str) -> int:
        """SIGKILL, at once; returns the pid it had."""
        process = self._processes[name]
        process.kill()
        return process.pid

    def stop(self) -> None:
        """SIGTERM to all, the routers last; SIGKILL to those that do not go."""
        services = [process for name, process in self._processes.items() if name not in ROUTERS]
        _end(services)
        _end([process for process in self._processes.values() if process not in services])
        # The queue server of a router that was killed serves on.
        _end_others(self._queue_servers.values())
        if not self.keep_logs:
            shutil.rmtree(self.logs, ignore_errors=True)

    # --- parts -------------------------------------------------------------------------------

    def _start_routers(self) -> None:
        """One url of a mesh is enough to join it: the first router tells the others of each other."""
        first, *others = ROUTERS
        self._spawn_router(first)
        self._await_url(first)
        for name in others:
            self._spawn_router(name, "--peer", self.urls[first])
        for name in others:
            self._await_url(name)

    def _spawn_router(self, name: str, *arguments: str) -> None:
        log = ["--dispatch-log", str(self._dispatch_log)] if self._dispatch_log is not None else []
        queues = ["--queue-dir", str(self.logs / f"{name}.queues")]
        listen = ["--listen", "tcp://127.0.0.1:0"]
        self._spawn(name, "rpcmq", "router", "--name", name, *listen, *queues, *log, *arguments)

    def _await_url(self, name: str) -> None:
        deadline = monotonic() + _START_SECONDS
        while not (found := re.search(r"listening on (tcp://127\.0\.0\.1:[1-9]\d*)", self._log(name))):
            if self._processes[name].poll() is not None or monotonic() > deadline:
                raise ClusterFailed(f"{name} did not start; its log:\n{self._log(name)}")
            gevent.sleep(0.02)
        self.urls[name] = found[1]

    def _wait_until_linked(self, client: rpcmq.Client) -> None:
        deadline = monotonic() + _START_SECONDS
        while sum(row["state"] == "answering" for row in client.query("mesh")["routers"]) < len(ROUTERS) - 1:
            if monotonic() > deadline:
                raise ClusterFailed(f"the routers do not link; the log of the first:\n{self._log(ROUTERS[0])}")
            gevent.sleep(0.02)

    def _meet_queue_servers(self, client: rpcmq.Client) -> None:
        for name in ROUTERS:
            address = rpcmq.Address("rpcmq.queues", name, "rpcmq.queue")
            told = client.call(None, address, {"method": "rpcmq.ping"}, timeout=_START_SECONDS)
            self._queue_servers[name] = told["pid"]

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

    def _start_billers(self, client: rpcmq.Client) -> None:
        """An item waits in its queue for whoever works at it: no need to wait for them."""
        make_accounts(self.logs)
        for name in BILLERS:
            self._spawn(name, "examples.demo.billing", "--name", name)
        settings = ["queue", "set", QUEUE, f"lease={LEASE:g}", "--create", "--router", self.urls[ROUTERS[0]]]
        if call([sys.executable, "-m", "rpcmq", *settings], stdout=DEVNULL):
            raise ClusterFailed(f"the queue {QUEUE!r} was not made; the log of {ROUTERS[0]}:\n{self._log(ROUTERS[0])}")

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        with (self.logs / f"{name}.log").open("wb") as log:
            self._processes[name] = Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=_CHECKOUT,
                env=os.environ | {"RPCMQ_ROUTER": self.urls.get(_HOMES.get(name, ""), ""), FOLDER: str(self.logs)},
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


def _end_others(pids: Iterable[int]) -> None:
    """End processes that are not our children."""
    living = set(pids)
    deadline = monotonic() + _STOP_SECONDS
    signals = dict.fromkeys(living, signal.SIGINT)
    while living:
        for pid in list(living):
            try:
                os.kill(pid, signals.pop(pid, 0))
            except ProcessLookupError:
                living.discard(pid)
        if monotonic() > deadline:
            signals = dict.fromkeys(living, signal.SIGKILL)
        gevent.sleep(0.02)


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
