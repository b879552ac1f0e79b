"""Histories: what was written is read, by whatever the writer was killed."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

import pytest

from rpcmq.drill.history import HistoryError, Recorder, What, merged, read
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program


def test_what_is_written_is_read(tmp_path: Path):
    with Recorder(tmp_path / "a", "api") as recorder:
        recorder.write(What.SUBMIT, "api-1", verb="call", timeout=None)
        recorder.write(What.END, "api-1", outcome="ok")
    first, second = read(tmp_path / "a")
    assert (first.process, first.what, first.id, first.fields) == (
        "api", What.SUBMIT, "api-1", {"verb": "call", "timeout": None},
    )  # fmt: skip
    assert first.at <= second.at


def test_a_second_life_appends(tmp_path: Path):
    for _ in range(2):
        with Recorder(tmp_path / "a", "api") as recorder:
            recorder.write(What.DONE)
    assert len(list(read(tmp_path / "a"))) == 2


def test_files_are_merged_by_time(tmp_path: Path):
    with Recorder(tmp_path / "a", "a") as a, Recorder(tmp_path / "b", "b") as b:
        for recorder in (a, b, b, a, b):
            recorder.write(What.DONE)
    assert [event.process for event in merged(tmp_path.iterdir())] == ["a", "b", "b", "a", "b"]


def test_a_line_that_was_not_finished_is_left_out(tmp_path: Path):
    (tmp_path / "a").write_bytes(b'[1.0,"a","done","",{}]\n[2.0,"a","do')
    assert [event.at for event in read(tmp_path / "a")] == [1.0]


def test_what_cannot_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write, room = os.write, [0, 10, 0, 1000]

    def limited(file: int, data: bytes) -> int:
        if not (most := room.pop(0)):
            raise OSError(errno.ENOSPC, "no space")
        return write(file, bytes(data[:most]))

    with Recorder(tmp_path / "a", "a") as recorder, monkeypatch.context() as patched:
        patched.setattr("rpcmq.drill.history.os.write", limited)
        for number in range(4):
            recorder.write(What.SUBMIT, str(number))
    assert [event.id for event in read(tmp_path / "a")] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("line", [b"nonsense", b"[1,2]", b'{"a": 1}', b"[1.0,2.0,3.0,4.0,5.0,6.0]", b"7"])
def test_a_line_that_is_no_event_is_refused(tmp_path: Path, line: bytes):
    (tmp_path / "a").write_bytes(line + b"\n")
    with pytest.raises(HistoryError, match=r"line 1: .* is no event"):
        list(read(tmp_path / "a"))


@pytest.mark.fault
def test_a_killed_process_leaves_all_that_it_has_written(tmp_path: Path):
    code = (
        "import sys; from rpcmq.drill.history import Recorder, What\n"
        "recorder, n = Recorder(sys.argv[1], 'killed'), 0\n"
        "while True:\n"
        "    recorder.write(What.SUBMIT, str(n)); n += 1\n"
    )
    path = tmp_path / "a"
    with Program([sys.executable, "-c", code, str(path)], name="writer") as writer:
        eventually(lambda: path.exists() and path.stat().st_size > 20_000, 20)
        writer.signal(signal.SIGKILL)
        writer.wait()
    assert [int(event.id) for event in read(path)] == list(range(sum(1 for _ in read(path))))
    assert os.path.getsize(path) > 20_000
