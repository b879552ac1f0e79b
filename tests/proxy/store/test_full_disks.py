"""A folder on a disk that others fill, or that takes nothing: what is stored gives way, or responses only pass."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from rpcmq.proxy.store import FileStore, disk, file_format, file_writer
from tests.proxy.store.entries import body_of, entry, put

ROOM = 64 << 20
BODY = 100_000
#: Room that the file of such a body takes.
FILE = 106_496


class SmallDisk:
    """A disk of ``size`` bytes under the folder of a store; ``others`` of them are taken by other data."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self.others = 0
        self.error = errno.ENOSPC
        self._write = file_format.write_all

    def write_all(self, descriptor: int, data: bytes, position: int) -> None:
        taken = sum(path.stat().st_size for path in self._folder.glob("??/??/*"))
        if taken + len(data) > self._size - self.others:
            raise OSError(self.error, os.strerror(self.error))
        self._write(descriptor, data, position)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    made = SmallDisk(tmp_path, 10 * FILE)
    monkeypatch.setattr(file_writer, "write_all", made.write_all)
    monkeypatch.setattr(disk, "_PAUSE_SECONDS", 0.0)
    return made


def stored(store: FileStore, number: int, size: int = BODY) -> Any:
    return put(store, entry(f"/{number}"), bytes([number % 256]) * size)


def test_what_is_stored_gives_way_on_a_disk_that_others_have_filled(
    tmp_path: Path, small: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path, ROOM)
    for number in range(8):
        assert stored(store, number) is not None
    small.others = 4 * FILE
    for number in range(8, 30):
        kept = stored(store, number)
        assert kept is not None and body_of(store, kept) == bytes([number]) * BODY
    statistics = store.statistics()
    assert statistics.is_storing and statistics.disk_full and statistics.evicted >= 22 and not statistics.failed
    assert 0 < statistics.entries <= 6
    assert "is full, with" in caplog.text


def test_responses_pass_while_there_is_no_room_at_all_and_are_stored_again_afterwards(
    tmp_path: Path, small: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = FileStore(tmp_path, ROOM)
    small.others = 10 * FILE
    for number in range(10):
        assert stored(store, number) is None
    assert not store.statistics().is_storing and caplog.text.count("stores nothing for now") == 1
    assert "is full of other data" in caplog.text
    small.others = 0
    kept = stored(store, 10)
    assert kept is not None and body_of(store, kept) == bytes([10]) * BODY
    assert store.statistics().is_storing and "stores responses again" in caplog.text


def test_a_body_without_room_does_not_push_out_all_others(tmp_path: Path, small: SmallDisk) -> None:
    store = FileStore(tmp_path, ROOM)
    for number in range(8):
        assert stored(store, number) is not None
    small.others = 2 * FILE
    assert stored(store, 9, 20 * BODY) is None
    assert store.statistics().entries >= 3


def test_a_disk_that_is_only_read_is_tried_again_after_a_pause(
    tmp_path: Path, small: SmallDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path, ROOM)
    before = stored(store, 1)
    small.others, small.error = 10 * FILE, errno.EROFS
    monkeypatch.setattr(disk, "_PAUSE_SECONDS", 1000.0)
    assert stored(store, 2) is None and os.strerror(errno.EROFS) in caplog.text
    failed = store.statistics().failed
    assert all(store.create(entry("/3")) is None for _ in range(100))
    # Nothing more is tried within the pause, and what is there goes on to be served.
    assert store.statistics().failed == failed and body_of(store, before) == bytes([1]) * BODY
    assert store.statistics().evicted == 0
