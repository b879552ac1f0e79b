"""Writing the dispatch log: whole files, and what a directory must be."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from time import monotonic, time

import pytest

from rpcmq.errors import ConfigError
from rpcmq.log_format import PART, SEALED, read_spool
from rpcmq.server.spool import Spool
from rpcmq.testing import eventually
from tests.server.spooled import BOOT, Chunks, Disk, failing, is_locked


def test_a_file_is_locked_while_it_is_written_and_sealed_when_it_is_done(disk: Disk):
    before = time()
    assert disk.names() == []
    disk.write()
    name = f"7-{BOOT}-00000001"
    assert disk.names() == [name + PART] and is_locked(disk.directory / "spool" / (name + PART))
    disk.write(is_last=True)
    eventually(lambda: disk.names() == [name + SEALED])
    disk.write(5, is_last=True, is_final=True)
    disk.close()
    first, second = (read_spool(disk.directory / "spool" / each) for each in disk.names())
    assert [r.seq for r in first] == list(range(1, 21)) and [r.seq for r in second] == list(range(21, 26))
    assert first.seal is not None and first.seal[:4] == (20, 0, 1, 0) and not first.seal.final
    assert second.seal is not None and second.seal.final
    assert (second.head.router_id, second.head.router_name, second.head.segment) == (7, "r1", 2)
    assert before - 1 <= first.head.wall(monotonic()) / 1e6 <= time() + 1
    assert disk.spool.statistics() == {
        "directory": str(disk.directory / "spool"), "files": 2, "records": 25, "dropped": 0, "waiting": 0,
        "problem": "",
    }  # fmt: skip


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_its_files_have_one_mode_whatever_the_umask_is(disk: Disk, umask: int):
    before = os.umask(umask)
    try:
        disk.write(is_last=True)
        disk.write()
    finally:
        os.umask(before)
    modes = [oct((disk.directory / "spool" / name).stat().st_mode & 0o7777) for name in disk.names()]
    assert modes == ["0o640", "0o640"]


def test_what_was_not_ended_is_sealed_at_the_end(disk: Disk):
    disk.write()
    disk.close()
    (name,) = disk.names()
    spool = read_spool(disk.directory / "spool" / name)
    assert len(list(spool)) == 10 and spool.seal is not None and not spool.seal.final


def test_an_unfinished_segment_makes_way_for_the_next(disk: Disk):
    disk.write()
    disk.chunks.refused()
    disk.write()
    assert [name.rpartition(".")[2] for name in disk.names()] == ["spool", "part"]
    assert disk.seqs() == list(range(1, 21))


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_directory_that_cannot_be_is_refused_at_start(tmp_path: Path, path: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"dispatch_log\.directory = .*: cannot write there"):
        Spool(str(tmp_path / path), 7, "r1", BOOT)


def test_a_directory_without_permission_is_refused_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="Permission denied"):
        Spool(str(tmp_path), 7, "r1", BOOT)


def test_a_full_disk_at_start_is_no_reason_not_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "makedirs", failing(errno.ENOSPC))
    spool = Spool(str(tmp_path), 7, "r1", BOOT)
    assert spool.write(Chunks().next())
    eventually(lambda: spool.dropped == 10)
    spool.close(5)
