"""``rpcmq ship`` as an operator or a router runs it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from gevent import subprocess

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.latency.manifest import read
from rpcmq.latency.parquet import Parquet
from rpcmq.latency.ship import Shipper
from rpcmq.server.sidecar import HOPELESS
from tests.latency.logs import names
from tests.latency.spools import BOOT, many, spooled
from tests.server.daemons import eventually, started

Invoke = Callable[..., SimpleNamespace]


def test_once_ships_what_is_there_and_says_what_became_of_it(tmp_path: Path, invoke: Invoke) -> None:
    spooled(tmp_path, many(1, 100), given=102, dropped=1)

    done = invoke("ship", "--log", str(tmp_path), "--once")

    assert done.returncode == 0
    size = sum(path.stat().st_size for path in (tmp_path / "ready").iterdir())
    assert done.stdout.splitlines() == [
        f"100 records read = 100 written + 0 quarantined; 100 in 1 files ({size} bytes), 0 removed",
        f"r1, started {BOOT}: 102 numbers given, 100 records, 2 without one (0 in flight, 1 dropped)",
    ]


def test_json_is_the_account(tmp_path: Path, invoke: Invoke) -> None:
    spooled(tmp_path, many(1, 100), final=True)

    done = invoke("ship", "--once", "--json", env={"RPCMQ_DISPATCH_LOG_DIRECTORY": str(tmp_path)})

    what = json.loads(done.stdout)
    assert what["records"]["written"] == 100
    assert what["boots"][0]["final"] is True


def test_json_lines_need_no_package(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10))
    code = "import sys; sys.modules.update(numpy=None, pyarrow=None); from rpcmq.cli import main; main()"

    command = [sys.executable, "-c", code, "ship", "--log", str(tmp_path), "--once"]
    ended = subprocess.run([*command, "--sink", "jsonl"], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
    assert names(tmp_path, "ready") == [f"7-{BOOT}-00000001.jsonl"]

    spooled(tmp_path, many(11, 10), segment=2)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == ExitCode.NOT_INSTALLED
    assert ended.stderr == "rpcmq: pyarrow is not installed: pip install 'rpcmq[ship]'\n"


def test_a_log_that_is_shipped_already_is_one_line(tmp_path: Path, invoke: Invoke) -> None:
    shipper = Shipper(tmp_path, Parquet())

    done = invoke("ship", "--log", str(tmp_path), "--once")

    shipper.close()
    assert done.returncode == ExitCode.FAILED
    assert done.stderr == f"rpcmq: {tmp_path}: another process ships this log\n"


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "file").touch()

    done = invoke("ship", "--log", str(tmp_path / "file" / "log"), "--once")

    assert done.returncode == ExitCode.FAILED
    assert done.stderr == f"rpcmq: {tmp_path / 'file' / 'log'}: Not a directory\n"


@pytest.mark.parametrize(
    "flag", [("--keep-age", "soon"), ("--keep-bytes", "-1"), ("--interval", "0"), ("--sink", "csv")]
)
def test_a_wrong_value_is_refused(tmp_path: Path, invoke: Invoke, flag: tuple[str, str]) -> None:
    assert invoke("ship", "--log", str(tmp_path), "--once", *flag).returncode == ExitCode.USAGE


def test_times_and_sizes_are_written_as_in_the_configuration(tmp_path: Path, invoke: Invoke) -> None:
    flags = ("--keep-age", "30d", "--keep-bytes", "10GiB", "--keep-ready", "12h", "--interval", "250ms")

    assert invoke("ship", "--log", str(tmp_path), "--once", *flags).returncode == 0


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    with started("ship", "--log", str(tmp_path), "--interval", "0.05") as process:
        process.wait_for("shipping")
        spooled(tmp_path, many(1, 10))
        eventually(lambda: read(tmp_path).rows_written == 10)
        process.signal(number)
        assert process.exit_code() == 0


@pytest.mark.integration
def test_what_is_complete_when_it_is_told_to_end_is_shipped(tmp_path: Path) -> None:
    with started("ship", "--log", str(tmp_path), "--interval", "1h") as process:
        process.wait_for("shipping")
        eventually((tmp_path / "manifest.jsonl").exists)
        spooled(tmp_path, many(1, 10))
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0
    assert read(tmp_path).rows_written == 10


@pytest.mark.integration
def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with started("ship", "--log", str(tmp_path), "--interval", "0.05", "--parent", str(os.getpid())) as process:
        process.wait_for("shipping")
        spooled(tmp_path, many(1, 10))
        eventually(lambda: read(tmp_path).rows_written == 10)
        assert process.process.poll() is None
    with started("ship", "--log", str(tmp_path), "--interval", "0.05", "--parent", "1") as process:
        assert process.exit_code() == 0


def test_the_router_knows_which_ends_are_for_good() -> None:
    assert HOPELESS == (ExitCode.USAGE, ExitCode.NOT_INSTALLED)
