"""Hourly compaction: the same records, in files by hour, sorted."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rpcmq.latency import compact
from rpcmq.latency.manifest import read
from rpcmq.latency.retention import Limits
from tests.latency.logs import NOW, names, rows, ship, times_seen
from tests.latency.spools import Sent, many, spooled

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
