"""The contract of a store, of each implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rpcmq.store.contract import (
    KEPT_OVERHEAD,
    Bury,
    Done,
    Expire,
    Forget,
    Keep,
    Lane,
    Maker,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Release,
    Revive,
    Store,
    Stored,
    Verdict,
)
from rpcmq.store.postgres import PostgresStore
from rpcmq.store.sqlite import SqliteStore
from tests.store.memory_store import MemoryStore
from tests.store.random_changes import RandomChanges, content_of, differences

LANE, URGENT = Lane("billing", 0), Lane("billing", 9)
KNOWN, OTHER = Verdict(is_known=True), Verdict(is_known=True, is_other=True)
MANY = (1000, 1 << 20)

Reopen = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Opens the store, again after it was opened before."""
    opened: list[Store] = []
    database = request.getfixturevalue("database") if request.param == "postgres" else ""

    def open_it() -> Store:
        if request.param == "memory":
            if opened:
                opened[0].reopen()  # type: ignore[attr-defined]
            else:
                opened.append(MemoryStore())
            return opened[0]
        if opened:
            opened.pop().close()
        if request.param == "postgres":
            opened.append(PostgresStore(database, "a"))
        else:
            opened.append(SqliteStore(tmp_path / "queue.db", segment_items=8))
        return opened[0]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def store(reopen: Reopen) -> Store:
    """An empty store."""
    return reopen()


def put(count: int, lane: Lane = LANE, due: int = 0, body: bytes = b"body") -> Put:
    return Put(lane, body, at=1, due=due, maker=Maker(7, count))


def numbers(items: object) -> list[int]:
    assert isinstance(items, list)
    return [each.number for each in items]


def test_items_are_read_in_their_order_and_by_lane(store: Store) -> None:
    verdicts = store.apply([put(1), put(2, URGENT), put(3)])
    assert verdicts == [Verdict(1), Verdict(1), Verdict(2)]
    assert numbers(store.read(LANE, 0, *MANY)) == [1, 2]
    assert numbers(store.read(LANE, 1, *MANY)) == [2]
    (item,) = store.read(URGENT, 0, *MANY)
    assert isinstance(item, Stored)
    assert (item.lane, item.maker, item.body, item.state, item.at) == (URGENT, Maker(7, 2), b"body", b"", 1)


def test_no_more_is_read_than_was_asked_for(store: Store) -> None:
    store.apply([put(count, body=bytes(100)) for count in range(1, 31)])
    assert numbers(store.read(LANE, 0, 3, 1 << 20)) == [1, 2, 3]
    assert numbers(store.read(LANE, 3, 1000, 150)) == [4, 5]
    assert numbers(store.read(LANE, 5, 1000, 1)) == [6]
    assert numbers(store.read(LANE, 6, 1000, 2400)) == list(range(7, 31))


def test_an_id_is_put_once(store: Store) -> None:
    given = Put(LANE, b"a", 1, id=b"invoice-17", digest=b"A")
    assert store.apply([put(1), given]) == [Verdict(1), Verdict(2)]
    assert store.apply([put(1), given, given._replace(body=b"b", digest=b"B")]) == [KNOWN, KNOWN, OTHER]
    # Another queue has ids of its own, another priority of the same queue has not.
    assert store.apply([given._replace(lane=Lane("images", 0)), given._replace(lane=URGENT)]) == [Verdict(1), KNOWN]
    assert store.apply([put(2), put(2)]) == [Verdict(3), KNOWN]


def test_an_id_is_known_after_its_item_is_done_and_after_the_next_opening(reopen: Reopen) -> None:
    store = reopen()
    given = Put(LANE, b"a", 1, id=b"invoice-17", digest=b"A")
    store.apply([put(count) for count in range(1, 30)])
    store.apply([given])
    store.apply([Done(LANE, number) for number in range(1, 31)])
    again = reopen()
    assert again.recovered.ready[LANE] == 0 and again.recovered.epoch == 2
    assert again.apply([put(29), put(5), given, put(30)]) == [KNOWN, KNOWN, KNOWN, Verdict(31)]


def test_what_is_done_is_read_no_more(reopen: Reopen) -> None:
    store = reopen()
    store.apply([put(count) for count in range(1, 21)])
    store.apply([Done(LANE, number) for number in (*range(1, 18), 19)])
    assert numbers(store.read(LANE, 0, *MANY)) == [18, 20]
    assert store.apply([Done(LANE, 3), Done(LANE, 99), Done(URGENT, 1), Postpone(LANE, 3, 5, b"")]) == [Verdict()] * 4
    again = reopen()
    assert numbers(again.read(LANE, 0, *MANY)) == [18, 20]
    assert again.recovered.ready == {LANE: 2}
    assert again.apply([put(21)]) == [Verdict(21)]


