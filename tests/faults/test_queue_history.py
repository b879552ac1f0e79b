"""The checks of a queue's history find what they are to find."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.drill.history import Event
from tests.faults.queue_history import History, check
from tests.faults.queue_roles import Seen

PUTTING = Event(1.0, "p0#1", Seen.PUTTING, "p0-1", {"key": None})
ACCEPTED = Event(1.1, "p0#1", Seen.ACCEPTED, "p0-1", {"owner": "a", "number": 1, "shown": "p0-1"})
BEGIN = Event(2.0, "w0#1", Seen.BEGIN, "p0-1", {"attempt": 1, "fence": [1, 1], "owner": "a", "key": None})
END = Event(3.0, "w0#1", Seen.END, "p0-1", {"fence": [1, 1], "outcome": "ok", "left": 2.0})
KILLED = Event(2.5, "world", Seen.FAULT, "kill", {"target": "w0#1"})
WELL = (PUTTING, ACCEPTED, BEGIN, END)
AGAIN = BEGIN._replace(at=4.0, process="w1#1", fields=BEGIN.fields | {"attempt": 2, "fence": [1, 2]})
AGAIN_ENDS = END._replace(at=5.0, process="w1#1", fields=END.fields | {"fence": [1, 2]})


def found(*events: Event, effects: int = 1, **more: Any) -> list[str]:
    return [each.partition(":")[0] for each in check(History(sorted(events), {"p0-1": effects}, **more))]


def keyed(event: Event, **fields: Any) -> Event:
    return event._replace(fields=event.fields | {"key": "k"} | fields)


def test_what_went_well_has_no_fault() -> None:
    assert found(*WELL) == []
    assert found(*WELL, AGAIN, AGAIN_ENDS) == []


@pytest.mark.parametrize(
    ("expected", "events"),
    [
        (["lost"], (PUTTING, ACCEPTED)),
        (["lost"], (PUTTING, ACCEPTED, BEGIN, END._replace(fields=END.fields | {"outcome": "failed"}))),
        (["refused"], (PUTTING, Event(1.1, "p0#1", Seen.REFUSED, "p0-1", {}), BEGIN, END)),
        (["from nowhere"], (BEGIN, END)),
        (["never ended"], (*WELL, AGAIN)),
        (["fence"], (*WELL, AGAIN._replace(fields=BEGIN.fields), END._replace(at=5.0, process="w1#1"))),
        (["at the same time"], (*WELL, AGAIN._replace(at=2.5), AGAIN_ENDS)),
        (["at the same time"], (PUTTING, ACCEPTED, BEGIN, KILLED, AGAIN._replace(at=2.1), AGAIN_ENDS)),
    ],
)
def test_each_rule_finds_its_break(expected: list[str], events: tuple[Event, ...]) -> None:
    assert found(*events) == expected


def test_an_effect_is_there_once() -> None:
    assert found(*WELL, effects=2) == ["effects"]
    assert check(History(WELL, {})) == ["effects: p0-1 is done without its effect"]


def test_what_is_left_is_no_success() -> None:
    assert found(*WELL, left=1) == ["not drained"]


def test_a_dead_item_is_none_that_was_lost() -> None:
    assert found(PUTTING, ACCEPTED, dead=frozenset(["p0-1"])) == []


def test_two_may_run_where_the_first_one_had_lost_its_lease() -> None:
    late = END._replace(at=4.5, fields=END.fields | {"left": 0.0})
    assert found(PUTTING, ACCEPTED, BEGIN, late, AGAIN, AGAIN_ENDS) == []
    stopped = Event(2.1, "world", Seen.FAULT, "stop", {"target": "w0#1"})
    dead = KILLED._replace(at=4.5)
    assert found(PUTTING, ACCEPTED, BEGIN, stopped, dead, AGAIN, AGAIN_ENDS) == []
    assert found(PUTTING, ACCEPTED, BEGIN, dead, AGAIN, AGAIN_ENDS) == ["at the same time"]


def test_items_of_a_series_run_one_at_a_time_at_one_owner() -> None:
    other = {"item": "p0-2", "fence": [1, 2]}
    second = [
        PUTTING._replace(id="p0-2"),
        keyed(BEGIN, **other)._replace(id="p0-2", process="w1#1", at=2.5),
        keyed(END, fence=[1, 2])._replace(id="p0-2", process="w1#1", at=2.9),
    ]
    events = [PUTTING, ACCEPTED, keyed(BEGIN), END, *second]
    assert [each.partition(":")[0] for each in check(History(sorted(events), {"p0-1": 1, "p0-2": 1}))] == [
        "at the same time"
    ]
    second[1] = keyed(BEGIN, owner="b", **other)._replace(id="p0-2", process="w1#1", at=2.5)
    events = [PUTTING, ACCEPTED, keyed(BEGIN), END, *second]
    assert check(History(sorted(events), {"p0-1": 1, "p0-2": 1})) == []


def test_shares_and_the_time_to_drain_count_from_when_all_was_whole() -> None:
    whole = Event(3.5, "world", Seen.WHOLE, "", {})
    history = History([*WELL, whole, AGAIN._replace(id="p0-2"), AGAIN_ENDS._replace(id="p0-2")])
    assert history.shares() == {"w1": 1} and history.seconds_to_drain() == 1.5


def series(*began: tuple[str, int, float], attempt: int = 1, owner: str = "a", left: float = 2.0) -> list[str]:
    """What is found in items of one series: name, number in the store, and when it was begun."""
    events = []
    for item, number, at in began:
        fields = {"attempt": attempt, "fence": [1, int(at * 10)], "owner": owner, "key": "k", "left": left}
        events += [
            PUTTING._replace(id=item),
            ACCEPTED._replace(id=item, fields=ACCEPTED.fields | {"number": number}),
            BEGIN._replace(id=item, at=at, fields=fields),
            END._replace(id=item, at=at + 0.05, fields=END.fields | {"fence": fields["fence"]}),
        ]
    effects = {item: 1 for item, _, _ in began}
    return [each.partition(":")[0] for each in check(History(sorted(events, key=lambda each: each.at), effects))]


def test_items_of_a_series_are_begun_in_the_order_of_their_puts() -> None:
    assert series(("x", 1, 2.0), ("y", 2, 3.0), ("z", 3, 4.0)) == []
    assert series(("x", 1, 3.0), ("y", 2, 2.0), ("z", 3, 4.0)) == ["out of order"]
    # These were begun before, or too late, or nobody knows when they were put, or they are of another owner.
    assert series(("x", 1, 3.0), ("y", 2, 2.0), attempt=2) == []
    assert series(("x", 1, 3.0), ("y", 2, 2.0), left=0.0) == []
    assert series(("x", 0, 3.0), ("y", 2, 2.0)) == []
    assert series(("x", 1, 3.0), ("y", 2, 2.0), owner="b") == []


_SHARES = [((10, 10), True), ((12, 9), True), ((13, 7), False), ((20, 0), False)]


@pytest.mark.parametrize(("shares", "is_equal"), _SHARES)
def test_equal_workers_have_equal_shares(shares: tuple[int, int], is_equal: bool) -> None:
    events = [Event(1.0, "world", Seen.EQUAL, "", {"workers": ["w0", "w1"]})]
    effects: dict[str, int] = {}
    for worker, share in enumerate(shares):
        for number in range(share):
            item, process, fence = f"p0-{worker}{number}", f"w{worker}#1", [1, len(effects)]
            effects[item] = 1
            events += [
                PUTTING._replace(id=item),
                BEGIN._replace(id=item, process=process, fields=BEGIN.fields | {"fence": fence}),
                END._replace(id=item, process=process, fields=END.fields | {"fence": fence}),
            ]
    found = check(History(sorted(events, key=lambda each: each.at), effects))
    assert found == ([] if is_equal else [f"shares: equal workers have done {{'w0': {shares[0]}, 'w1': {shares[1]}}}"])
    # Where nobody says so they need not be.
    assert check(History(sorted(events[1:], key=lambda each: each.at), effects)) == []
