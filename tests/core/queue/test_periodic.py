"""Periodic items: each time is put once, whoever dies, and whatever becomes of the clock."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")

from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.periodic import Periodic, PeriodicKey
from rpcmq.core.queue.periodic_homes import MOST_HOMES, Home, PeriodicHomes
from rpcmq.core.queue.periodic_puts import MOST, PeriodicPuts
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.queues import NewItem
from rpcmq.store.contract import Lane, Note, Stored
from tests.core.queue.virtual_store import World

MINUTE, HOUR = 60_000, 3_600_000
#: 2026-11-23T12:00:00Z
NOON = 1_795_435_200_000
KEY = PeriodicKey("billing", "often")
OFTEN = Periodic(*KEY, "* * * * *", "UTC", "last", 0, 0.0, "", "", b"work")
BESIDE = Note("beside", b"1")


class PeriodicWorld(World):
    """A queue server with periodic items, and a clock on the wall that may be set."""

    def __init__(self, begins: float = 0.0) -> None:
        self.clock = NOON
        self.delay = begins
        self.warnings: list[str] = []
        super().__init__()

    def begin(self) -> None:
        self.puts: PeriodicPuts | None = None
        super().begin()
        notes = self.store.recovered.notes
        self.puts = PeriodicPuts(self.queues, notes, self.now + self.delay, self.clock, self.warnings.append)
        self.run()

    def tick(self) -> None:
        self.queues.tick(self.now)
        if self.puts is not None:
            self.puts.tick(self.now, self.clock)

    def run(self) -> None:
        self.tick()
        while self.port.waiting:
            self.port.answer()
            self.tick()

    def pass_by(self, milliseconds: int) -> None:
        self.clock += milliseconds
        self.advance(milliseconds / 1000)

    def declare(self, periodic: Periodic = OFTEN) -> dict[str, Any]:
        assert self.puts is not None
        rows: list[dict[str, Any]] = []
        self.puts.declare(periodic, self.clock, BESIDE, rows.append)
        self.run()
        (row,) = rows
        return row

    def row(self) -> dict[str, Any]:
        assert self.puts is not None
        (row,) = self.puts.rows()
        return row

    def times(self, name: str = "often") -> list[str]:
        """The times for which items were put, by their ids."""
        items = self.store.read(Lane("billing", 0), 0, 10_000, 1 << 30)
        ids = [item.id.decode() for item in items if isinstance(item, Stored)]
        return [id.removeprefix(f"{name}@2026-11-").removesuffix("Z") for id in ids if id.startswith(f"{name}@")]


def test_an_item_is_put_at_each_of_its_times() -> None:
    world = PeriodicWorld()
    assert world.declare(replace(OFTEN, zone="Europe/Vienna")) == {
        "queue": "billing", "name": "often", "cron": "* * * * *", "zone": "Europe/Vienna", "missed": "last",
        "next": "2026-11-23T13:01:00+01:00", "last": None, "why": "",
    }  # fmt: skip
    world.pass_by(59_999)
    assert world.times() == []
    world.pass_by(1)
    world.pass_by(30_000)
    assert world.times() == ["23T12:01:00"]
    row = world.row()
    assert (row["next"], row["last"]) == ("2026-11-23T13:02:00+01:00", "2026-11-23T13:01:00+01:00")
    world.pass_by(30_000)
    assert world.times() == ["23T12:01:00", "23T12:02:00"]
    given = world.take()
    assert given is not None and given.message == b"work"


def test_the_deadline_is_the_next_time_by_the_clock() -> None:
    world = PeriodicWorld()
    assert world.puts is not None and world.puts.next_deadline(world.now, world.clock) == float("inf")
    world.declare()
    world.pass_by(20_000)
    assert world.puts.next_deadline(world.now, world.clock) == pytest.approx(world.now + 40)
    world.clock += 10_000
    assert world.puts.next_deadline(world.now, world.clock) == pytest.approx(world.now + 30)


def test_its_items_have_its_options() -> None:
    world = PeriodicWorld()
    world.declare(replace(OFTEN, priority=7, expires=90.0, series="s", unique="u"))
    world.pass_by(MINUTE)
    world.pass_by(MINUTE)
    items = world.store.read(Lane("billing", 7), 0, 10, 1 << 20)
    assert len(items) == 1, "while the first one waits there is no other"
    given = world.take()
    assert given is not None and (given.item.lane.priority, given.series) == (7, b"s")
    world.pass_by(MINUTE)
    world.now += 200
    assert world.take() is None
    assert world.queue.tally.dead == 1, "it has expired"


@pytest.mark.parametrize(
    ("missed", "times"),
    [
        ("last", ["24T02:00:00"]), ("skip", []),
        ("all", [f"{hour // 24 + 23}T{hour % 24:02}:00:00" for hour in range(13, 27)]),
    ],
)  # fmt: skip
def test_times_that_pass_while_nobody_is_there(missed: str, times: list[str]) -> None:
    world = PeriodicWorld()
    world.declare(replace(OFTEN, cron="0 * * * *", missed=missed))
    world.clock += 14 * HOUR + 10 * MINUTE
    world.kill()
    assert world.times() == times
    world.kill()
    assert world.times() == times, "they are not made up for again"
    world.pass_by(50 * MINUTE)
    assert world.times() == [*times, "24T03:00:00"]


def test_no_more_than_a_hundred_times_are_made_up_for() -> None:
    world = PeriodicWorld()
    world.declare(replace(OFTEN, missed="all"))
    world.clock += 1000 * HOUR
    world.kill()
    assert len(world.times()) == 100


def test_a_time_that_has_just_passed_is_not_missed() -> None:
    world = PeriodicWorld()
    world.declare(replace(OFTEN, cron="0 * * * *", missed="skip"))
    world.clock += HOUR + 50_000
    world.kill()
    assert world.times() == ["23T13:00:00"]


def test_nothing_is_put_before_the_others_were_heard() -> None:
    world = PeriodicWorld()
    world.declare()
    world.delay = 5.0
    world.clock += MINUTE
    world.kill()
    world.pass_by(4900)
    assert world.times() == []
    assert world.puts is not None and world.puts.next_deadline(world.now, world.clock) == pytest.approx(world.now + 0.1)
    world.pass_by(100)
    assert world.times() == ["23T12:01:00"]


def test_a_clock_that_is_put_back_makes_no_time_twice() -> None:
    world = PeriodicWorld()
    world.declare()
    world.pass_by(MINUTE)
    world.pass_by(MINUTE)
    world.clock -= HOUR
    for _ in range(60):
        world.pass_by(MINUTE)
    assert world.times() == ["23T12:01:00", "23T12:02:00"] and world.warnings == []
    world.pass_by(MINUTE)
    assert world.times()[2:] == ["23T12:03:00"]


def test_a_clock_that_is_put_forward_makes_up_for_what_it_has_left_out() -> None:
    world = PeriodicWorld()
    world.declare(replace(OFTEN, missed="all"))
    world.clock += 3 * MINUTE
    world.run()
    assert world.times() == ["23T12:01:00", "23T12:02:00", "23T12:03:00"]


def test_a_clock_that_was_years_ahead_stops_nothing_for_years() -> None:
    world = PeriodicWorld()
    world.declare()
    world.clock += 30_000 * HOUR
    world.run()
    world.clock -= 30_000 * HOUR
    world.run()
    assert "periodic item 'often' of queue 'billing' begins anew: it was put for a time" in world.warnings[0]
    world.pass_by(MINUTE)
    assert world.times()[-1] == "23T12:01:00"


def test_a_queue_that_takes_nothing_gets_it_later() -> None:
    world = PeriodicWorld()
    world.declare()
    Operators(world.queues).drain("billing", lambda: None)
    for _ in range(3):
        world.pass_by(MINUTE)
    assert world.times() == [] and "it is draining" in world.row()["why"]
    assert len(world.warnings) == 1, "it is said once"
    Operators(world.queues).resume("billing", lambda: None)
    world.pass_by(5000)
    assert world.times() == ["23T12:03:00"] and world.row()["why"] == ""


def test_an_item_with_its_id_that_somebody_else_has_put_stops_nothing() -> None:
    world = PeriodicWorld()
    world.declare()
    world.put(b"other", id=b"often@2026-11-23T12:01:00Z", digest=b"d")
    world.pass_by(MINUTE)
    assert "an item that was put otherwise has the id 'often@2026-11-23T12:01:00Z'" in world.warnings[0]
    world.pass_by(MINUTE)
    assert world.times() == ["23T12:01:00", "23T12:02:00"]


def test_one_that_is_declared_again_forgets_nothing_unless_its_times_are_others() -> None:
    world = PeriodicWorld()
    world.declare()
    world.clock += 10 * MINUTE + 1000
    world.delay = 5.0
    world.kill()
    world.declare(replace(OFTEN, message=b"other"))
    world.pass_by(5000)
    assert world.times() == ["23T12:10:00"]
    given = world.take()
    assert given is not None and given.message == b"other"
    world.clock += 10 * MINUTE
    world.kill()
    world.declare(replace(OFTEN, cron="*/2 * * * *"))
    world.pass_by(5000)
    assert world.times() == ["23T12:10:00"]
    world.pass_by(2 * MINUTE)
    assert world.times() == ["23T12:10:00", "23T12:22:00"]


def test_one_that_is_removed_is_put_no_more() -> None:
    world = PeriodicWorld()
    world.declare()
    world.pass_by(MINUTE)
    assert world.puts is not None
    answers: list[bool] = []
    world.puts.remove(KEY, BESIDE, answers.append)
    world.puts.remove(KEY, BESIDE, answers.append)
    world.pass_by(MINUTE)
    world.kill()
    world.pass_by(MINUTE)
    assert answers == [True, False] and world.times() == ["23T12:01:00"] and len(world.puts) == 0


def test_a_queue_of_a_periodic_item_is_known_from_the_start() -> None:
    world = PeriodicWorld()
    world.declare(replace(OFTEN, queue="with a space"))
    world.kill()
    assert "with a space" in world.queues.names()


def test_one_of_another_version_is_left_alone() -> None:
    world = PeriodicWorld()
    world.declare()
    world.store.apply([Note("periodic billing\nnew", b'{"queue": "billing"}')])
    world.kill()
    assert world.row()["name"] == "often" and "another version has kept it" in world.warnings[0]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"name": "a@b"}, "a periodic item must be a printable text of 1 to 200 bytes without an @, not 'a@b'"),
        ({"name": ""}, "must be a printable text"),
        ({"name": "a\nb"}, "must be a printable text"),
        ({"missed": "none"}, "missed must be one of last, skip, all, not 'none'"),
        ({"expires": float("nan")}, "expires must be a number of seconds, not nan"),
        ({"message": bytes(65537)}, "the message of a periodic item must have 65536 bytes at the most, not 65537"),
        ({"cron": "0 0 */30 2 MON#5"}, "'0 0 */30 2 MON#5' has no time in the next 50 years"),
        ({"cron": "99 * * * *"}, "'99 * * * *' is no cron expression: Bad minute"),
        ({"zone": "nowhere"}, "there is no time zone 'nowhere'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong: dict[str, Any], text: str) -> None:
    world = PeriodicWorld()
    with pytest.raises(ValueError, match=re.escape(text)):
        world.declare(replace(OFTEN, **wrong))
    assert world.puts is not None and len(world.puts) == 0 and not world.port.waiting


def test_an_owner_has_so_many_at_the_most() -> None:
    world = PeriodicWorld()
    for number in range(MOST):
        world.declare(replace(OFTEN, name=str(number), cron="0 3 * * *"))
    with pytest.raises(ValueError, match="an owner has 1000 periodic items at the most, of 16777216 bytes together"):
        world.declare()
    world.declare(replace(OFTEN, name="7"))
    other = PeriodicWorld()
    for number in range(191):
        other.declare(replace(OFTEN, name=str(number), message=bytes(1 << 16)))
    with pytest.raises(ValueError, match="16777216 bytes together"):
        other.declare(replace(OFTEN, message=bytes(1 << 16)))


class _History:
    """Random lives of a queue server, each of which ends in the middle of something."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._world = PeriodicWorld()
        self._missed = self._random.choice(("last", "all"))
        self._put: list[bytes] = []
        self._world.declare(replace(OFTEN, missed=self._missed, cron="* * * * *"))

    def run(self) -> None:
        random, world = self._random, self._world
        for _ in range(120):
            choice = random.random()
            if choice < 0.5:
                world.clock += random.choice((1000, 20_000, 90_000, 200_000))
                world.now += 1.0
                world.tick()
            elif choice < 0.8:
                for _ in range(random.randrange(4)):
                    if world.port.waiting:
                        world.port.answer()
            elif choice < 0.85:
                world.port.reopen(random.randrange(4))
            elif choice < 0.9:
                assert world.puts is not None
                periodic = replace(OFTEN, missed=self._missed, message=b"%d" % random.randrange(9))
                world.puts.declare(periodic, world.clock, BESIDE, lambda row: None)
            else:
                self._kill()
        self._kill()
        world.pass_by(MINUTE)
        # What the store has is all that counts: ids are remembered for a day only, and were forgotten at each death.
        items = world.store.read(Lane("billing", 0), 0, 10_000, 1 << 30)
        counts = Counter(item.id for item in items if isinstance(item, Stored))
        assert set(counts.values()) == {1}
        times = world.times()
        assert times == sorted(times)
        if self._missed == "all":
            assert len(times) == (world.clock - NOON) // MINUTE
        assert times[-1] == times_until(world.clock)

    def _kill(self) -> None:
        world = self._world
        for _ in range(self._random.randrange(3)):
            if world.port.waiting:
                # The store has done it, and the answer is lost.
                step, _ = world.port.waiting.popleft()
                step()
        world.store._ids.clear()
        world.store.reopen()
        world.begin()


