"""``rpcmq ship`` as an operator or a router runs it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import zlib
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
from tests.server.daemons import COMMAND, SECONDS, environment, eventually, started

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
    ended = subprocess.run([*command, "--sink", "jsonl"], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    assert names(tmp_path, "ready") == [f"7-{BOOT}-00000001.jsonl"]

    spooled(tmp_path, many(11, 10), segment=2)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
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

    done = invoke("ship", "--log", str(tmp_path / "file" / "log"))

    assert done.returncode == ExitCode.FAILED
    assert done.stderr == f"rpcmq: {tmp_path / 'file' / 'log'}: Not a directory\n"


@pytest.mark.parametrize(
    "flag", [("--keep-age", "soon"), ("--keep-bytes", "-1"), ("--interval", "0"), ("--sink", "csv")]
)
def test_a_wrong_value_is_refused(tmp_path: Path, invoke: Invoke, flag: tuple[str, str]) -> None:
    assert invoke("ship", "--log", str(tmp_path), "--once", *flag).returncode == ExitCode.USAGE


def test_times_and_sizes_are_written_as_in_the_configuration(tmp_path: Path, invoke: Invoke) -> None:
    spooled(tmp_path, many(1, 1))
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
    assert tuple(HOPELESS) == (ExitCode.USAGE, ExitCode.NOT_INSTALLED)


# --- what does not belong in a spool ------------------------------------------------------------


def ship_once(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "ship", "--log", str(directory), "--once", *flags]
    # A process of its own: a shipper that waits for a pipe, or reads a device, could not be stopped here.
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.integration
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_corrupt_file_is_set_aside_and_all_behind_it_are_shipped(tmp_path: Path, log_format: str) -> None:
    bad = spooled(tmp_path, many(1, 400))
    spooled(tmp_path, many(401, 100), segment=2)
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 1
    bad.write_bytes(data)

    done = ship_once(tmp_path, "--log-format", log_format)

    assert done.returncode == 0, done.stderr
    assert "100 written" in done.stdout and "1 spool file" not in done.stdout
    (line,) = done.stderr.splitlines()
    reason = json.loads((tmp_path / "quarantine" / f"{bad.name}.json").read_text())
    assert f"{bad.name}: corrupt: {reason['text']}" in line
    if log_format == "json":
        said = json.loads(line)
        assert (said["event"], said["file"], said["reason"]) == ("quarantine", bad.name, "corrupt")
        assert said["text"] == reason["text"] and said["level"] == "warning"
    assert names(tmp_path, "spool") == []
    again = ship_once(tmp_path)
    assert (again.returncode, again.stderr) == (0, "")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def _directory(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


def _socket(path: Path) -> None:
    # By its name alone: the whole path may be longer than an address of a socket can be.
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


def _endless_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _endless_spool_file(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


FOREIGN = (_fifo, _endless_device, _dangling_link, _directory, _socket, _endless_file)


@pytest.mark.integration
@pytest.mark.parametrize("suffix", ["spool", "part"])
def test_what_is_no_spool_file_is_set_aside_unread(tmp_path: Path, suffix: str) -> None:
    endless = spooled(tmp_path, many(1, 20))
    _endless_spool_file(endless)
    aside = [endless.rename(endless.with_suffix(f".{suffix}"))]
    for segment, make in enumerate(FOREIGN, 2):
        aside.append(tmp_path / "spool" / f"7-{BOOT}-{segment:08}.{suffix}")
        make(aside[-1])
    spooled(tmp_path, many(21, 20), segment=9)

    done = ship_once(tmp_path, "--json")

    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert (account["records"]["written"], account["files"]["quarantined"]) == (20, len(aside))
    for path in aside:
        reason = json.loads((tmp_path / "quarantine" / f"{path.name}.json").read_text())
        assert reason["reason"] == "foreign" and f"{path.name}: foreign: {reason['text']}" in done.stderr
    # Of a file without end it has read the beginning.
    assert reason["crc32"] == zlib.crc32(bytes(16 << 20))
    assert not list((tmp_path / "spool").iterdir())
    again = ship_once(tmp_path, "--keep-bytes", "1MiB", "--json")
    assert again.returncode == 0, again.stderr
    # What is foreign costs no records, however large it says that it is.
    assert json.loads(again.stdout)["records"]["live"] == 20


@pytest.mark.integration
def test_what_cannot_be_set_aside_holds_up_no_other(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 20), segment=2)
    (tmp_path / "spool" / "notes").mkdir()
    (tmp_path / "quarantine" / "notes").mkdir(parents=True)
    (tmp_path / "quarantine" / "notes" / "file").touch()

    done = ship_once(tmp_path)

    assert done.returncode == ExitCode.FAILED
    assert "notes: Directory not empty" in done.stderr.splitlines()[-1]
    assert read(tmp_path).rows_written == 20


@pytest.mark.integration
def test_a_start_reads_no_segment_that_is_no_file(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 20))
    assert ship_once(tmp_path).returncode == 0
    paths = [tmp_path / "ready" / f"7-{BOOT}-{number:08}.parquet" for number in range(2, 2 + len(FOREIGN))]
    for path, make in zip(paths, FOREIGN, strict=True):
        make(path)

    done = ship_once(tmp_path)

    assert done.returncode == 0, done.stderr
    assert all(f"{path.name}: foreign: " in done.stderr for path in paths)
    assert read(tmp_path).rows_written == 20
    assert ship_once(tmp_path).stderr == ""


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_what_is_shipped_has_the_mode_of_the_spool_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    spooled(tmp_path, many(1, 100))
    (tmp_path / "junk.spool").write_bytes(b"no records")
    command = [*COMMAND, "ship", "--log", str(tmp_path), "--once"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, umask=umask, env=environment()
    )
    assert "1 in 1 files" in ended.stdout or "100 in 1 files" in ended.stdout, ended.stdout + ended.stderr
    made = [p for p in tmp_path.rglob("*") if p.is_file() and not p.name.endswith(".spool")]
    assert {p.suffix for p in made} >= {".parquet", ".json"}
    assert {p.name: oct(p.stat().st_mode & 0o7777) for p in made} == {p.name: "0o640" for p in made}
