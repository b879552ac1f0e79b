"""Periodic items: when they are due, and their ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")

from rpcmq.core.queue.schedule import Periodic, Schedule

HOUR = 3600 * 1000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW = at("2026-11-23T12:00:00")


def test_an_item_is_due_at_its_times_with_their_ids() -> None:
    schedule = Schedule([Periodic("nightly", "0 3 * * *"), Periodic("often", "*/20 * * * *")])
    due = schedule.due(at("2026-11-23T02:30:00"), at("2026-11-23T03:00:00"))
    assert [(each.name, each.id.decode()) for each in due] == [
        ("often", "often@2026-11-23T02:40:00Z"), ("nightly", "nightly@2026-11-23T03:00:00Z"),
        ("often", "often@2026-11-23T03:00:00Z"),
    ]  # fmt: skip
    assert due[1].at == at("2026-11-23T03:00:00")
    assert schedule.due(at("2026-11-23T03:00:00"), at("2026-11-23T03:19:59")) == []
    assert schedule.next(at("2026-11-23T03:00:00")) == at("2026-11-23T03:20:00")


def test_the_hour_is_that_of_the_time_zone_and_a_change_of_the_clocks_makes_none_twice() -> None:
    schedule = Schedule([Periodic("nightly", "30 2 * * *", "Europe/Vienna")])
    ids = [
        each.id.decode()
        for day in range(24, 27)
        for each in schedule.due(at(f"2026-10-{day}T00:00:00") - 12 * HOUR, at(f"2026-10-{day}T00:00:00"))
        + schedule.due(at(f"2026-10-{day}T00:00:00"), at(f"2026-10-{day}T12:00:00"))
    ]
    # Vienna leaves summer time on the 25th at 03:00.
    assert ids == [
        "nightly@2026-10-24T00:30:00Z", "nightly@2026-10-25T00:30:00Z", "nightly@2026-10-26T01:30:00Z",
    ]  # fmt: skip
    assert [each.id for each in schedule.due(at("2026-03-28T20:00:00"), at("2026-03-29T06:00:00"))] == [
        b"nightly@2026-03-29T01:00:00Z"
    ]


def test_what_was_missed_for_long_is_not_made_up_for() -> None:
    schedule = Schedule([Periodic("hourly", "0 * * * *"), Periodic("always", "* * * * *")])
    due = schedule.due(NOW - 1000 * HOUR, NOW)
    assert sum(each.name == "hourly" for each in due) == 12
    assert [each.at for each in due if each.name == "always"] == [NOW - 60_000 * back for back in range(99, -1, -1)]


def test_an_item_that_is_due_in_years_is_no_trouble() -> None:
    schedule = Schedule([Periodic("leap", "0 0 29 2 *")])
    assert schedule.due(NOW - HOUR, NOW) == [] and schedule.next(NOW) == at("2028-02-29T00:00:00")
    assert Schedule([]).next(NOW) == 0


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ([Periodic("a", "61 * * * *")], "periodic item 'a': '61 * * * *' is no cron expression: Bad minute"),
        ([Periodic("a", "every day")], "periodic item 'a': 'every day' is no cron expression: it has not five fields"),
        ([Periodic("a", "* * * * * *")], "'* * * * * *' is no cron expression: it has not five fields"),
        ([Periodic("a", "0 0 30 2 *")], "'0 0 30 2 *' is no cron expression: Bad day-of-month"),
        ([Periodic("a", "0 3 * * *", "Europe/Nowhere")], "periodic item 'a': there is no time zone 'Europe/Nowhere'"),
        ([Periodic("a", "0 3 * * *", "../etc/passwd")], "there is no time zone"),
        ([Periodic("a@b", "0 3 * * *")], "must be a text of 1 to 200 bytes without an @, not 'a@b'"),
        ([Periodic("", "0 3 * * *")], "must be a text of 1 to 200 bytes"),
        ([Periodic("a", "0 3 * * *")] * 2, "there is more than one periodic item 'a'"),
    ],
)
def test_an_item_that_cannot_be_is_refused_by_name(entries: list[Periodic], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        Schedule(entries)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3 * HOUR), min_size=1, max_size=12), st.sampled_from(["*/7 * * * *", "13,51 */2 * * *"]))
def test_however_often_it_is_asked_each_time_is_told_once(steps: list[int], cron: str) -> None:
    schedule = Schedule([Periodic("a", cron, "Asia/Kolkata")])
    asked, now = [], NOW
    for step in steps:
        asked += schedule.due(now, now + step)
        now += step
    whole = [each for hour in range(0, 48, 6) for each in schedule.due(NOW + hour * HOUR, NOW + (hour + 6) * HOUR)]
    assert asked == [each for each in whole if each.at <= now]
