"""The segments that a stream reads: each once, and none that has changed since it was written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpcmq.latency import segment
from rpcmq.latency.jobs.admission import MISSING, UNLISTED, SegmentIntake
from rpcmq.latency.jobs.journal import Dataset, Journal
from rpcmq.latency.manifest import ManifestDamaged, read
from rpcmq.latency.retention import Limits
from rpcmq.latency.sinks import JsonLines
from tests.latency.jobs.streams import Log
from tests.latency.logs import NOW, Killed, names, ship, struck_after
from tests.latency.spools import many, spooled

HOUR = 3600


@contextmanager
def admitting(log: Log, out: Path, now: float = NOW) -> Iterator[tuple[SegmentIntake, Journal]]:
    journal = Journal(out, lambda: now)
    try:
        yield SegmentIntake(log.directory, out, journal, lambda: now), journal
    finally:
        journal.close()


def visible(out: Path) -> list[str]:
    return [name for name in names(out, "admitted") if not name.startswith(".")]


def read_by_a_batch(journal: Journal, out: Path, batch: int = 0) -> list[str]:
    """Record a batch that has read all waiting segments that are visible; return their names."""
    found = [name for name in visible(out) if name in journal.state.waiting]
    records = sum(journal.state.waiting[name] for name in found)
    journal.add_batch("a", batch, found, Dataset(f"cells/run=a/batch={batch}", (0,), records, NOW, True))
    return found


def test_what_is_in_the_manifest_is_admitted_once(log: Log, out: Path) -> None:
    paths = [log.grow(10), log.grow(20)]

    with admitting(log, out) as (admission, journal):
        looked = admission.look(100)
        assert (looked.segments, looked.records, looked.aside, looked.more) == (2, 30, [], False)
        assert visible(out) == sorted(path.name for path in paths)
        assert admission.look(100).segments == 0
        log.grow(5)
        assert admission.look(100).records == 5
        assert journal.state.waiting[paths[0].name] == 10
    with admitting(log, out) as (admission, _):
        assert admission.look(100).segments == 0


def test_what_is_no_file_is_neither_opened_nor_copied(log: Log, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, device = log.grow(10), log.grow(20)
    os.mkfifo(good.with_name("pipe.parquet"))
    device.unlink()
    device.symlink_to("/dev/zero")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    with admitting(log, out, time() + 3600) as (admission, _):
        looked = admission.look(100)
        assert (looked.segments, looked.records) == (1, 10)
        aside = {each.path: (each.reason, each.text) for each in looked.aside}
    assert aside == {
        f"ready/{device.name}": ("foreign", "is a symbolic link, not a regular file"),
        "ready/pipe.parquet": ("foreign", "not in the manifest: is a named pipe, not a regular file"),
    }


def test_the_account_has_what_only_the_manifest_knows(tmp_path: Path, out: Path) -> None:
    log = Log(tmp_path)
    spooled(tmp_path, many(1, 10), given=30, dropped=3)
    spooled(tmp_path, many(40, 5), segment=4)
    ship(tmp_path)

    with admitting(log, out) as (admission, _):
        admission.look(100)
        admission.report()
        size = (out / "journal.jsonl").stat().st_size
        admission.report()
        assert (out / "journal.jsonl").stat().st_size == size
    with admitting(log, out) as (_, journal):
        account = journal.state.account()
        assert (account.holes, account.dropped, account.missing_segments) == (29, 3, 2)


def test_it_is_the_same_file_and_takes_no_room(log: Log, out: Path) -> None:
    path = log.grow()

    with admitting(log, out) as (admission, _):
        admission.look(100)

    assert (out / "admitted" / path.name).stat().st_ino == path.stat().st_ino


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM])
def test_where_links_are_not_possible_it_is_a_copy(
    log: Log, out: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    path = log.grow()

    with admitting(log, out) as (admission, _):
        assert admission.look(100).segments == 1

    assert (out / "admitted" / path.name).read_bytes() == path.read_bytes()


def test_a_look_is_bounded_and_says_that_there_is_more(log: Log, out: Path) -> None:
    for _ in range(5):
        log.grow(1)

    with admitting(log, out) as (admission, _):
        assert [(looked.segments, looked.more) for looked in (admission.look(2) for _ in range(4))] == [
            (2, True),
            (2, True),
            (1, False),
            (0, False),
        ]


# --- files that cannot be trusted ---------------------------------------------------------------


def spoil(path: Path, what: str) -> None:
    """Make of a segment what cannot be trusted, and of the manifest's entry what it is where that is the point."""
    data = bytearray(path.read_bytes())
    match what:
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case "empty":
            path.write_bytes(b"")
        case "corrupt":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "foreign":
            path.write_bytes(b"PK\x03\x04" + data[4:])
        case "a directory":
            path.unlink()
            path.mkdir()
        case "version" | "foreign Parquet" | "column" | "missing column":
            table = pq.read_table(path)
            metadata = {b"rpcmq:schema": b"2" if what == "version" else b"1"}
            if what == "column":
                table = table.set_column(0, "router", pa.array(range(len(table))))
            if what == "missing column":
                table = table.drop_columns(["total_us"])
            pq.write_table(table.replace_schema_metadata({} if what == "foreign Parquet" else metadata), path)
            name_again(path)


