"""The same whole call by other systems: one service, one calling process with W callers at once.

Each is used as its documentation tells, with its own default encoding (NATS has none, so JSON), and
with nothing of rpcmq in the path. One that is not installed gives its reason instead.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.children import Child, ChildFailed, child, commands, program, say
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD, Meter, rebooted

__all__ = ["PEERS", "Peer", "nats_caller", "nats_missing", "nats_server", "nats_service"]

#: More callers than any benchmark has.
_MOST = 1024
_TIMEOUT = 30.0
_REQUEST = {"ctx": CONTEXT, "msg": {"method": METHOD, "args": ARGUMENTS}}


@dataclass(frozen=True)
class Peer:
    """Another system.

    Attributes:
        name: as shown.
        missing: why it can't be measured here; empty if it can.
        start: runs broker, service and caller for as long as the block lasts; gives the caller, which
            is asked with ``width`` and ``seconds``.
    """

    name: str
    missing: Callable[[], str]
    start: Callable[[], AbstractContextManager[Child]]


class Rebooter:
    """The endpoint that is served."""

    def reboot_instance(self, ctx: dict[str, Any], instance_id: str, reboot_type: str) -> dict[str, Any]:
        return rebooted(instance_id, reboot_type)


def _not_installed(*modules: str) -> str:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


@contextmanager
def _both(service: Callable[..., None], caller: Callable[..., None], **arguments: Any) -> Iterator[Child]:
    with child(service, **arguments) as serving:
        where = serving.heard()
        with child(caller, **arguments | where) as calling:
            calling.heard()
            yield calling


# --- NATS ----------------------------------------------------------------------------------------


def nats_server() -> str | None:
    """The path of the program; None if it is not installed."""
    # Debian's is where only the administrator looks.
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")


def nats_missing() -> str:
    """Why NATS cannot be measured here; empty if it can."""
    return _not_installed("nats") or ("" if nats_server() else "nats-server is not installed")


@contextmanager
def _nats() -> Iterator[Child]:
    with tempfile.TemporaryDirectory(prefix="nats-") as folder:
        command = [nats_server() or "nats-server", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", folder]
        with program("nats-server", command) as server:
            server.line("Server is ready")
            with _both(nats_service, nats_caller, url=_nats_url(Path(folder))) as calling:
                yield calling


def _nats_url(folder: Path) -> str:
    for _ in range(100):
        for file in folder.glob("*.ports"):
            try:
                url: str = json.loads(file.read_text())["nats"][0]
                return url
            except (ValueError, LookupError):
                pass  # still being written
        sleep(0.05)
    raise ChildFailed("nats-server did not tell its port")


def nats_service(url: str) -> None:
    """Serves over NATS, as one of a queue group."""

    async def serve() -> None:
        import nats

        endpoint = Rebooter()

        async def handle(request: Any) -> None:
            call = json.loads(request.data)
            method = getattr(endpoint, call["msg"]["method"])
            await request.respond(json.dumps(method(call["ctx"], **call["msg"]["args"])).encode())

        connection = await nats.connect(url)
        await connection.subscribe("compute", queue="workers", cb=handle)
        await connection.flush()
        say({})
        await asyncio.Event().wait()

    asyncio.run(serve())


def nats_caller(url: str) -> None:
    """Calls over NATS from W tasks."""

    async def call() -> None:
        import nats

        connection = await nats.connect(url)

        async def caller(meter: Meter) -> None:
            going = True
            while going:
                sent = perf_counter()
                answer = await connection.request("compute", json.dumps(_REQUEST).encode(), timeout=_TIMEOUT)
                assert json.loads(answer.data)["instance_id"] == ARGUMENTS["instance_id"]
                going = meter.count(sent, perf_counter())

        say("ready")
        while True:
            command = await asyncio.to_thread(commands().get)
            meter = Meter(command["seconds"])
            await asyncio.gather(*(caller(meter) for _ in range(command["width"])))
            say(meter.result())

    asyncio.run(call())


# --- zerorpc -------------------------------------------------------------------------------------


def zerorpc_service() -> None:
    """Serves over zerorpc."""
    import zerorpc

    server = zerorpc.Server(Rebooter(), pool_size=_MOST)
    # It does not tell the port that the system picks.
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{found.getsockname()[1]}"
    server.bind(url)
    say({"url": url})
    server.run()


def zerorpc_caller(url: str) -> None:
    """Calls over zerorpc from W greenlets."""
    import gevent
    import zerorpc

    client = zerorpc.Client(url, timeout=_TIMEOUT)

    def caller(meter: Meter) -> None:
        going = True
        while going:
            sent = perf_counter()
            answer = client.reboot_instance(CONTEXT, *ARGUMENTS.values())
            assert answer["instance_id"] == ARGUMENTS["instance_id"]
            going = meter.count(sent, perf_counter())

    say("ready")
    while True:
        command = gevent.get_hub().threadpool.apply(commands().get)
        meter = Meter(command["seconds"])
        gevent.joinall([gevent.spawn(caller, meter) for _ in range(command["width"])], raise_error=True)
        say(meter.result())


# --- Pyro5 ---------------------------------------------------------------------------------------


def pyro_service() -> None:
    """Serves over Pyro5, a thread for each connection."""
    import Pyro5.api

    Pyro5.config.SERVERTYPE = "thread"
    Pyro5.config.THREADPOOL_SIZE = _MOST
    daemon = Pyro5.api.Daemon(host="127.0.0.1", port=0)
    say({"url": str(daemon.register(Pyro5.api.expose(Rebooter), "compute"))})
    daemon.requestLoop()


def pyro_caller(url: str) -> None:
    """Calls over Pyro5 from W threads, each with the proxy of its own that Pyro5 asks for."""
    import Pyro5.api

    def caller(meter: Meter, failures: list[Exception]) -> None:
        try:
            with Pyro5.api.Proxy(url) as compute:
                compute._pyroTimeout = _TIMEOUT
                going = True
                while going:
                    sent = perf_counter()
                    answer = compute.reboot_instance(CONTEXT, **ARGUMENTS)
                    assert answer["instance_id"] == ARGUMENTS["instance_id"]
                    received = perf_counter()
                    with lock:
                        going = meter.count(sent, received)
        except Exception as error:
            failures.append(error)

    lock = threading.Lock()
    say("ready")
    while True:
        command = commands().get()
        failures: list[Exception] = []
        meter = Meter(command["seconds"])
        callers = [threading.Thread(target=caller, args=(meter, failures)) for _ in range(command["width"])]
        for thread in callers:
            thread.start()
        for thread in callers:
            thread.join()
        if failures:
            print(f"{len(failures)} callers failed: {failures[0]!r}")
            os._exit(1)
        say(meter.result())


PEERS = (
    Peer("NATS", nats_missing, _nats),
    Peer("zerorpc", lambda: _not_installed("zerorpc"), lambda: _both(zerorpc_service, zerorpc_caller)),
    Peer("Pyro5", lambda: _not_installed("Pyro5"), lambda: _both(pyro_service, pyro_caller)),
)
