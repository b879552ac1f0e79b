"""The times of cron expressions."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")

from rpcmq.core.queue.schedule import Schedule

HOUR = 3600 * 1000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def shown(times: list[int]) -> list[str]:
    return [f"{datetime.fromtimestamp(time / 1000, UTC):%m-%d %H:%M}" for time in times]


NOW = at("2026-11-23T12:00:00")


def test_the_next_time_is_later_than_now() -> None:
    nightly = Schedule("0 3 * * *")
    assert nightly.next(NOW) == at("2026-11-24T03:00:00") == nightly.next(at("2026-11-24T02:59:59") + 999)
    assert nightly.next(at("2026-11-24T03:00:00")) == at("2026-11-25T03:00:00")
    assert Schedule("*/10 * * * * *").next(NOW + 1) == NOW + 10_000
    assert Schedule("0 0 29 2 *").next(NOW) == at("2028-02-29T00:00:00")


def test_the_times_that_have_passed() -> None:
    often = Schedule("*/20 * * * *")
    assert shown(often.passed(at("2026-11-23T02:30:00"), at("2026-11-23T03:20:00"), 100)) == [
        "11-23 02:40", "11-23 03:00", "11-23 03:20",
    ]  # fmt: skip
    assert often.passed(NOW, NOW + 20 * 60_000 - 1, 100) == []
    assert shown(often.passed(at("2020-01-01T00:00:00"), NOW + 1, 2)) == ["11-23 11:40", "11-23 12:00"]
    assert shown(Schedule("0 0 1 1 *").passed(at("2020-01-01T00:00:00"), NOW, 1)) == ["01-01 00:00"]
    assert Schedule("0 0 29 2 *").passed(NOW - HOUR, NOW, 100) == []


def test_the_hour_is_that_of_the_time_zone_and_a_change_of_the_clocks_makes_none_twice() -> None:
    nightly = Schedule("30 2 * * *", "Europe/Vienna")
    # Vienna leaves summer time on the 25th at 03:00, and goes back to it on March 28th at 02:00.
    autumn = nightly.passed(at("2026-10-23T12:00:00"), at("2026-10-26T12:00:00"), 100)
    assert shown(autumn) == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]
    assert nightly.shown(autumn[1]) == "2026-10-25T02:30:00+02:00"
    assert nightly.shown(autumn[2]) == "2026-10-26T02:30:00+01:00"
    # Asked in the second of both hours: it was in the first.
    assert nightly.next(at("2026-10-25T01:10:00")) == autumn[2]
    spring = nightly.passed(at("2026-03-28T12:00:00"), at("2026-03-30T12:00:00"), 100)
    assert shown(spring) == ["03-29 01:00", "03-30 00:30"]
    hourly = Schedule("0 * * * *", "Europe/Vienna")
    assert len(hourly.passed(at("2026-10-24T22:00:00"), at("2026-10-25T10:00:00"), 100)) == 12


@pytest.mark.parametrize(
    ("cron", "zone", "text"),
    [
        ("61 * * * *", "UTC", "'61 * * * *' is no cron expression: Bad minute: there are 0 to 59"),
        ("61 * * * * *", "UTC", "Bad second: there are 0 to 59"),
        ("0 24 * * *", "UTC", "Bad hour: there are 0 to 23"),
        ("0 0 * 13 *", "UTC", "Bad month: there are 1 to 12, or JAN to DEC"),
        ("0 0 * * 8", "UTC", "Bad day-of-week: there are 0 to 7, from Sunday to Sunday, or SUN to SAT"),
        ("every day", "UTC", "'every day' is no cron expression: it must have five fields (minute hour day month "),
        ("0 0 30 2 *", "UTC", "'0 0 30 2 *' is no cron expression: Bad day-of-month: there are 1 to 31, in one of"),
        ("1," * 200 + "1 * * * *", "UTC", "a cron expression is a text of at most 200 bytes"),
        ("0 3 * * *", "Europe/Nowhere", "there is no time zone 'Europe/Nowhere' on the machine of the queue server"),
        ("0 3 * * *", "../etc/passwd", "there is no time zone '../etc/passwd'"),
        ("0 3 * * *", "Europe", "there is no time zone 'Europe'"),
    ],
)
def test_what_has_no_times_is_refused(cron: str, zone: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Schedule(cron, zone)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 3 * HOUR), min_size=1, max_size=12),
    st.sampled_from(["*/7 * * * *", "13,51 */2 * * *", "30 2 * * *", "15,45 1-3 * * *", "*/40 * * * * *"]),
    st.sampled_from(["Asia/Kolkata", "Europe/Vienna", "America/New_York", "UTC"]),
    st.sampled_from([NOW, at("2026-10-24T20:00:00"), at("2026-03-28T20:00:00"), at("2026-11-01T02:00:00")]),
)
def test_however_often_it_is_asked_each_time_comes_once(steps: list[int], cron: str, zone: str, begin: int) -> None:
    schedule = Schedule(cron, zone)
    asked, now = [], begin
    for step in steps:
        asked += schedule.passed(now, now + step, 10_000)
        now += step
    assert asked == schedule.passed(begin, now, 10_000 * len(steps))
    walked, time = [], schedule.next(begin)
    while time <= now:
        walked.append(time)
        time = schedule.next(time)
    assert walked == asked == sorted(set(asked))