def name_again(path: Path) -> None:
    """Let the manifest say of ``path`` what it is now: its writer thought that it is right."""
    manifest = path.parent.parent / "manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if line["file"]["path"] == f"ready/{path.name}":
            line["file"] |= {"bytes": path.stat().st_size, "crc32": zlib.crc32(path.read_bytes())}
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))


WRONG = {
    "truncated": "truncated",
    "empty": "truncated",
    "corrupt": "corrupt",
    "foreign": "corrupt",
    "a directory": "foreign",
    "version": "version",
    "foreign Parquet": "foreign",
    "column": "columns",
    "missing column": "columns",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_trusted_is_set_aside_by_name_reason_and_count(log: Log, out: Path, what: str) -> None:
    good, bad, later = log.grow(10), log.grow(20), log.grow(30)
    spoil(bad, what)

    with admitting(log, out) as (admission, journal):
        looked = admission.look(100)

        assert visible(out) == sorted([good.name, later.name])
        (aside,) = looked.aside
        assert (aside.path, aside.reason, aside.rows) == (f"ready/{bad.name}", WRONG[what], 20)
        assert admission.look(100).aside == []
    with admitting(log, out) as (admission, journal):
        assert admission.look(100).aside == []
        assert [each.path for each in journal.state.account().set_aside] == [f"ready/{bad.name}"]
        assert read_by_a_batch(journal, out) == visible(out)
        assert journal.state.account().balances
        assert journal.state.account().shipped == 60


def test_json_lines_cannot_be_streamed_and_that_is_said(log: Log, out: Path) -> None:
    spooled(log.directory, many(1, 10))
    ship(log.directory, sink=JsonLines())

    with admitting(log, out) as (admission, _):
        (aside,) = admission.look(100).aside

    assert (aside.reason, aside.rows) == ("jsonl", 10)


def test_what_was_repaired_is_admitted_when_it_is_looked_at_again(log: Log, out: Path) -> None:
    path = log.grow(10)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with admitting(log, out) as (admission, _):
        assert admission.look(100).aside
        assert admission.reconsider().segments == 0
        path.write_bytes(whole)
        assert admission.reconsider().records == 10
        assert admission.reconsider().segments == 0
    with admitting(log, out) as (_, journal):
        assert not journal.state.aside and visible(out) == [path.name]


def test_what_was_damaged_after_it_was_admitted_is_withdrawn(log: Log, out: Path) -> None:
    good, bad = log.grow(10), log.grow(400)
    with admitting(log, out) as (admission, journal):
        admission.look(100)
        data = bytearray(bad.read_bytes())
        data[len(data) // 3] ^= 1
        with bad.open("r+b") as file:
            file.write(data)

        (aside,) = admission.withdraw()

        assert (aside.path, aside.rows) == (f"ready/{bad.name}", 400)
        assert visible(out) == [good.name] and list(journal.state.waiting) == [good.name]
        assert admission.withdraw() == []


def test_a_file_that_nobody_speaks_of_is_reported_until_somebody_does(log: Log, out: Path) -> None:
    path = log.grow(10)
    manifest = log.directory / "manifest.jsonl"
    line = manifest.read_bytes()
    manifest.write_bytes(b"")
    (log.directory / "ready" / "odd.parquet").write_bytes(b"odd")
    for each in (path, log.directory / "ready" / "odd.parquet"):
        os.utime(each, (NOW, NOW))

    with admitting(log, out, NOW + 5) as (admission, _):
        # The shipper may be about to name them.
        assert admission.look(100).aside == []
    with admitting(log, out, NOW + 60) as (admission, journal):
        aside = {each.path: each for each in admission.look(100).aside}
        assert {name: each.reason for name, each in aside.items()} == {
            f"ready/{path.name}": UNLISTED,
            "ready/odd.parquet": "foreign",
        }
        assert aside[f"ready/{path.name}"].text == "not in the manifest"
        assert visible(out) == []
        manifest.write_bytes(line)
        assert admission.look(100).segments == 1
        assert list(journal.state.aside) == ["odd.parquet"]


# --- files that are gone ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["compacted", "retired", "removed"])
def test_what_was_removed_before_it_was_read_is_missing(log: Log, out: Path, how: str) -> None:
    path = log.grow(10)
    if how == "compacted":
        # What is superseded is removed a run later.
        ship(log.directory, NOW + HOUR, Limits(ready=0))
        ship(log.directory, NOW + 2 * HOUR, Limits(ready=0))
    elif how == "retired":
        ship(log.directory, NOW + 60, Limits(age=1))
    else:
        path.unlink()
    assert not path.exists()

    with admitting(log, out) as (admission, _):
        (aside,) = admission.look(100).aside
        assert (aside.path, aside.reason, aside.rows) == (f"ready/{path.name}", MISSING, 10)
        assert {"compacted": "its records are in log/", "retired": "age or size", "removed": "gone"}[how] in aside.text
        assert admission.look(100).aside == []


def test_what_was_admitted_stays_whatever_becomes_of_ready(log: Log, out: Path) -> None:
    path = log.grow(10)
    with admitting(log, out) as (admission, _):
        admission.look(100)
        shutil.rmtree(log.directory / "ready")
        assert segment.metadata_of(out / "admitted" / path.name)
        assert admission.withdraw() == []


def test_what_is_compacted_but_still_in_ready_is_read(log: Log, out: Path) -> None:
    log.grow(10)
    ship(log.directory, NOW + HOUR)

    with admitting(log, out) as (admission, _):
        assert admission.look(100).records == 10


def test_a_link_that_somebody_removed_is_missing(log: Log, out: Path) -> None:
    path = log.grow(10)
    with admitting(log, out) as (admission, _):
        admission.look(100)
    (out / "admitted" / path.name).unlink()

    with admitting(log, out) as (_, journal):
        assert [(each.reason, each.rows) for each in journal.state.aside.values()] == [(MISSING, 10)]


# --- the manifest -------------------------------------------------------------------------------


def test_a_manifest_that_was_rewritten_brings_nothing_twice(log: Log, out: Path) -> None:
    log.grow(10)
    with admitting(log, out) as (admission, _):
        admission.look(100)
        manifest = log.directory / "manifest.jsonl"
        totals = {"event": "totals", "state": read(log.directory).totals()}
        manifest.with_name(".m").write_text(json.dumps(totals) + "\n")
        manifest.with_name(".m").rename(manifest)
        log.grow(20)

        assert admission.look(100).records == 20


def test_a_damaged_manifest_is_an_error_and_admits_nothing(log: Log, out: Path) -> None:
    log.grow(10)
    manifest = log.directory / "manifest.jsonl"
    good = manifest.read_bytes()
    manifest.write_bytes(b"what is this\n" + good)
    with admitting(log, out) as (admission, _):
        with pytest.raises(ManifestDamaged):
            admission.look(100)
        manifest.write_bytes(good)
        assert admission.look(100).records == 10


def test_a_log_without_a_manifest_is_empty(tmp_path: Path, out: Path) -> None:
    with admitting(Log(tmp_path), out) as (admission, _):
        assert admission.look(100).segments == 0


# --- kills --------------------------------------------------------------------------------------


def test_whatever_change_it_is_killed_at_each_segment_is_admitted_once(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    segments = [log.grow(5).name for _ in range(3)]
    bad = log.grow(5)
    bad.write_bytes(b"bad")
    after = 0
    while True:
        out = tmp_path / f"out-{after}"
        seen: Counter[str] = Counter()
        aside: Counter[str] = Counter()
        with struck_after(after, Killed()) as executioner, admitting(log, out) as (admission, _):
            admission.look(2)
            admission.look(100)
        struck = executioner.struck
        with admitting(log, out) as (admission, journal):
            # Spark sees what is visible, and counts what it sees, while the rest is still to come.
            seen.update(read_by_a_batch(journal, out))
            admission.look(100)
            seen.update(read_by_a_batch(journal, out, 1))
            admission.release()
            aside.update(list(journal.state.aside))
            assert journal.state.account().balances and not journal.state.waiting
        assert seen == Counter(segments) and aside == Counter([bad.name]), after
        assert names(out, "admitted") == []
        if not struck:
            break
        after += 1
    assert after > 8


def test_a_full_disk_is_an_error_and_nothing_is_lost(log: Log, out: Path) -> None:
    paths = [log.grow(5).name for _ in range(2)]
    for after in range(12):
        with struck_after(after, OSError(errno.ENOSPC, "full")), admitting(log, out / str(after)) as (admission, _):
            admission.look(100)
        with admitting(log, out / str(after)) as (admission, journal):
            admission.look(100)
            assert read_by_a_batch(journal, out / str(after)) == sorted(paths)
