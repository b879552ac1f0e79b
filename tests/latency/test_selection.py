"""The records that a selection means."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rpcmq.errors import UsageError
from rpcmq.latency.selection import Selection, parse_filters, parse_selection, parse_time

NOW = 1_700_000_000.0
MORNING = datetime(2026, 3, 2, 6, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", NOW),
        ("-90min", NOW - 5400),
        ("-90m", NOW - 5400),
        ("-1.5h", NOW - 5400),
        ("-2d", NOW - 172_800),
        ("-30s", NOW - 30),
        ("1700000000.5", 1_700_000_000.5),
        ("2026-03-02T06:00", MORNING),
        ("2026-03-02 06:00:00Z", MORNING),
        ("2026-03-02T07:00+01:00", MORNING),
        ("2026-03-02", MORNING - 6 * 3600),
    ],
)
def test_a_time_is_read(text: str, time: float) -> None:
    assert parse_time(text, NOW) == time


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "-1w", "90min", "12", "2026-13-01", "06:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no time; expected one such as 2026-03-02T06:00"):
        parse_time(text, NOW)


def test_a_selection_is_read(tmp_path: Path) -> None:
    log = tmp_path / "a,b@c.d"
    log.mkdir()
    assert parse_selection(str(log), NOW) == Selection(log)
    assert parse_selection(f"{log}@-2h..-1h", NOW) == Selection(log, NOW - 7200, NOW - 3600)
    assert parse_selection(f"{log}@2026-03-02T06:00..", NOW) == Selection(log, MORNING)
    assert parse_selection(f"{log}@..-1h,router=r1,topic=compute", NOW) == Selection(
        log, None, NOW - 3600, {"router": "r1", "topic": "compute"}
    )
    assert parse_selection(f"{log},server=", NOW) == Selection(log, where={"server": ""})


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("/nothing", "is no directory"),
        ("@-1h", "is no directory"),
        ("@yesterday..now", "'yesterday' is no time"),
        ("@-1h..-2h", "'-1h' is not before '-2h'"),
        (",colour=red", "'colour=red': expected NAME=VALUE with one of router, exchange"),
        (",router=a,router=b", "router was given before, as 'a'"),
        (",router", "is no directory"),
    ],
)
def test_what_is_wrong_with_a_selection_is_named(tmp_path: Path, rest: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_selection(f"{tmp_path}{rest}", NOW)
    assert says in str(error.value)


def test_an_empty_selection_is_refused() -> None:
    with pytest.raises(UsageError, match="expected DIR"):
        parse_selection("", NOW)


def test_filters_need_a_value() -> None:
    assert parse_filters(["topic=a=b"]) == {"topic": "a=b"}
    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        parse_filters(["topic"])


@pytest.mark.parametrize("name", ["spool", "ready"])
def test_a_log_is_known_by_what_is_in_it(tmp_path: Path, name: str) -> None:
    assert not Selection(tmp_path).is_log
    (tmp_path / name).mkdir()
    assert Selection(tmp_path).is_log
