"""Retention: the oldest first, and counted."""

from __future__ import annotations

import os
from pathlib import Path

from rpcmq.latency.manifest import read
from rpcmq.latency.retention import Limits
from rpcmq.latency.ship import account
from tests.latency.logs import NOW, names, rows, ship
from tests.latency.spools import many, spooled

HOUR = 3600
DAY = 24 * HOUR
KEPT = Limits(ready=100 * DAY)


def shipped_daily(directory: Path, days: int = 4) -> None:
    for day in range(days):
        spooled(directory, many(1 + day * 100, 100), segment=day + 1)
        ship(directory, NOW + day * DAY, KEPT)


def test_records_go_when_they_were_shipped_too_long_ago(tmp_path: Path) -> None:
    shipped_daily(tmp_path)

    state = ship(tmp_path, NOW + 3 * DAY + HOUR, Limits(age=1.5 * DAY)).state

    assert sorted({(row["seq"] - 1) // 100 for row in rows(tmp_path)}) == [2, 3]
    assert (state.rows_retired, state.files_retired) == (200, 2)
    assert account(state)["records"]["live"] == 200


def test_the_oldest_go_when_they_are_too_much(tmp_path: Path) -> None:
    shipped_daily(tmp_path)
    ship(tmp_path, NOW + 3 * DAY + HOUR, Limits(ready=0))
    ship(tmp_path, NOW + 3 * DAY + HOUR + 1, Limits(ready=0))
    live = sorted(read(tmp_path).live.values(), key=lambda file: file.at)
    assert len(live) == 4

    state = ship(tmp_path, NOW + 3 * DAY + HOUR + 2, Limits(bytes=sum(f.bytes for f in live[1:]))).state

    assert sorted(state.live) == sorted(file.path for file in live[1:])
    assert state.bytes_retired == live[0].bytes
    assert not (tmp_path / live[0].path).exists()


def test_what_is_in_the_log_twice_goes_first(tmp_path: Path) -> None:
    shipped_daily(tmp_path)
    ship(tmp_path, NOW + 3 * DAY + HOUR, KEPT)
    assert len(names(tmp_path, "ready")) == 4
    size = sum(file.bytes for file in read(tmp_path).live.values())

    ship(tmp_path, NOW + 3 * DAY + HOUR, KEPT._replace(bytes=size))

    assert names(tmp_path, "ready") == []
    assert len(rows(tmp_path)) == 400


def test_empty_directories_of_hours_go_too(tmp_path: Path) -> None:
    shipped_daily(tmp_path, 2)
    ship(tmp_path, NOW + DAY + HOUR)

    ship(tmp_path, NOW + 9 * DAY, Limits(age=DAY, ready=0))

    assert not list((tmp_path / "log").rglob("*"))
    assert rows(tmp_path) == []


def test_the_quarantine_is_bounded_too(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    for number in range(3):
        path = tmp_path / "spool" / f"other-{number}"
        path.write_bytes(bytes(10_000))
        os.utime(path, (NOW + number, NOW + number))
    ship(tmp_path)
    for path in (tmp_path / "quarantine").glob("*.json"):
        os.utime(path, (NOW + 1, NOW + 1))

    state = ship(tmp_path, NOW + 10, Limits(bytes=25_000)).state

    assert "other-0" not in names(tmp_path, "quarantine")
    assert "other-2" in names(tmp_path, "quarantine")
    assert state.files_quarantined == 3
    ship(tmp_path, NOW + DAY, Limits(age=HOUR))
    assert names(tmp_path, "quarantine") == []
