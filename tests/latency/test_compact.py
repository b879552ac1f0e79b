"""Hourly compaction: the same records, in files by hour, sorted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rpcmq.latency import compact
from rpcmq.latency import segment as segments
from rpcmq.latency.compact import FEW
from rpcmq.latency.manifest import NAME, read
from rpcmq.latency.retention import Limits
from tests.latency.logs import NOW, Killed, names, rows, ship, struck_after, times_seen
from tests.latency.spools import BOOT, Sent, many, spooled

HOUR = 3600
#: From the router's start, 22:13:20, to the end of that hour.
REST = 2800


def test_an_hour_that_is_over_becomes_one_file_sorted_by_topic_and_method(tmp_path: Path) -> None:
    for segment in range(1, 6):
        spooled(tmp_path, many(segment * 100, 100), segment=segment)
    ship(tmp_path)
    before = rows(tmp_path)
    ship(tmp_path, NOW + REST - 1)
    assert not (tmp_path / "log").exists()

    ship(tmp_path, NOW + REST)

    (path,) = read(tmp_path).live
    assert path == "log/v1/dt=2023-11-14/hour=22/7-1700000000000-00000001.parquet"
    after = rows(tmp_path)
    assert after == sorted(before, key=lambda row: (row["topic"], row["method"], row["recv_at"]))
    assert pq.read_metadata(tmp_path / path).num_rows == 500


def test_segments_stay_for_those_who_read_ready_and_go_later(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 100))
    ship(tmp_path)
    limits = Limits(ready=600)
    ship(tmp_path, NOW + REST, limits)
    assert len(names(tmp_path, "ready")) == 1

    ship(tmp_path, NOW + REST + 599, limits)
    assert len(names(tmp_path, "ready")) == 1
    ship(tmp_path, NOW + REST + 601, limits)
    assert names(tmp_path, "ready") == []
    assert len(rows(tmp_path)) == 100


def test_what_ends_later_than_the_hour_it_began_in_gets_a_file_of_that_hour(tmp_path: Path) -> None:
    spooled(tmp_path, [Sent(1, REST - 1), Sent(2, REST - 1e-6), Sent(3, REST), Sent(4, REST + 5)])
    ship(tmp_path, NOW + REST + 10)
    spooled(tmp_path, [Sent(8, 1.0, served=REST + 150), Sent(6, REST + 100)], segment=2)
    ship(tmp_path, NOW + REST + 200)

    ship(tmp_path, NOW + REST + HOUR)

    state = read(tmp_path)
    assert {path: file.rows for path, file in state.live.items()} == {
        "log/v1/dt=2023-11-14/hour=22/7-1700000000000-00000002.parquet": 3,
        "log/v1/dt=2023-11-14/hour=23/7-1700000000000-00000002.parquet": 3,
    }
    assert set(times_seen(tmp_path).values()) == {1}


def test_more_than_is_rewritten_at_a_time_becomes_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact.compact, "__defaults__", (250,))
    for segment in range(1, 6):
        spooled(tmp_path, many(segment * 100, 100), segment=segment)
    ship(tmp_path)

    ship(tmp_path, NOW + HOUR)

    assert sorted(file.rows for file in read(tmp_path).live.values()) == [100, 200, 200]
    assert len(times_seen(tmp_path)) == 500


@pytest.mark.long
@pytest.mark.timeout(600)
def test_metadata_that_is_damaged_is_no_error_of_the_disk(tmp_path: Path) -> None:
    """Whichever byte of it: the disk is asked again and again, and a damaged file is set aside."""
    spooled(tmp_path, many(1, 3))
    ship(tmp_path)
    (file,) = read(tmp_path).live
    path = tmp_path / file
    content = path.read_bytes()
    damaged = 0
    for place in range(len(content) // 2, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            segments.metadata_of(path)
        except segments.Damaged:
            damaged += 1
    assert damaged
    path.unlink()
    with pytest.raises(FileNotFoundError):
        segments.metadata_of(path)


def test_a_file_names_the_segments_that_it_was_made_of(tmp_path: Path) -> None:
    for segment in (1, 2):
        spooled(tmp_path, many(segment * 100, 10), segment=segment)
    ship(tmp_path)
    ship(tmp_path, NOW + HOUR)

    (path,) = read(tmp_path).live
    assert compact.inputs_of(tmp_path / path) == [
        "ready/7-1700000000000-00000001.parquet",
        "ready/7-1700000000000-00000002.parquet",
    ]


# --- what ends late, folded ---------------------------------------------------------------------

HOUR_22 = "log/v1/dt=2023-11-14/hour=22"
#: Segments stay for so long in these tests.
READY = Limits(ready=1.5 * HOUR)


def late(directory: Path, hours: int, limits: Limits = READY) -> float:
    """Each hour a few records end that were received in the first one. Returns the time of the last run."""
    spooled(directory, many(1, 100))
    ship(directory, NOW, limits)
    for hour in range(1, hours + 1):
        records = [Sent(1000 * hour + n, n / 1000, served=100.0) for n in range(hour)]
        spooled(directory, records, segment=1 + hour)
        ship(directory, NOW + hour * HOUR, limits)
    return NOW + hours * HOUR


def live(directory: Path) -> list[str]:
    """Names of the files of the first hour."""
    return sorted(Path(path).name for path in read(directory).live if "hour=22" in path)


def test_a_few_small_files_of_an_hour_are_left_alone(tmp_path: Path) -> None:
    late(tmp_path, FEW)
    assert len(live(tmp_path)) == FEW


def test_more_small_files_become_one(tmp_path: Path) -> None:
    last = late(tmp_path, FEW + 1)
    expected, written = times_seen(tmp_path), read(tmp_path).rows_written
    # The segments of the others are in ready/.
    assert live(tmp_path) == [f"7-{BOOT}-{name}.parquet" for name in ("00000001_1", "00000003", "00000004", "00000005")]
    assert names(tmp_path, "log") == live(tmp_path)
    folded = tmp_path / HOUR_22 / live(tmp_path)[0]
    assert compact.inputs_of(folded) == [f"{HOUR_22}/7-{BOOT}-{n:08}.parquet" for n in (1, 2)]
    found = [row for row in rows(tmp_path) if row["seq"] < 2000]
    assert found == sorted(found, key=lambda row: (row["topic"], row["method"], row["recv_at"]))
    assert expected.total() == len(expected) == written == 100 + sum(range(FEW + 2))

    for hour in range(1, 10):
        spooled(tmp_path, [Sent(90_000 + hour, 1.0, served=100.0)], segment=100 + hour)
        ship(tmp_path, last + hour * HOUR, READY)
        assert names(tmp_path, "log") == live(tmp_path) and len(live(tmp_path)) <= FEW
    assert live(tmp_path)[0].startswith(f"7-{BOOT}-00000001_")
    assert times_seen(tmp_path) == expected + Counter(("r1", BOOT, 90_000 + hour) for hour in range(1, 10))


def test_files_whose_segments_are_there_are_not_folded(tmp_path: Path) -> None:
    late(tmp_path, 2 * FEW, Limits(ready=100 * HOUR))
    assert len(live(tmp_path)) == 2 * FEW


def test_large_files_are_not_folded_and_what_is_folded_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact.fold, "__defaults__", (20,))
    late(tmp_path, 3 * FEW)
    sizes = {Path(file.path).name: file.rows for file in read(tmp_path).live.values() if "hour=22" in file.path}
    assert sizes[f"7-{BOOT}-00000001.parquet"] == 100
    assert max(size for name, size in sizes.items() if "_" in name) <= 20
    # What the last hour brought is not compacted yet.
    assert sum(sizes.values()) == 100 + sum(range(3 * FEW))


def test_a_file_that_is_damaged_is_set_aside_and_the_others_are_folded(tmp_path: Path) -> None:
    last = late(tmp_path, FEW)
    victim, other = (tmp_path / HOUR_22 / f"7-{BOOT}-{n:08}.parquet" for n in (2, 3))
    victim.write_bytes(b"PAR1")
    content = bytearray(other.read_bytes())
    content[len(content) // 2] ^= 1
    other.write_bytes(content)
    for hour in (1, 2, 3):
        spooled(tmp_path, [Sent(90_000 + hour, 1.0, served=100.0)], segment=100 + hour)
        state = ship(tmp_path, last + hour * HOUR, READY).state
    assert state.files_damaged == 2 and state.rows_damaged == 3
    assert {victim.name, other.name} <= set(names(tmp_path, "quarantine"))
    assert state.rows_written == len(rows(tmp_path)) + 3


@pytest.mark.parametrize("manifest", ["kept", "lost"])
@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_before_any_change_folding_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    monkeypatch.setattr(compact, "FEW", 1)
    for changes in range(10_000):
        directory = tmp_path / str(changes)
        last = late(directory, 2, Limits(ready=100 * HOUR))
        expected = times_seen(directory)
        spooled(directory, [Sent(5000, 10.0, served=100.0)], segment=50)
        expected["r1", BOOT, 5000] += 1
        # Nothing keeps the segments any more: they go, and then their files are folded.
        limits = Limits(ready=0)
        ship(directory, last + 1, limits)
        with struck_after(changes, Killed()) as executioner:
            ship(directory, last + HOUR, limits)
        if manifest == "lost":
            (directory / NAME).unlink()
        assert not (times_seen(directory) - expected), changes
        for hour in (1, 2, 3):
            state = ship(directory, last + hour * HOUR + 1, limits).state
            assert times_seen(directory) == expected, changes
            assert state.rows_written == expected.total(), changes
        assert sorted(names(directory, "log")) == sorted(Path(path).name for path in state.live)
        if not executioner.struck:
            break
    assert changes > 8
