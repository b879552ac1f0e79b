"""The store in a folder: room, damage, disks that fail, several processes."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from gevent import subprocess

from rpcmq.proxy.caching import Purge, PurgeKind
from rpcmq.proxy.store import STEP_BYTES, FileStore, Purged
from rpcmq.proxy.store.purge_log import PurgeLog
from tests.proxy.store.entries import body_of, entry, maintain, put

ROOM = 64 << 20
KEY = "https://example.com/a"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("??/??/*") if path.is_file() and not path.name.startswith(".")]


def unfinished(folder: Path) -> list[Path]:
    return list(folder.glob("??/??/.*"))


def taken(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in [*files(folder), *unfinished(folder)])


def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"1" * 1000)
    store.close()
    again = FileStore(tmp_path, ROOM)
    assert stored is not None and list(again.find(KEY)) == [stored] and body_of(again, stored) == b"1" * 1000
    assert again.statistics().entries == 1
    again.close()


def test_the_folder_stays_within_its_room(tmp_path: Path) -> None:
    room = 400_000
    store = FileStore(tmp_path, room, touch_seconds=0)
    rng = random.Random(1)
    for number in range(150):
        put(store, entry(f"/{number}"), b"x" * rng.randrange(50_000))
        assert taken(tmp_path) <= room and store.statistics().size_bytes == taken(tmp_path)
        assert store.find(f"https://example.com/{number}"), "there is always room for the latest"
    assert store.statistics().evicted > 50


def test_folders_that_are_empty_do_not_hide_those_that_are_not(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 50_000)
    assert put(store, entry("/1"), b"x" * 40_000) is not None
    for number in range(500):
        (tmp_path / f"{number % 256:02x}" / f"{number // 2 % 256:02x}").mkdir(parents=True, exist_ok=True)
    for _ in range(20):
        store._evictor.make_room(10**9)
    assert not store.find("https://example.com/1")


def test_what_was_used_least_recently_goes_first(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 10 * 8192, touch_seconds=0)
    stored = [put(store, entry(f"/{number}"), b"x" * 4000) for number in range(10)]
    for number, each in enumerate(stored):
        assert each is not None
        path = store._folder.place(each.key, each.variant)
        os.utime(path, (number, number))
    first = stored[0]
    assert first is not None and body_of(store, first)
    put(store, entry("/new"), b"x" * 4000)
    assert store.find(first.key) and not store.find("https://example.com/1") and store.find("https://example.com/9")


def test_a_body_that_has_no_room_at_all_is_not_stored(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1 << 20)
    put(store, entry("/small"), b"x")
    assert store.create(entry(response={"Content-Length": str(2 << 20)})) is None
    assert put(store, entry(), b"x" * (2 << 20)) is None
    assert store.statistics().size_bytes == taken(tmp_path) and not unfinished(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 20, 31, 32, 500, 1500, 3000, -1, -5])
def test_a_file_that_is_cut_off_is_a_miss_and_goes(tmp_path: Path, cut: int) -> None:
    store = FileStore(tmp_path, ROOM)
    put(store, entry(), b"1" * (STEP_BYTES + 10))
    (path,) = files(tmp_path)
    os.truncate(path, cut if cut >= 0 else path.stat().st_size + cut)
    assert not store.find(KEY) and not files(tmp_path)
    assert store.statistics().corrupt == 1


def test_no_damaged_byte_is_ever_given_out(tmp_path: Path) -> None:
    body = bytes(range(256)) * (STEP_BYTES // 256) + b"end"
    rng = random.Random(2)
    for _ in range(150):
        store = FileStore(tmp_path, ROOM)
        stored = put(store, entry(), body)
        assert stored is not None
        (path,) = files(tmp_path)
        with open(path, "r+b") as file:
            # Mostly the small parts: prologue, heads, table.
            size = path.stat().st_size
            position = rng.choice([rng.randrange(4000), size - 1 - rng.randrange(12), rng.randrange(size)])
            file.seek(position)
            old = file.read(1)
            file.seek(position)
            file.write(bytes((old[0] ^ (1 << rng.randrange(8)),)))
        for found in store.find(KEY):
            assert found == stored
            opened = store.open(found)
            assert opened is not None
            got = b""
            try:
                for piece in opened.read(0, len(body)):
                    got += piece
            except OSError:
                assert body.startswith(got) and not files(tmp_path) and store.statistics().corrupt == 1
            else:
                assert got == body
            opened.close()
        store.remove(KEY)
        store.close()


def test_a_head_that_was_half_written_leaves_the_one_before(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"1")
    assert stored is not None and store.refresh(stored.with_body_size(1))
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    second = data.rindex(b'{"key"')
    data[second + 10 : second + 20] = b"\0" * 10
    path.write_bytes(data)
    assert list(store.find(KEY)) == [stored]


def test_a_head_that_has_outgrown_its_room_has_the_body_fetched_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"1")
    assert stored is not None
    assert not store.refresh(replace(stored, headers=stored.headers.having("X", "x" * 9000)))
    assert not store.find(KEY) and store.statistics().size_bytes == 0


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses more, as it does on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size", [0, 2000, 300_000])
def test_a_disk_that_takes_no_more_is_a_body_that_is_not_stored(tmp_path: Path, size: int) -> None:
    store = FileStore(tmp_path, ROOM)
    before = put(store, entry("/before"), b"1")
    assert before is not None
    with files_of_at_most(size):
        assert put(store, entry(), b"x" * 600_000) is None
    assert store.statistics().failed >= 1 and not store.find(KEY) and not unfinished(tmp_path)
    assert body_of(store, before) == b"1" and put(store, entry(), b"x" * 600_000) is not None
    maintain(store, before.requested_at)
    assert store.statistics().size_bytes == taken(tmp_path)


def test_a_folder_that_was_removed_is_a_miss_and_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    store = FileStore(folder, ROOM)
    stored = put(store, entry(), b"1")
    assert stored is not None
    subprocess.check_call(["rm", "-r", str(folder)])
    assert not store.find(KEY) and store.open(stored) is None and not store.refresh(stored)
    assert put(store, entry(), b"2") is not None and store.find(KEY)
    assert maintain(store, stored.requested_at) >= 0


def test_a_folder_that_cannot_be_had_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        FileStore(tmp_path / "file" / "cache", ROOM)


def test_foreign_files_are_no_responses(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"1")
    (path,) = files(tmp_path)
    digest = path.name.split("-")[0]
    (path.parent / f"{digest}-1f").write_bytes(b"garbage" * 100)
    (path.parent / f"{digest}-2f").write_bytes(b"")
    (path.parent / f"{digest}-3f").mkdir()
    assert list(store.find(KEY)) == [stored]
    maintain(store, 1.0)


def test_whatever_else_is_in_the_folder_stays(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("en/ab/page.html", "ab/cd/page.html", "ab/cd/.keep", "ab/ef.html", "cd")]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (tmp_path / "de" / "ab").mkdir(parents=True)
    (tmp_path / "en" / "empty").mkdir()
    store = FileStore(tmp_path, 1 << 16)
    for number in range(100):
        assert put(store, entry(f"/{number}"), b"x" * 10_000) is not None
    maintain(store, 1e10)
    assert store.statistics().evicted and store.statistics().corrupt == 0
    assert [path.read_text() for path in others] == ["mine"] * len(others) and (tmp_path / "en" / "empty").is_dir()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_something_else_at_the_place_of_a_response_is_a_miss(tmp_path: Path, kind: str) -> None:
    store = FileStore(tmp_path / "cache", ROOM)
    stored = put(store, entry(), b"mine")
    assert stored is not None
    (path,) = files(tmp_path / "cache")
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    path.unlink()
    {"link": lambda: path.symlink_to(other), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    assert not store.find(KEY) and store.open(stored) is None and not store.refresh(stored)
    maintain(store, 1.0)
    again = put(store, entry(), b"again")
    assert kind == "folder" or (again is not None and body_of(store, again) == b"again")
    assert other.exists()


def test_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match="everybody may write there"):
        FileStore(tmp_path, ROOM)


def test_bodies_that_nobody_goes_on_with_are_removed(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    (tmp_path / "ab" / "cd").mkdir(parents=True)
    old, new = (tmp_path / "ab" / "cd" / f".1-a-{number}" for number in range(2))
    for path in (old, new):
        path.write_bytes(b"x" * 5000)
    os.utime(old, (1, 1))
    maintain(store, 1e10)
    assert not old.exists() and new.exists() and store.statistics().size_bytes == 8192


def test_a_sweep_corrects_the_account(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM, sweep_seconds=10)
    stored = put(store, entry(), b"x" * 5000)
    store._folder.account(1_000_000, 7)
    assert stored is not None
    maintain(store, stored.requested_at)
    assert store.statistics().size_bytes == taken(tmp_path) and store.statistics().entries == 1
    store._folder.account(1_000_000)
    maintain(store, stored.requested_at + 5)
    assert store.statistics().size_bytes > 1_000_000, "not due yet"
    maintain(store, stored.requested_at + 10)
    assert store.statistics().size_bytes == taken(tmp_path)


def test_one_process_maintains_at_a_time(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path, ROOM, sweep_seconds=0), FileStore(tmp_path, ROOM, sweep_seconds=0)
    put(one, entry(), b"1")
    turns = one.maintain(1.0)
    next(turns)
    assert maintain(other, 1.0) == 0 and maintain(one, 1.0) == 0
    turns.close()  # type: ignore[attr-defined]
    assert maintain(other, 1.0) == 1


def test_a_purge_of_one_process_counts_for_all_at_once(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path, ROOM), FileStore(tmp_path, ROOM)
    stored = put(one, entry("/a", {"Cache-Tag": "t"}), b"1")
    assert stored is not None and other.find(KEY)
    under_way = other.create(stored)
    assert under_way is not None
    one.purge(Purge(PurgeKind.TAG, "t", stored.requested_at))
    assert not other.find(KEY) and under_way.commit() is None
    maintain(one, stored.requested_at)
    again = other.create(stored)
    assert again is not None and again.commit() is None, "nor after the purge was forgotten"


def test_many_purges_are_swept_and_forgotten(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    put(store, entry("/a", {"Cache-Tag": "t9"}), b"1")
    for number in range(5000):
        store.purge(Purge(PurgeKind.TAG, f"t{number}", 3e9))
    assert not files(tmp_path)
    assert len(PurgeLog(tmp_path / "purges").current()) < 4096 and (tmp_path / "purges").stat().st_size < 1 << 20


def test_purges_of_single_urls_need_no_sweep_and_are_forgotten(tmp_path: Path) -> None:
    """Each request that changes something is one: they must neither pile up nor have all heads read again and again."""
    store = FileStore(tmp_path, ROOM)
    kept = put(store, entry("/kept"), b"1")
    assert kept is not None
    maintain(store, kept.requested_at)
    for number in range(5000):
        store.purge(Purge(PurgeKind.URL, f"https://example.com/{number}", kept.requested_at + number))
    assert (tmp_path / "purges").stat().st_size < 1 << 20
    assert maintain(store, kept.requested_at + 3000) == 0, "no sweep"
    assert list(store.find(kept.key)) == [kept]
    maintain(store, kept.requested_at + 5000 + 200)
    assert len(PurgeLog(tmp_path / "purges").current()) == 0
    assert put(store, entry(at=kept.requested_at + 4990), b"2") is None, "it was asked for before the last purge"
    assert put(store, entry(at=kept.requested_at + 5001), b"2") is not None


@pytest.mark.parametrize("soft", [True, False])
def test_a_purge_of_one_url_is_done_when_it_returns(tmp_path: Path, soft: bool) -> None:
    store = FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"1")
    assert stored is not None and store.purge(Purge(PurgeKind.URL, KEY, stored.requested_at, soft)) == Purged(1)
    (tmp_path / "purges").unlink()
    again = FileStore(tmp_path, ROOM)
    assert [each.purged_at for each in again.find(KEY)] == ([stored.requested_at] if soft else [])
    again.close()


@pytest.mark.parametrize("kind", list(PurgeKind))
@pytest.mark.parametrize("soft", [False, True])
def test_a_purge_counts_though_the_disk_does_not_take_it(tmp_path: Path, kind: PurgeKind, soft: bool) -> None:
    store = FileStore(tmp_path, ROOM)
    stored = put(store, entry(response={"Surrogate-Key": "t"}), b"x")
    assert stored is not None
    value = {PurgeKind.URL: KEY, PurgeKind.PREFIX: KEY[:-1], PurgeKind.TAG: "t", PurgeKind.ALL: ""}[kind]
    with files_of_at_most(0):
        purge = Purge(kind, value, stored.requested_at + 1, soft)
        assert not store.purge(purge).is_recorded and list(store.owed()) == [purge]
        store.settle()
        assert list(store.owed()) == [purge]
        found = store.find(KEY)
    assert store.statistics().failed >= 1
    assert [each.purged_at > 0 for each in found] == ([True] if soft else [])
    assert store.find(KEY) == found
    # A response whose request is older does not come back.
    assert put(store, entry(response={"Surrogate-Key": "t"}), b"x") is None or soft


def test_a_purge_is_written_down_when_the_disk_takes_it_again(tmp_path: Path) -> None:
    store, other = FileStore(tmp_path, ROOM), FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"x")
    assert stored is not None
    purge = Purge(PurgeKind.PREFIX, KEY[:-1], stored.requested_at + 1, soft=True)

    def seen_by(each: FileStore) -> list[float]:
        return [found.purged_at for found in each.find(KEY)]

    with files_of_at_most(0):
        assert not store.purge(purge).is_recorded
    assert seen_by(other) == [0.0] and seen_by(store) == [purge.at]
    # Another process writes the file anew: what is not in it counts here all the same.
    other.purge(Purge(PurgeKind.TAG, "other", stored.requested_at))
    maintain(other, stored.requested_at)
    assert seen_by(store) == [purge.at] and list(store.owed()) == [purge]
    store.settle()
    assert not store.owed() and seen_by(other) == [purge.at] and seen_by(FileStore(tmp_path, ROOM)) == [purge.at]


def test_purges_of_other_processes_are_read_once(tmp_path: Path) -> None:
    one = FileStore(tmp_path, ROOM)
    first, *more = (Purge(PurgeKind.TAG, f"t{number}", 1.0) for number in range(4))
    one.purge(first)
    other = FileStore(tmp_path, ROOM)
    assert not other.news(()), "what was purged before it was opened is in the file"
    one.purge(more[0])
    assert list(other.news(())) == [more[0]] and not other.news(()) and not one.news([first, more[0]])
    one.purge(more[1])
    # The file is another one after the sweep.
    maintain(one, 1.0)
    one.purge(more[2])
    assert list(other.news([more[1]])) == [more[2]] and not other.news(())
    (tmp_path / "purges").unlink()
    assert not other.news(())


def test_a_purge_of_which_the_disk_takes_a_part_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    store, other = FileStore(tmp_path, ROOM), FileStore(tmp_path, ROOM)
    stored = put(store, entry(), b"x")
    assert stored is not None
    log = tmp_path / "purges"
    store.purge(Purge(PurgeKind.TAG, "t", 1.0))
    before = log.read_bytes()
    with files_of_at_most(len(before) + 10):
        store.purge(Purge(PurgeKind.TAG, "u", 1.0))
    assert log.read_bytes() == before
    assert put(store, entry(), b"x") is not None
    store.purge(Purge(PurgeKind.PREFIX, KEY[:-1], stored.requested_at + 1))
    assert not store.find(KEY) and not other.find(KEY)


def test_a_purge_that_was_half_written_is_passed_over(tmp_path: Path) -> None:
    store = FileStore(tmp_path, ROOM)
    put(store, entry(), b"1")
    with open(tmp_path / "purges", "ab") as file:
        file.write(b'{"kind": "all", "val\n[]\n3\n\xff\n{"forgotten_at": "x"}\n')
    assert store.find(KEY)
    store.purge(Purge(PurgeKind.URL, KEY, 3e9))
    assert not store.find(KEY)


WRITER = """
import sys
from rpcmq.proxy.store import FileStore
from tests.proxy.store.entries import body_of, entry, put
store = FileStore(sys.argv[1], int(sys.argv[2]), touch_seconds=0)
seed, at = int(sys.argv[3]), 1.8e9
print("ready", flush=True)
count = 0
while count < int(sys.argv[4]):
    target = f"/{(seed * 31 + count * 7) % 40}"
    at += 1
    number = seed * 1_000_000 + count
    size = 100 + number * 997 % 400_000
    told = {"X-Number": str(number), "Content-Length": str(size)}
    put(store, entry(target, told, at=at + seed / 10), number.to_bytes(4) * (size // 4) + b"e" * (size % 4))
    other = f"https://example.com/{(seed + count * 3) % 40}"
    for found in store.find(other):
        try:
            body = body_of(store, found)
        except OSError as error:
            sys.exit(f"damaged: {error}")
        if body is not None:
            its = int(found.headers.get("x-number"))
            assert len(body) == found.body_size and body[:4] == its.to_bytes(4), (found, body[:4])
        if count % 5 == 0:
            store.refresh(found)
        if count % 50 == 0:
            store.remove(other)
    if count % 100 == 0:
        for _ in store.maintain(at):
            pass
    count += 1
statistics = store.statistics()
assert not statistics.corrupt and not statistics.failed, statistics
print("done", statistics, flush=True)
"""


@pytest.mark.integration
def test_several_processes_share_a_folder_and_some_are_killed(tmp_path: Path) -> None:
    room = 4 << 20
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(room)]
    root = Path(__file__).parents[3]
    keep = [
        subprocess.Popen([*command, str(seed), "400"], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for seed in (1, 2)
    ]
    doomed = subprocess.Popen([*command, "3", "1000000"], cwd=root, stdout=subprocess.PIPE)
    try:
        assert doomed.stdout is not None and doomed.stdout.readline() == b"ready\n"
        outputs = [process.communicate(timeout=100)[0] for process in keep[:1]]
        os.kill(doomed.pid, signal.SIGKILL)
        outputs += [process.communicate(timeout=100)[0] for process in keep[1:]]
    finally:
        for process in (*keep, doomed):
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    assert all(b"done" in output for output in outputs), outputs
    store = FileStore(tmp_path, room)
    maintain(store, 1.8e9 + 10_000)
    assert store.statistics().size_bytes == taken(tmp_path) <= room + (1 << 20)
    assert store.statistics().entries == len(files(tmp_path))
