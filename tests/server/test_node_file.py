"""The file of a plugged-in node: whole or the one before, and no trouble of it is the router's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq.core.router.actions import LogEvent
from rpcmq.server import node_file
from rpcmq.server.node_file import NodeFile
from rpcmq.testing import eventually

pytestmark = pytest.mark.integration

ROWS = {"a": {"x": 1}, "b": {"y": "\u00e9\n"}}


class Opened:
    """A file of the node poison, and what its router is told."""

    def __init__(self, path: Path, node: str = "poison", max_bytes: int = 1 << 20) -> None:
        self.notes: list[LogEvent] = []
        self.file = NodeFile(str(path), node, max_bytes, self.notes.append)
        self.kept: list[str] = []
        self.woken = 0
        self.file.keeper.on_kept = lambda now, problem: self.kept.append(problem)
        self.file.start(self._wake)
        gevent.sleep(0)  # it passes on what it has to say of the reading

    def _wake(self) -> None:
        self.woken += 1

    @property
    def rows(self) -> dict[str, Any]:
        return self.file.keeper.rows

    def keep(self, rows: dict[str, Any]) -> None:
        for name, row in rows.items():
            self.file.keeper.keep(name, row)

    @property
    def events(self) -> list[str]:
        return [note.event for note in self.notes]


@contextmanager
def opened(path: Path, *args: Any, **options: Any) -> Iterator[Opened]:
    made = Opened(path, *args, **options)
    try:
        yield made
    finally:
        made.file.close(30)


def rows_in(path: Path) -> dict[str, Any]:
    with opened(path) as there:
        assert there.events == []
        return there.rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "poison.state"


@pytest.fixture
def written(path: Path) -> Path:
    with opened(path) as there:
        there.keep(ROWS)
    return path


def test_rows_are_there_when_it_is_opened_again(path: Path) -> None:
    with opened(path) as there:
        there.keep(ROWS)
        eventually(lambda: there.kept == [""], 30)
        assert there.woken == 1 and path.stat().st_mode & 0o777 == 0o600
        copy = path.with_name("copy")  # as after a kill at this moment
        copy.write_bytes(path.read_bytes())
        assert rows_in(copy) == ROWS
        there.keep({"a": None})
        eventually(lambda: there.kept == ["", ""], 30)
    assert rows_in(path) == {"b": ROWS["b"]} and sorted(os.listdir(path.parent)) == [
        "copy", "copy.lock", "poison.state", "poison.state.lock",
    ]  # fmt: skip


def test_an_end_writes_what_was_said_last(path: Path) -> None:
    with opened(path) as there:
        there.keep(ROWS)
    assert rows_in(path) == ROWS


def test_a_file_that_is_cut_or_changed_is_put_aside_and_a_new_one_begun(written: Path) -> None:
    whole = written.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            written.write_bytes(damaged)
            notes: list[LogEvent] = []
            made = NodeFile(str(written), "poison", 1 << 20, notes.append)
            assert made.keeper.rows == {} and made.keeper.size_bytes == 0 and notes == []
            made.start(lambda: None)
            eventually(notes.copy, 30)
            (note,) = notes
            assert note.event in ("node file damaged", "node file refused"), note
            made.close(30)
    written.with_name("poison.state.damaged").unlink()
    written.write_bytes(whole[:-1])
    with opened(written) as there:
        assert there.events == ["node file damaged"] and "digest" in there.notes[0].text
        assert written.with_name("poison.state.damaged").read_bytes() == whole[:-1]
        there.keep({"c": {}})
    assert rows_in(written) == {"c": {}}


@pytest.mark.parametrize(
    ("change", "node", "says"),
    [
        (lambda data: data.replace(b"file 1 ", b"file 2 ", 1), "poison", "is of version 2, and this rpcmq knows 1"),
        (bytes, "other", "is of the node poison"),
    ],
)
def test_a_file_of_a_later_version_or_another_node_is_left_alone(
    written: Path, change: Callable[[bytes], bytes], node: str, says: str
) -> None:
    data = change(written.read_bytes())
    written.write_bytes(data)
    with opened(written, node) as there:
        assert there.events == ["node file refused"] and says in there.notes[0].text and there.rows == {}
        there.keep({"c": {}})
        eventually(lambda: len(there.kept) == 1, 30)
        assert says in there.kept[0]
    assert written.read_bytes() == data and there.events == ["node file refused"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_left_alone_and_not_waited_for(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with opened(path) as there:
        assert there.events == ["node file refused"]
        there.keep(ROWS)
        eventually(lambda: len(there.kept) == 1, 30)
        assert there.kept[0]


def test_a_file_that_is_too_large_is_left_alone(path: Path) -> None:
    path.write_bytes(b"x" * 10_000)
    with opened(path, max_bytes=1000) as there:
        assert there.events == ["node file refused"] and "max_bytes = 1000" in there.notes[0].text
    assert path.stat().st_size == 10_000


def test_two_routers_do_not_write_one_file(written: Path) -> None:
    with opened(written) as first, opened(written) as second:
        assert first.rows == ROWS and second.rows == {} and "another router has it" in second.notes[0].text
        second.keep({"c": {}})
        eventually(lambda: len(second.kept) == 1, 30)
        first.keep({"d": {}})
        eventually(lambda: first.kept == [""], 30)
    assert rows_in(written) == {**ROWS, "d": {}}


def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_file, "_RETRY", 0.05)
    path = tmp_path / "later" / "poison.state"
    with opened(path) as there:
        assert there.events == []
        there.keep(ROWS)
        eventually(lambda: len(there.kept) >= 3, 30)
        assert there.events == ["node file not written"] and "No such file or directory" in there.notes[0].text
        assert all(there.kept)
        path.parent.mkdir()
        eventually(lambda: there.kept[-1] == "", 30)
        assert there.events == ["node file not written", "node file written"]
    assert rows_in(path) == ROWS


def test_a_disk_that_cannot_be_written_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with opened(tmp_path / "never" / "poison.state") as there:
        there.keep(ROWS)
        eventually(lambda: len(there.kept) == 1, 30)
    assert there.file._writer is not None and there.file._writer.successful()
