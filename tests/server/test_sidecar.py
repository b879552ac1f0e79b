"""The shipper as the router's child."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.event import Event

from rpcmq.client import Client
from rpcmq.errors import NoConsumer
from rpcmq.latency.manifest import read
from rpcmq.server.sidecar import ShipperProcess
from tests.server.daemons import SECONDS, environment, eventually, router

pytestmark = pytest.mark.integration


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def has(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    sidecar = ShipperProcess(
        python(f"import time; open({str(path)!r}, 'a').write('x'); time.sleep(60)"), first_wait=0.01
    )
    for starts in ("x", "xx", "xxx"):
        eventually(partial(has, path, starts))
        # The child may run before whoever started it has learned that it does.
        eventually(lambda: sidecar.pid)
        assert sidecar.pid is not None
        os.kill(sidecar.pid, signal.SIGKILL)
    sidecar.stop(20)
    assert sidecar.pid is None


def test_it_runs_where_it_may_and_not_on_the_core_of_the_router() -> None:
    cores = os.sched_getaffinity(0)
    sidecar = None
    try:
        os.sched_setaffinity(0, {min(cores)})
        sidecar = ShipperProcess(python("import time; time.sleep(60)"), cores=cores)
        eventually(lambda: sidecar.pid and os.sched_getaffinity(sidecar.pid) == cores)
    finally:
        os.sched_setaffinity(0, cores)
        if sidecar is not None:
            sidecar.stop(20)


def test_a_router_that_lacks_what_ships_says_so_at_its_start(tmp_path: Path) -> None:
    """It serves all the same."""
    program = dedent("""
        import sys
        from importlib.machinery import PathFinder

        class Without(PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return None if name in ("numpy", "pyarrow") else super().find_spec(name, path, target)

        sys.meta_path[sys.meta_path.index(PathFinder)] = Without
        from rpcmq.cli import main
        main(sys.argv[1:])
    """)
    listen = ("--listen", "tcp://127.0.0.1:0")
    log = ("--dispatch-log", str(tmp_path / "log"), "--dispatch-log-ship", "--log-format", "json")
    with subprocess.Popen(
        [sys.executable, "-c", program, "router", *listen, *log], env=environment(), stderr=subprocess.PIPE
    ) as daemon:
        assert daemon.stderr is not None
        try:
            with gevent.Timeout(SECONDS):
                record = json.loads(daemon.stderr.readline())
                while record["event"] != "shipper failed":
                    record = json.loads(daemon.stderr.readline())
        finally:
            daemon.terminate()
        rest = daemon.communicate(timeout=SECONDS)[1]
    assert "numpy and pyarrow not installed: pip install 'rpcmq[ship]'" in str(record)
    assert daemon.returncode == 0 and b"shipper" not in rest


def test_one_that_is_just_being_started_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starting, started = Event(), Event()
    start = subprocess.Popen

    def start_slowly(*args: Any, **options: Any) -> Any:
        starting.set()
        process = start(*args, **options)
        started.wait()
        return process

    monkeypatch.setattr("rpcmq.server.child_process.subprocess.Popen", start_slowly)
    sidecar = ShipperProcess(python("import time; time.sleep(60)"))
    assert starting.wait(20)
    stopping = gevent.spawn(sidecar.stop, 20)
    gevent.sleep(0)
    started.set()
    stopping.join(40)
    assert sidecar.ended and sidecar.pid is None
    assert "killed" not in caplog.text


def test_one_that_cannot_work_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "starts"
    sidecar = ShipperProcess(python(f"open({str(path)!r}, 'a').write('x'); raise SystemExit(10)"), first_wait=0.01)
    eventually(lambda: sidecar.ended)
    sidecar.stop(20)
    assert path.read_text() == "x"


def test_one_that_does_not_end_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "started"
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    sidecar = ShipperProcess(python(f"{deaf}open({str(path)!r}, 'a').close(); time.sleep(60)"))
    eventually(path.exists)
    sidecar.stop(0.1)
    assert sidecar.pid is None


def test_a_router_that_drains_leaves_all_of_its_log_shipped(tmp_path: Path) -> None:
    flags = ("--dispatch-log", str(tmp_path), "--dispatch-log-ship", "true")
    with router(*flags) as daemon:
        daemon.wait_for("shipping")
        with Client(daemon.url) as client:
            for _ in range(20):
                with pytest.raises(NoConsumer):
                    client.call(None, "compute", {"method": "reboot", "args": {}}, 5, mandatory=True)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    (boot,) = read(tmp_path).boots.values()
    assert (boot.rows, boot.holes, boot.final) == (20, 0, True)
    assert not list((tmp_path / "spool").iterdir())
