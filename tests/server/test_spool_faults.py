"""Every fault of a disk drops records that are counted, and passes."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from gevent import subprocess
from gevent.monkey import get_original

from rpcmq.core.router.dispatch_log import CHUNK_RECORDS
from rpcmq.log_format import PART, read_spool
from rpcmq.server import spool as spool_module
from rpcmq.server.spool import MAX_WAITING
from rpcmq.testing import eventually
from tests.server.spooled import Disk, failing, is_locked, seqs_of


@pytest.mark.parametrize("call", ["open", "writev", "makedirs", "fstat"])
@pytest.mark.parametrize("when", [0, 1])
def test_an_error_drops_counts_and_passes(disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str, when: int):
    for _ in range(when):
        disk.write()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.EIO))
        for _ in range(3):
            disk.write()
    state = disk.spool.statistics()
    assert state["records"] + state["dropped"] == disk.chunks.seq
    if call == "writev" or (call != "fstat" and not when):
        assert "Input/output error" in state["problem"] and state["dropped"] > 0
    if call == "fstat":
        assert "gone" in state["problem"] and state["records"] == 0
    for _ in range(3):
        disk.write()
    assert disk.spool.problem == ""
    disk.write(is_last=True, is_final=True)
    disk.close()
    assert len(disk.seqs()) == len(set(disk.seqs()))
    if call != "fstat":
        assert len(disk.seqs()) == disk.spool.statistics()["records"]
    assert disk.seqs()[-20:] == list(range(disk.chunks.seq - 19, disk.chunks.seq + 1))
    last = read_spool(disk.directory / "spool" / disk.names()[-1])
    list(last)
    assert last.seal is not None and last.seal.dropped == disk.spool.dropped


def test_an_error_between_two_files_leaves_both_whole(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EROFS))
        disk.write()
    assert disk.names() == []
    # The engine learns of it with the next chunk, which has no names any more.
    assert not disk.write() and disk.write()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EROFS))
        disk.write(is_last=True)
    eventually(lambda: disk.spool.problem != "")
    # It could not be renamed, but what is in it counts.
    (name,) = disk.names()
    assert name.endswith(PART) and not is_locked(disk.directory / "spool" / name)
    assert disk.seqs() == list(range(21, 41)) and disk.spool.dropped == 20


def test_a_short_write_is_gone_on_with(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, pieces: writev(fd, [b"".join(pieces)[:7]]))
    disk.write()
    disk.write(is_last=True)
    disk.close()
    assert disk.seqs() == list(range(1, 21))


def test_half_a_chunk_is_taken_back(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    disk.write()
    writev = os.writev
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", lambda fd, pieces: writev(fd, [b"".join(pieces)[:200]]))
        patch.setattr(os, "write", failing(errno.ENOSPC))
        disk.write()
    assert not disk.write() and disk.write()
    disk.close()
    assert disk.seqs() == [*range(1, 11), *range(31, 41)] and disk.spool.dropped == 20


def test_a_removed_directory_is_made_again(disk: Disk):
    disk.write()
    shutil.rmtree(disk.directory / "spool")
    disk.write()
    assert disk.spool.dropped == 20 and "gone" in disk.spool.problem
    assert not disk.write() and disk.write()
    assert disk.seqs() == list(range(31, 41)) and disk.spool.problem == ""


def test_what_was_written_before_one_looks_is_lost_too_and_counted(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool_module, "_LOOK", 1000.0)
    disk.write()
    shutil.rmtree(disk.directory / "spool")
    disk.write()
    assert disk.spool.dropped == 0
    disk.write(is_last=True)
    assert disk.spool.dropped == 30 and disk.spool.statistics()["records"] == 0
    assert disk.write()
    assert disk.seqs() == list(range(31, 41))


def test_a_file_that_was_removed_before_its_seal_is_counted_as_lost(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    disk.write()
    monkeypatch.setattr(os, "rename", lambda *_: shutil.rmtree(disk.directory / "spool"))
    disk.chunks.refused()
    disk.spool.write(disk.chunks.next(0))
    eventually(lambda: disk.spool.dropped == 10)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_and_room_again(small_disk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool_module, "_RETRY", 0.0)
    disk = Disk(small_disk)
    for _ in range(10):
        disk.write(CHUNK_RECORDS)
    state = disk.spool.statistics()
    assert "No space left" in state["problem"]
    assert state["records"] == 4 * CHUNK_RECORDS and state["dropped"] == 6 * CHUNK_RECORDS
    # The shipper takes what is there.
    for name in disk.names():
        assert seqs_of(small_disk / "spool" / name) in ([], list(range(1, 4 * CHUNK_RECORDS + 1)))
        os.unlink(small_disk / "spool" / name)
    disk.write(CHUNK_RECORDS)
    disk.write(CHUNK_RECORDS, is_last=True, is_final=True)
    disk.close()
    assert disk.spool.problem == ""
    assert len(disk.seqs()) == 2 * CHUNK_RECORDS
    (spool,) = [read_spool(small_disk / "spool" / name) for name in disk.names()]
    assert spool.head.dropped == 6 * CHUNK_RECORDS


def test_a_disk_that_does_not_answer_delays_nobody(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    stuck = get_original("_thread", "allocate_lock")()
    stuck.acquire()
    writev = os.writev

    def wait(fd: int, pieces: list[bytes]) -> int:
        with stuck:
            return writev(fd, pieces)

    monkeypatch.setattr(os, "writev", wait)
    began = monotonic()
    taken = []
    for _ in range(MAX_WAITING + 10):
        taken.append(disk.spool.write(disk.chunks.next()))
        if not taken[-1]:
            disk.chunks.refused()
    assert monotonic() - began < 10
    assert MAX_WAITING <= sum(taken) <= MAX_WAITING + 1 and "does not answer" in disk.spool.problem
    stuck.release()
    disk.settle()
    disk.write()
    assert disk.spool.problem == ""
    assert len(disk.seqs()) == disk.chunks.seq - disk.spool.dropped > 0


def test_after_a_failure_the_disk_is_left_alone_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = Disk(tmp_path)
    tried: list[int] = []

    def fail(fd: int, _: list[bytes]) -> int:
        tried.append(fd)
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "writev", fail)
    for _ in range(20):
        disk.write()
    assert len(tried) == 1 and disk.spool.dropped == 200
    disk.close()


def test_a_warning_a_minute_and_a_line_when_it_is_over(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "rpcmq.router")
    disk.spool.report(1000.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(errno.ENOSPC))
        for second in range(130):
            disk.write()
            disk.spool.report(1000.0 + second)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3 and "No space left on device" in warnings[0] and "10 records" in warnings[0]
    disk.write()
    for second in range(130, 140):
        disk.spool.report(1000.0 + second)
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 3 + ["INFO"]
    assert "written again; 1300 records were dropped" in caplog.records[-1].getMessage()


def test_a_fork_leaves_the_parents_thread_alone(disk: Disk):
    disk.write()
    child = os.fork()
    if not child:
        began = monotonic()
        disk.spool.close(60)
        os._exit(0 if monotonic() - began < 30 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert disk.write()
