"""The files of a store that somebody removes, or replaces by others, while they are in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpcmq.queue_server import file_watch
from rpcmq.queue_server.file_watch import FileWatch
from rpcmq.testing import eventually

_FILE, _LOG, _OTHER = (1, 10), (1, 11), (1, 12)
_BYTES, _ROOM = 1 << 20, 1 << 30


class Disk:
    """Files as a watch finds them, and how often it has looked."""

    def __init__(self) -> None:
        self.looks = self.renewals = 0
        self.file: tuple[int, int] | None = _FILE
        self.log: tuple[int, int] | None = _LOG
        self.room = _ROOM
        self.is_known = True

    def look(self, file: Path) -> file_watch._Found | None:
        self.looks += 1
        if not self.is_known:
            return None
        return file_watch._Found(self.file, self.log, _BYTES if self.log else 0, self.room)

    def renew(self) -> None:
        self.renewals += 1

    def wait(self) -> None:
        """Return when a look that has begun after this has been taken note of."""
        before = self.looks
        eventually(lambda: self.looks > before + 1, 60)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(file_watch, "_look", disk.look)
    monkeypatch.setattr(file_watch, "_LOOK", 0.01)
    return disk


@pytest.fixture
def watch(disk: Disk) -> Iterator[FileWatch]:
    watch = FileWatch(Path("/queues/queue.db"), disk.renew)
    watch.opened()
    disk.wait()
    yield watch
    watch.close()


def test_nothing_is_the_matter_while_the_files_are_those_that_were_opened(disk: Disk, watch: FileWatch) -> None:
    disk.wait()
    assert (watch.lost, disk.renewals) == ("", 0)


@pytest.mark.parametrize(("found", "how"), [(None, "was removed"), (_OTHER, "was replaced by another one")])
def test_nothing_is_put_into_a_file_without_its_name_and_the_store_is_not_closed(
    disk: Disk, watch: FileWatch, found: tuple[int, int] | None, how: str
) -> None:
    disk.file = disk.log = found
    disk.wait()
    assert watch.lost.startswith(f"its file /queues/queue.db {how} while it is in use")
    assert disk.renewals == 0
    disk.file, disk.log = _FILE, _LOG
    disk.wait()
    assert watch.lost == ""


def test_files_that_cannot_be_looked_at_are_not_taken_for_lost(disk: Disk, watch: FileWatch) -> None:
    disk.is_known = False
    disk.wait()
    assert watch.lost == ""
    disk.file, disk.is_known = None, True
    eventually(lambda: watch.lost, 60)
    disk.is_known = False
    disk.wait()
    assert "was removed" in watch.lost and disk.renewals == 0


def test_a_file_that_is_gone_at_the_first_look_is_lost(disk: Disk) -> None:
    disk.file = disk.log = None
    watch = FileWatch(Path("/queues/queue.db"), disk.renew)
    watch.opened()
    try:
        eventually(lambda: "was removed" in watch.lost, 60)
    finally:
        watch.close()
    assert not disk.renewals


def test_what_is_no_file_is_not_looked_at(disk: Disk) -> None:
    watch = FileWatch(None, disk.renew)
    watch.opened()
    assert not watch.lost and not disk.looks
    watch.close()


@pytest.mark.parametrize("found", [None, _OTHER])
def test_a_store_whose_log_alone_has_gone_is_opened_anew(
    disk: Disk, watch: FileWatch, found: tuple[int, int] | None
) -> None:
    disk.log = found
    eventually(lambda: disk.renewals, 60)
    assert watch.lost == ""
    assert watch._looking is not None
    watch._looking.join(60)
    assert watch._looking.ready() and disk.renewals == 1, "it is not closed again, and again, until it was opened"


def test_a_log_that_has_gone_stays_open_until_the_disk_has_room_for_what_it_has(disk: Disk, watch: FileWatch) -> None:
    disk.log, disk.room = None, _BYTES
    disk.wait()
    assert "nothing more is put until the disk has room to copy what it has into the file, 17825792 bytes" in watch.lost
    assert disk.renewals == 0
    disk.room = _ROOM
    eventually(lambda: disk.renewals, 60)


def test_files_are_found_by_their_names_also_by_a_link(tmp_path: Path) -> None:
    link, file = tmp_path / "queue.db", tmp_path / "elsewhere" / "items.db"
    file.parent.mkdir()
    for path, size in ((file, 3), (file.with_name("items.db-wal"), 5)):
        path.write_bytes(bytes(size))
    link.symlink_to(file)
    found = file_watch._look(link)
    assert found is not None and found.free_bytes > 0
    assert (found.file, found.log_bytes) == ((file.stat().st_dev, file.stat().st_ino), 5)
    file.with_name("items.db-wal").unlink()
    file.unlink()
    gone = file_watch._look(link)
    assert gone is not None and (gone.file, gone.log) == (None, None)
    gone = file_watch._look(tmp_path / "nowhere" / "queue.db")
    assert gone is not None and (gone.file, gone.free_bytes) == (None, 0)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_a_disk_that_fails_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def stat(path: Path) -> os.stat_result:
        raise error

    monkeypatch.setattr(file_watch, "os", SimpleNamespace(stat=stat, path=os.path, statvfs=os.statvfs))
    assert file_watch._look(tmp_path / "queue.db") is None
