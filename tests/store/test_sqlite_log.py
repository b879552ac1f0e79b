"""The write-ahead log of a process that was killed, of which the disk has changed something."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.store.contract import Lane, Maker, Put, StoreError
from rpcmq.store.log_checksums import FRAME_HEAD, HEAD, Frame, LogHead
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import abandon
from rpcmq.store.sqlite_pages import PAGE_BYTES

LANE = Lane("billing", 0)
MANY = (1000, 1 << 20)
FRAME = FRAME_HEAD + PAGE_BYTES
COMMITS = 5


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a process that was killed after it has put some items, one by one, each in one frame."""
    store = SqliteStore(tmp_path / "queue.db")
    store.apply([put(0)])
    for number in range(1, COMMITS + 1):
        store.apply([put(number)])
    abandon(store._connection)
    return tmp_path / "queue.db-wal"


def put(number: int) -> Put:
    return Put(LANE, b"body %d" % number, 1, maker=Maker(7, number + 1))


def change(file: Path, at: int, bits: int = 1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= bits
    file.write_bytes(content)


def bodies(log: Path) -> list[bytes]:
    store = SqliteStore(log.with_name("queue.db"))
    items = store.read(LANE, 0, *MANY)
    store.close()
    return [item.body for item in items]  # type: ignore[union-attr]


def test_frames_are_told_from_others(log: Path) -> None:
    raw = log.read_bytes()
    head = LogHead(raw[:HEAD])
    assert head.is_right and not LogHead(bytes(HEAD - 1) + b"1").is_right
    before = head.sums
    for at in range(HEAD, len(raw), FRAME):
        frame = Frame(head, raw[at : at + FRAME])
        assert frame.is_of_log and frame.is_right(before) and not frame.is_right((0, 0))
        before = frame.sums
    assert frame.ends_commit


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 23, FRAME_HEAD, FRAME - 1], ids=str)
@pytest.mark.parametrize("bits", [0x10, 0xFF])
def test_commits_that_the_disk_has_changed_are_named(log: Path, at: int, bits: int) -> None:
    whole = log.read_bytes()
    frame = (len(whole) - HEAD) // FRAME - 2
    change(log, HEAD + (frame - 1) * FRAME + at, bits)
    damaged = log.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"the frame {frame} of its write-ahead log is damaged.*queue\.db-wal"):
            SqliteStore(log.with_name("queue.db"))
        assert log.read_bytes() == damaged
    log.write_bytes(whole)
    assert len(bodies(log)) == COMMITS + 1


@pytest.mark.parametrize("at", range(0, HEAD, 3))
def test_a_head_that_the_disk_has_changed_is_named(log: Path, at: int) -> None:
    change(log, at)
    with pytest.raises(StoreError, match="the head of its write-ahead log is damaged"):
        SqliteStore(log.with_name("queue.db"))
    change(log, at)
    assert len(bodies(log)) == COMMITS + 1


def test_the_last_commit_is_left_out_where_it_is_not_whole_and_that_is_told(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(log, log.stat().st_size - 100)
    assert bodies(log) == [b"body %d" % number for number in range(COMMITS)]
    assert "the last commit in its write-ahead log is not whole, and is left out" in caplog.text


def test_a_page_that_was_torn_when_the_log_was_copied_into_the_file_is_no_damage(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(log.with_name("queue.db"))
    begin = log.stat().st_size
    store.apply([Put(LANE, bytes(3 * PAGE_BYTES), 1, maker=Maker(7, 99))])
    abandon(store._connection)
    raw = log.read_bytes()
    head = LogHead(raw[:HEAD])
    frames = [Frame(head, raw[at : at + FRAME]) for at in range(begin, len(raw), FRAME)]
    assert frames[1].number > 1 and frames[-1].ends_commit
    # The power went off before this commit was synced; an earlier one was being copied.
    change(log, begin + FRAME_HEAD)
    with log.with_name("queue.db").open("r+b") as file:
        file.seek((frames[1].number - 1) * PAGE_BYTES)
        file.write(b"torn" * (PAGE_BYTES // 4))
    assert bodies(log) == [b"body %d" % number for number in range(COMMITS + 1)]
    assert "the last commit in its write-ahead log is not whole, and is left out" in caplog.text


def test_a_commit_that_was_never_written_to_its_end_is_no_damage(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 100)
    assert len(bodies(log)) == COMMITS
    assert not caplog.text
