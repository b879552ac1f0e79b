"""The file of a store is looked at while it is in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpcmq.queue_server import file_watch
from rpcmq.queue_server.file_watch import FileWatch
from rpcmq.testing import eventually


class Disk:
    """Answers what a file is, as the disk that is under it does, or not."""

    def __init__(self) -> None:
        self.fails: OSError | None = None
        self.looks = 0

    def identity(self, path: Path) -> tuple[int, int] | None:
        self.looks += 1
        return self._identity(path)

    def stat(self, path: Path) -> os.stat_result:
        if self.fails is not None:
            raise self.fails
        return os.stat(path)

    _identity = staticmethod(file_watch._identity)

    def wait(self) -> None:
        """Wait until it was asked twice: what the first of these looks finds is known then."""
        before = self.looks
        eventually(lambda: self.looks >= before + 2)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(file_watch, "_LOOK", 0.01)
    monkeypatch.setattr(file_watch, "_identity", made.identity)
    monkeypatch.setattr(file_watch, "os", SimpleNamespace(stat=made.stat))
    return made


@pytest.fixture
def watch(tmp_path: Path, disk: Disk) -> Iterator[FileWatch]:
    (tmp_path / "queue.db").write_text("items")
    made = FileWatch(tmp_path / "queue.db")
    made.opened()
    disk.wait()
    yield made
    made.close()


def test_a_file_that_goes_is_lost_until_it_is_back(tmp_path: Path, watch: FileWatch) -> None:
    file = tmp_path / "queue.db"
    assert not watch.lost
    kept = file.rename(tmp_path / "kept.db")
    eventually(lambda: "was removed" in watch.lost)
    file.write_text("others")
    eventually(lambda: "was replaced" in watch.lost)
    kept.replace(file)
    eventually(lambda: not watch.lost)


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_lost(
    watch: FileWatch, disk: Disk, capfd: pytest.CaptureFixture[str]
) -> None:
    for error in (PermissionError(13, "Permission denied"), OSError(5, "Input/output error")):
        disk.fails = error
        disk.wait()
        assert not watch.lost
    disk.fails = FileNotFoundError(2, "No such file or directory")
    eventually(lambda: "was removed" in watch.lost)
    disk.fails = PermissionError(13, "Permission denied")
    disk.wait()
    assert "was removed" in watch.lost
    assert "Traceback" not in capfd.readouterr().err


def test_a_file_that_is_gone_at_the_first_look_is_lost(tmp_path: Path, disk: Disk) -> None:
    watch = FileWatch(tmp_path / "queue.db")
    watch.opened()
    try:
        eventually(lambda: "was removed" in watch.lost)
    finally:
        watch.close()


def test_what_is_no_file_is_not_looked_at(disk: Disk) -> None:
    watch = FileWatch(None)
    watch.opened()
    assert not watch.lost and not disk.looks
    watch.close()