def times_until(clock: int) -> str:
    at = clock // MINUTE * MINUTE - NOON
    day, rest = divmod(at + 12 * HOUR, 24 * HOUR)
    return f"{23 + day}T{rest // HOUR:02}:{rest % HOUR // MINUTE:02}:00"


@pytest.mark.parametrize("seed", range(60))
def test_each_time_is_put_once_whenever_the_queue_server_dies(seed: int) -> None:
    _History(seed).run()


def test_a_full_queue_is_asked_again_until_it_has_room() -> None:
    world = PeriodicWorld()
    world.queues.declare(world.now, "billing", Policy(max_items=1), lambda: None)
    world.queues.put(world.now, "billing", [NewItem(b"first", id=b"1")], lambda verdicts: None)
    world.declare()
    world.pass_by(MINUTE)
    assert world.times() == [] and "queue 'billing' is full (max_items = 1)" in world.row()["why"]
    given = world.take()
    assert given is not None and world.queue.done(given.fence)
    world.run()
    world.pass_by(5000)
    assert world.times() == ["23T12:01:00"]


# --- homes -----------------------------------------------------------------------------------


def test_of_two_homes_the_later_counts_and_is_remembered() -> None:
    homes = PeriodicHomes({})
    assert homes.owner(KEY) == "" and homes.next(KEY, "a", 5) == Home(5, "a")
    assert homes.learn(KEY, Home(5, "a")) and not homes.learn(KEY, Home(5, "a")) and not homes.learn(KEY, Home(4, "b"))
    assert homes.next(KEY, "b", 3) == Home(6, "b"), "a clock that is behind makes no earlier one"
    assert homes.learn(KEY, Home(6, "b")) and homes.owner(KEY) == "b"
    note = PeriodicHomes.note(KEY, Home(6, "b"))
    again = PeriodicHomes({note.name: note.value})
    assert again.known() == homes.known() == [("billing", "often", 6, "b")]
    assert again.learn(KEY, Home(7, "")) and again.owner(KEY) == ""


def test_two_owners_agree_whoever_hears_first() -> None:
    one, two = PeriodicHomes({}), PeriodicHomes({})
    for homes, first, second in ((one, "a", "b"), (two, "b", "a")):
        homes.learn(KEY, Home(5, first))
        homes.learn(KEY, Home(5, second))
    assert one.owner(KEY) == two.owner(KEY) == "b"


def test_what_was_removed_is_forgotten_where_there_is_too_much() -> None:
    homes = PeriodicHomes({})
    for number in range(MOST_HOMES):
        key = PeriodicKey("billing", str(number))
        assert homes.has_room(key) and homes.learn(key, Home(number, "" if number in (5, 9) else "a"))
    assert homes.forget_oldest() == [] and homes.has_room(KEY)
    homes.learn(KEY, Home(1, "a"))
    (note,) = homes.forget_oldest()
    assert note.value == b"" and note.name.endswith("\n5")
    homes.learn(PeriodicKey("billing", "more"), Home(1, "a"))
    assert len(homes.forget_oldest()) == 1
    assert not homes.has_room(PeriodicKey("billing", "x")) and homes.has_room(KEY)