def test_postponed_items_are_read_when_they_are_due(reopen: Reopen) -> None:
    store = reopen()
    store.apply([put(1), put(2, due=500), put(3, URGENT, due=300)])
    store.apply([Postpone(LANE, 1, 400, b"failed once")])
    assert numbers(store.read(LANE, 0, *MANY)) == []
    assert (store.next_due(LANE, Position()), store.next_due(URGENT, Position())) == (400, 300)
    assert store.read_due(URGENT, 299, Position(), *MANY) == []
    again = reopen()
    (first,) = again.read_due(URGENT, 450, Position(), *MANY)
    (second,) = again.read_due(LANE, 450, Position(), *MANY)
    assert isinstance(first, Stored) and isinstance(second, Stored)
    assert (first.lane, first.position.due, first.state) == (URGENT, 300, b"")
    assert (second.lane, second.number, second.position.due, second.state) == (LANE, 1, 400, b"failed once")
    assert again.next_due(LANE, second.position) == 500 and again.next_due(URGENT, first.position) == 0
    assert again.read_due(LANE, 450, second.position, *MANY) == []
    again.apply([Done(LANE, 1), Postpone(LANE, 2, 100, b"sooner")])
    assert [each.position.due for each in again.read_due(LANE, 999, Position(), *MANY)] == [100]


