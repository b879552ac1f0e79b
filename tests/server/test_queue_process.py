"""The queue server as the router's child, by a stand-in that does what it is told."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import subprocess

from rpcmq.server import queue_process
from rpcmq.server.queue_directory import DirectoryInUse, QueueDirectory
from rpcmq.server.queue_process import QueueProcess, QueueServerCommand
from rpcmq.server.queue_status import LONGEST_LINE, QueueStatus
from tests.server.daemons import SECONDS, eventually

pytestmark = pytest.mark.integration

URL = "tcp://127.0.0.1:7700"
STAND_IN = str(Path(__file__).with_name("queue_stand_in.py"))

Start = Callable[..., QueueProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a queue server in the directory ``queue``."""
    started: list[QueueProcess] = []

    def start_it(behaviour: str = "serve", url: str = URL, **fields: Any) -> QueueProcess:
        program = fields.pop("program", (sys.executable, STAND_IN, str(tmp_path), behaviour))
        server = QueueServerCommand(str(tmp_path / "queue"), url, (), dict(os.environ), program=program, **fields)
        started.append(QueueProcess(server))
        return started[-1]

    yield start_it
    for process in started:
        process.stop(0.0)
    for pid in written(tmp_path, "starts"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def written(path: Path, file: str) -> list[str]:
    return (path / file).read_text().splitlines() if (path / file).exists() else []


def state(process: QueueProcess) -> str:
    return str(process.view()["state"])


def forget(process: QueueProcess) -> None:
    """End ``process`` as a router that is killed does: its server goes on."""
    process._keeper.kill()
    assert process._directory is not None
    process._directory.close()
    process._directory = None


# --- what it is told and says --------------------------------------------------------------------


def test_it_is_told_what_it_needs_and_says_how_it_is(start: Start, tmp_path: Path) -> None:
    process = start()
    eventually(lambda: "parent" in process.view())
    view = process.view()
    assert view["url"] == URL and view["pid"] == process.pid and view["parent"] == os.getpid()
    assert state(process) == "serving"
    assert (view["adopted"], view["restarts"], view["why"]) == (False, 0, "")


def test_its_key_is_in_no_file_and_no_argument(start: Start, tmp_path: Path) -> None:
    process = start(key="secret = 1")
    eventually(lambda: written(tmp_path, "starts"))
    assert written(tmp_path, "key") == ["secret = 1"]
    assert b"secret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert sorted(each.name for each in (tmp_path / "queue").iterdir()) == ["router.lock", "server.lock", "status"]


def test_a_line_that_is_too_long_is_left_out(start: Start) -> None:
    process = start("loud")
    eventually(lambda: process._status.left_out)
    eventually(lambda: state(process) == "serving")
    assert "filling" not in process.view()


def test_the_last_whole_line_counts() -> None:
    status = QueueStatus()
    status.feed(b'{"pid": 1}\n{"pi', 1.0)
    assert status.read() == {"pid": 1}
    status.feed(b'd": 2', 2.0)
    assert status.read() == {"pid": 1} and status.heard == 1.0
    status.feed(b"}\n", 3.0)
    assert status.read() == {"pid": 2} and status.heard == 3.0
    for _ in range(3):
        status.feed(b"x" * (LONGEST_LINE // 2), 4.0)
    assert len(status._begun) == 0
    status.feed(b"\n{", 5.0)
    status.feed(b"no json\n", 6.0)
    assert status.left_out == 1 and status.read() == {}


# --- deaths --------------------------------------------------------------------------------------


def test_one_that_ends_before_it_has_said_anything_is_told_of(start: Start) -> None:
    process = start(program=(sys.executable, "-c", "raise SystemExit(7)"))
    eventually(lambda: process.state.startswith("starting: it has ended with exit code 7"))


def test_one_that_is_killed_is_started_again_at_once(start: Start, tmp_path: Path) -> None:
    process = start()
    eventually(lambda: state(process) == "serving")
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(written(tmp_path, "starts")) == 2)
    eventually(lambda: state(process) == "serving" and process.pid != first)
    assert process.view()["restarts"] == 1


def test_one_that_dies_always_is_given_longer_pauses(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    process = start("die")
    eventually(lambda: process.restarts >= 3)
    pauses = [record.__dict__["fields"]["seconds"] for record in caplog.records]
    assert pauses[:3] == [0.0, 0.2, 0.4]
    assert "the queue server ended with 7" in caplog.text


def test_one_that_cannot_work_says_why_and_is_left_alone_for_long(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("refuse")
    eventually(lambda: state(process) == "unavailable")
    assert process.view()["why"] == "it cannot open its store: its store is of a later version"
    assert process.state == "unavailable: it cannot open its store: its store is of a later version"
    assert "its store is of a later version; started again in 60 s" in caplog.text
    assert len(written(tmp_path, "starts")) == 1


def test_one_that_cannot_work_is_tried_again(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_process, "_HOPELESS_PAUSE", 0.01)
    start("refuse")
    eventually(lambda: len(written(tmp_path, "starts")) > 2)


def test_a_directory_that_cannot_be_used_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("a file")
    process = start()
    eventually(lambda: state(process) == "unavailable")
    why = process.view()["why"]
    assert str(tmp_path / "queue") in why and "queue.dir must be a directory" in why


def test_a_directory_that_could_not_be_used_is_used_as_soon_as_it_can_be(start: Start, tmp_path: Path) -> None:
    (tmp_path / "queue").write_text("a file")
    process = start()
    eventually(lambda: state(process) == "unavailable")
    (tmp_path / "queue").unlink()
    eventually(lambda: state(process) == "serving")


def test_a_disk_without_room_at_the_start_keeps_nobody_out_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space left"):
            QueueDirectory(str(tmp_path / "queue"))
    QueueDirectory(str(tmp_path / "queue")).close()


# --- the end -------------------------------------------------------------------------------------


def test_it_is_told_to_end_in_order(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = start()
    eventually(lambda: state(process) == "serving")
    process.begin_stop()
    assert state(process) == "draining"
    process.stop(SECONDS)
    assert written(tmp_path, "signals") == ["SIGTERM"] and process.pid is None and process.restarts == 0
    assert caplog.text == ""
    QueueDirectory(str(tmp_path / "queue")).close()


def test_one_that_waits_for_long_items_is_told_to_wait_no_longer(start: Start, tmp_path: Path) -> None:
    process = start("slow")
    eventually(lambda: state(process) == "serving")
    process.begin_stop()
    eventually(lambda: written(tmp_path, "signals"))
    process.stop(0.01)
    assert written(tmp_path, "signals")[-1] == "SIGINT" and process.pid is None


def test_one_that_does_not_end_is_killed(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_process, "_LAST", 0.5)
    process = start("deaf")
    eventually(lambda: state(process) == "serving")
    process.stop(0.01)
    assert process.pid is None and "killed" in caplog.text


# --- routers that come and go --------------------------------------------------------------------


def test_the_server_of_a_router_that_died_is_gone_on_with(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    before = start()
    eventually(lambda: state(before) == "serving")
    pid = before.pid
    forget(before)
    after = start()
    eventually(lambda: after.view()["adopted"] and state(after) == "serving")
    assert after.pid == pid and written(tmp_path, "starts") == [str(pid)]
    eventually(lambda: f"the queue server of an earlier life of this router goes on (pid {pid})" in caplog.text)
    # It can be watched, and ended, like one of this life.
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(written(tmp_path, "starts")) == 2)
    eventually(lambda: state(after) == "serving" and not after.view()["adopted"])


def test_an_adopted_server_ends_in_order(start: Start, tmp_path: Path) -> None:
    before = start()
    eventually(lambda: state(before) == "serving")
    forget(before)
    after = start()
    # Also if it has not said yet who it is.
    eventually(lambda: after._is_adopted)
    after.stop(SECONDS)
    assert written(tmp_path, "signals") == ["SIGTERM"] and len(written(tmp_path, "starts")) == 1


def test_an_orphan_that_serves_another_url_is_replaced(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = start()
    eventually(lambda: state(before) == "serving")
    forget(before)
    after = start(url="tcp://127.0.0.1:7701")
    eventually(lambda: state(after) == "serving" and not after.view()["adopted"])
    assert after.view()["url"] == "tcp://127.0.0.1:7701" and written(tmp_path, "signals") == ["SIGINT"]
    assert "serves tcp://127.0.0.1:7700, not tcp://127.0.0.1:7701" in caplog.text


def test_another_router_with_the_same_directory_waits_and_says_so(start: Start, tmp_path: Path) -> None:
    program = (
        "import sys, time; from rpcmq.server.queue_directory import QueueDirectory\n"
        "QueueDirectory(sys.argv[1]); print('has it', flush=True); time.sleep(600)"
    )
    path = str(tmp_path / "queue")
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as other:
        try:
            with gevent.Timeout(SECONDS):
                assert other.stdout is not None and other.stdout.readline() == b"has it\n"
            with pytest.raises(DirectoryInUse, match=f"in use by another router \\(pid {other.pid}\\)"):
                QueueDirectory(path)
            process = start()
            eventually(lambda: state(process) == "unavailable")
            assert f"in use by another router (pid {other.pid})" in process.view()["why"]
            assert written(tmp_path, "starts") == []
        finally:
            other.kill()
    eventually(lambda: state(process) == "serving")