def test_items_that_are_due_at_one_time_are_read_in_parts(reopen: Reopen) -> None:
    store = reopen()
    dues = {number: 100 + number // 10 for number in range(1, 41)}
    store.apply([put(number, due=due) for number, due in dues.items()])
    store.apply([Postpone(LANE, 3, 102, b"again"), Done(LANE, 7)])
    found, position = [], Position()
    while items := store.read_due(LANE, 102, position, 3, 1 << 20):
        assert len(items) <= 3
        position = items[-1].position
        found += numbers(items)
    assert found == sorted((set(range(1, 30)) - {7}), key=lambda number: (102 if number == 3 else dues[number], number))
    assert store.next_due(LANE, position) == 103


def test_dead_items_are_kept_revived_and_forgotten(reopen: Reopen) -> None:
    store = reopen()
    store.apply([put(1), put(2), put(3)])
    store.apply([Bury(LANE, 2, 70, b"raised"), Bury(LANE, 1, 80, b"raised, too"), Bury(LANE, 9, 80, b"")])
    again = reopen()
    assert again.recovered.dead == {"billing": 2}
    first, second = again.read_dead("billing", Position(), *MANY)
    assert isinstance(first, Stored) and isinstance(second, Stored)
    assert (first.number, first.position.due, first.state, first.body) == (2, 70, b"raised", b"body")
    assert again.read_dead("billing", first.position, *MANY) == [second]
    assert numbers(again.read(LANE, 0, *MANY)) == [3]
    assert again.apply([Revive(LANE, 2, 90, b"once more"), Forget(LANE, 1), Revive(LANE, 1, 90, b"")]) == [
        Verdict(4), Verdict(1), Verdict(),
    ]  # fmt: skip
    (revived,) = again.read_due(LANE, 90, Position(), *MANY)
    assert isinstance(revived, Stored)
    assert (revived.number, revived.maker, revived.state) == (4, Maker(7, 2), b"once more")
    assert again.read_dead("billing", Position(), *MANY) == []
    assert again.apply([put(2)]) == [KNOWN]


def test_items_are_moved_with_their_ids(reopen: Reopen) -> None:
    store, images = reopen(), Lane("images", 3)
    given = Put(LANE, b"body", 1, id=b"invoice-17", digest=b"A")
    store.apply([put(1), put(2, due=500), given, put(4)])
    store.apply([Bury(LANE, 4, 70, b"raised")])
    moves = [Move(LANE, 1, images, 0, b"lost"), Move(LANE, 2, images, 600, b"x"), Move(LANE, 3, images, 0, b"")]
    moves += [Move(LANE, 4, images, 90, b"raised"), Move(LANE, 5, images, 0, b""), Move(URGENT, 1, images, 0, b"")]
    assert store.apply(moves) == [Verdict(1), Verdict(2), Verdict(3), Verdict(4), Verdict(), Verdict()]
    again = reopen()
    assert again.apply(moves) == [Verdict()] * 6  # told once more
    assert numbers(again.read(LANE, 0, *MANY)) == [] and again.read_dead("billing", Position(), *MANY) == []
    first, third = again.read(images, 0, *MANY)
    assert isinstance(first, Stored) and isinstance(third, Stored)
    assert (first.maker, first.state, first.at, third.id) == (Maker(7, 1), b"", 1, b"invoice-17")
    fourth, second = again.read_due(images, 999, Position(), *MANY)
    assert isinstance(fourth, Stored) and isinstance(second, Stored)
    assert (fourth.number, fourth.state, second.number, second.state) == (4, b"raised", 2, b"x")
    # Where it was put its id is known, and nowhere else.
    assert again.known([put(1), given, given._replace(lane=images)]) == [KNOWN, KNOWN, Verdict()]


def test_one_item_is_found(reopen: Reopen) -> None:
    reopen().apply([put(1), put(2, due=500), put(3), put(4)])
    store = reopen()
    store.apply([Bury(LANE, 3, 70, b"raised"), Done(LANE, 4)])
    found = [store.find(LANE, number) for number in range(1, 6)]
    assert found[3:] == [None, None] and store.find(URGENT, 1) is None
    states = [(each.state, each.item.number, each.item.position.due) for each in found if each is not None]
    assert states == [("ready", 1, 0), ("postponed", 2, 500), ("dead", 3, 70)]
    assert found[2] is not None and [found[2].item] == store.read_dead("billing", Position(), *MANY)
    assert found[0] is not None and isinstance(found[0].item, Stored) and found[0].item.body == b"body"


def test_what_was_put_is_known_and_asking_puts_nothing(store: Store) -> None:
    given = Put(LANE, b"", 1, id=b"invoice-17", digest=b"A")
    nameless = Put(LANE, b"", 1)
    assert store.known([put(1), given, nameless]) == [Verdict()] * 3
    store.apply([put(1), given])
    other = given._replace(digest=b"B")
    assert store.known([put(1), put(2), given, other, nameless]) == [KNOWN, Verdict(), KNOWN, OTHER, Verdict()]
    assert numbers(store.read(LANE, 0, *MANY)) == [1, 2]


def test_the_bytes_of_items_are_counted(reopen: Reopen) -> None:
    store = reopen()
    store.apply([put(count, body=bytes(count)) for count in range(1, 21)])
    store.apply([put(30, Lane("images", 2), body=bytes(1000)), put(31, URGENT, due=9, body=bytes(500))])
    total = sum(range(1, 21)) + 500
    assert store.recount().sizes == {"billing": total, "images": 1000}
    store.apply(
        [Bury(LANE, 20, 7, b"story"), Postpone(LANE, 19, 9, b"story"), Move(LANE, 18, Lane("images", 2), 0, b"")]
    )
    store.apply([Done(LANE, number, number) for number in range(1, 15)])
    store.apply([Done(LANE, number, number) for number in range(1, 15)])  # told once more
    total -= 18 + sum(range(1, 15))
    assert store.recount().sizes == {"billing": total, "images": 1018}
    assert reopen().recovered.sizes == {"billing": total, "images": 1018}


def test_results_are_kept_until_their_time_is_over(reopen: Reopen) -> None:
    store = reopen()
    store.apply([put(1), put(2)])
    store.apply([Done(LANE, 1), Keep(LANE, 1, 500, b"result"), Keep(LANE, 2, 600, b""), Keep(URGENT, 2, 500, b"x")])
    store.apply([Keep(LANE, 1, 510, b"another one")])
    again = reopen()
    assert [again.result(LANE, 1), again.result(LANE, 2), again.result(URGENT, 2)] == [b"another one", b"", b"x"]
    assert again.recovered.results == {"billing": 12 + 3 * KEPT_OVERHEAD}
    assert again.apply([Expire("images", 900), Expire("billing", 509)]) == [Verdict(), Verdict(1 + KEPT_OVERHEAD)]
    assert again.apply([Expire("billing", 509)]) == [Verdict()]
    assert again.result(URGENT, 2) == b"" and again.result(LANE, 1) == b"another one"
    assert again.apply([Expire("billing", 600)]) == [Verdict(11 + 2 * KEPT_OVERHEAD)]
    assert again.recount().results == {}


def test_of_items_with_a_unique_key_one_waits(reopen: Reopen) -> None:
    store = reopen()
    first = put(1)._replace(unique=b"nightly")
    other = put(2, URGENT)._replace(unique=b"nightly")
    assert store.apply([first, other, put(3)._replace(unique=b"hourly")]) == [Verdict(1), KNOWN, Verdict(2)]
    again = reopen()
    assert again.apply([other, first, put(4, Lane("images", 0))._replace(unique=b"nightly")]) == [
        KNOWN,
        KNOWN,
        Verdict(1),
    ]
    # Whoever waits no more lets go of its key, and of no other's.
    again.apply([Release(LANE, 1, b"nightly")])
    assert again.apply([other, Release(LANE, 1, b"nightly"), put(5)._replace(unique=b"nightly")]) == [
        Verdict(1), Verdict(), KNOWN,
    ]  # fmt: skip
    again.apply([Release(LANE, 2, b"")])
    given = Put(LANE, b"a", 1, id=b"invoice-17", digest=b"A", unique=b"nightly")
    assert again.apply([put(6)._replace(unique=b"hourly"), given, given._replace(unique=b"")]) == [
        Verdict(3), KNOWN, Verdict(4),
    ]  # fmt: skip


def test_notes_are_kept(reopen: Reopen) -> None:
    reopen().apply([Note("billing", b"5 attempts"), Note("images", b"x"), Note("images", b"")])
    assert reopen().recovered.notes == {"billing": b"5 attempts"}


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 40))])
def test_all_stores_do_the_same(reopen: Reopen, seed: int) -> None:
    changes, model, store = RandomChanges(Random(seed)), MemoryStore(), reopen()
    for round_ in range(40):
        some = changes.some(model)
        assert store.apply(some) == model.apply(some)
        if round_ % 7 == 0:
            store = reopen()
            model.reopen()
            assert replace(store.recovered, has_incoming=False) == model.recovered
        assert replace(store.recount(), has_incoming=False) == model.recount()
        found, wanted = content_of(store), content_of(model)
        assert found == wanted, differences(found, wanted)
