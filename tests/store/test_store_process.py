"""The store in a process of its own: answers in their order, deaths, full disks, refusals."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rpcmq.queue_server.store_process import StoreProcess
from rpcmq.store.contract import (
    Bury,
    Done,
    Found,
    Lane,
    Maker,
    Note,
    Position,
    Postpone,
    Put,
    Stored,
    StoreError,
    Verdict,
)
from rpcmq.store.segments import SEGMENT_ITEMS
from rpcmq.store.sqlite import SqliteStore
from rpcmq.testing import eventually

LANE = Lane("billing", 0)
MANY = (1000, 1 << 20)

Open = Callable[[], StoreProcess]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    """Starts the process of a store in a directory that is not there yet."""
    started: list[StoreProcess] = []

    def open_it() -> StoreProcess:
        started.append(StoreProcess(str(tmp_path / "queues"), "a"))
        started[-1].wait(30)
        return started[-1]

    yield open_it
    for store in started:
        store.close()


def put(count: int, body: bytes = b"body") -> Put:
    return Put(LANE, body, 1, maker=Maker(7, count))


def items_of(answer: object) -> list[Stored]:
    assert isinstance(answer, list)
    return [each for each in answer if isinstance(each, Stored)]


def all_ready(store: StoreProcess) -> list[int]:
    found: list[int] = []
    answered: list[bool] = []

    def take(items: object) -> None:
        found.extend(each.number for each in items_of(items))
        answered.append(True)

    store.read(LANE, 0, 100_000, 1 << 26, take)
    eventually(lambda: answered)
    return found


def test_requests_are_answered_in_their_order(open_store: Open) -> None:
    store = open_store()
    answers: list[object] = []
    store.apply([put(1), Put(LANE, b"late", 1, due=50, id=b"i", digest=b"d"), Note("n", b"v")], answers.append)
    store.read(LANE, 0, *MANY, answers.append)
    store.next_due(LANE, Position(), answers.append)
    store.apply([put(1), Postpone(LANE, 1, 40, b"state")], answers.append)
    store.read_due(LANE, 45, Position(), *MANY, answers.append)
    store.apply([Bury(LANE, 1, 60, b"story"), Done(LANE, 2)], answers.append)
    store.read_dead("billing", Position(), *MANY, answers.append)
    store.find(LANE, 1, answers.append)
    store.find(LANE, 2, answers.append)
    store.known([put(1), put(9)], answers.append)
    eventually(lambda: len(answers) == 10)
    assert answers[7] == Found("dead", items_of(answers[6])[0]) and answers[8] is None
    assert answers[9] == [Verdict(is_known=True), Verdict()]
    assert answers[0] == [Verdict(1), Verdict(2), Verdict()]
    assert answers[2] == 50 and answers[3] == [Verdict(is_known=True), Verdict()]
    (ready,), (due,), (dead,) = (items_of(answers[n]) for n in (1, 4, 6))
    assert (ready.lane, ready.number, ready.body) == (LANE, 1, b"body")
    assert (due.position.due, due.state) == (40, b"state")
    assert (dead.position.due, dead.state, dead.maker) == (60, b"story", Maker(7, 1))


def test_what_comes_while_it_writes_is_one_commit(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    verdicts: list[list[Verdict]] = []
    for count in range(1, 1001):
        store.apply([put(count)], verdicts.append)
    eventually(lambda: len(verdicts) == 1000)
    assert [each.number for (each,) in verdicts] == list(range(1, 1001))
    for number in range(1, 1001):
        store.apply([Done(LANE, number)], verdicts.append)
    eventually(lambda: len(verdicts) == 2000)
    store.close()
    left = SqliteStore(tmp_path / "queues" / "queue.db")
    rows = left._connection.execute("SELECT count(*) FROM ended_1").get
    left.close()
    assert rows < 500  # each commit writes one


def test_changes_that_come_one_by_one_are_whole_and_in_order_however_large(open_store: Open) -> None:
    store = open_store()
    bodies = [b"", b"small", bytes(range(256)) * (12 << 10), b"small again"]
    verdicts: list[list[Verdict]] = []
    for count, body in enumerate(bodies, 1):
        store.apply([put(count, body)], verdicts.append)
        if count != 3:  # more than the socket takes at once, so that the last one comes behind the rest of it
            eventually(lambda count=count: len(verdicts) == count)  # type: ignore[misc]
    assert [each.number for (each,) in verdicts] == [1, 2, 3, 4]
    found: list[bytes] = []
    store.read(LANE, 0, 10, 1 << 26, lambda items: found.extend(each.body for each in items_of(items)))
    eventually(lambda: found)
    assert found == bodies


def test_of_many_changes_the_first_ones_are_written_while_the_next_ones_come_up(open_store: Open) -> None:
    store = open_store()
    verdicts: list[list[Verdict]] = []
    for count in range(1, 21):
        store.apply([put(count, bytes(8 << 10))], verdicts.append)
    assert store._peer is not None
    # This does not let the loop go on: what is answered was sent before.
    readable, _, _ = select.select([store._peer], [], [], 60)
    assert readable and not verdicts
    eventually(lambda: len(verdicts) == 20, 60)
    assert [each.number for (each,) in verdicts] == list(range(1, 21))


def test_much_more_in_one_turn_than_the_process_takes_at_once_is_whole_and_in_order(open_store: Open) -> None:
    store = open_store()
    bodies = [bytes([count]) * (count * 5000) for count in range(60)]
    verdicts: list[list[Verdict]] = []
    for count, body in enumerate(bodies, 1):
        store.apply([put(count, body)], verdicts.append)
    found: list[bytes] = []
    store.read(LANE, 0, 100, 1 << 26, lambda items: found.extend(each.body for each in items_of(items)))
    eventually(lambda: found, 60)
    assert [each.number for (each,) in verdicts] == list(range(1, 61)) and found == bodies


def test_a_process_that_is_killed_is_started_again_and_loses_nothing(open_store: Open) -> None:
    store = open_store()
    accepted: list[int] = []
    for kill in range(3):
        for count in range(kill * 1000 + 1, kill * 1000 + 1001):
            store.apply([put(count)], lambda verdicts, count=count: accepted.append(count))  # type: ignore[misc]
        eventually(lambda kill=kill: len(accepted) > kill * 1000)  # type: ignore[misc]
        assert store.pid is not None
        os.kill(store.pid, signal.SIGKILL)
        eventually(lambda kill=kill: store.restarts == kill + 1 and not store.waits_for)  # type: ignore[misc]
    eventually(lambda: len(accepted) == 3000)
    assert accepted == list(range(1, 3001)) and store.restarts == 3
    assert all_ready(store) == list(range(1, 3001)) and not store.waits_for


def restarted_without(store: StoreProcess) -> None:
    """Kill its process; return when another one has said that it cannot open the store."""
    assert store.pid is not None
    os.kill(store.pid, signal.SIGKILL)
    eventually(lambda: "its file is gone" in store.waits_for, 60)


def test_a_file_that_is_gone_is_waited_for_and_no_new_one_takes_its_place(open_store: Open, tmp_path: Path) -> None:
    """As where its disk is not mounted for a while."""
    store, folder, away = open_store(), tmp_path / "queues", tmp_path / "away"
    accepted: list[list[Verdict]] = []
    store.apply([put(1)], accepted.append)
    eventually(lambda: len(accepted) == 1, 60)
    folder.rename(away)
    restarted_without(store)
    store.apply([put(2)], accepted.append)
    assert not folder.exists()
    away.rename(folder)
    eventually(lambda: len(accepted) == 2, 60)
    assert all_ready(store) == [1, 2] and not store.refusal


def test_it_does_not_go_on_with_a_file_of_fewer_lives(open_store: Open, tmp_path: Path) -> None:
    open_store().close()
    store, folder, other = open_store(), tmp_path / "queues", tmp_path / "other"
    folder.rename(tmp_path / "away")
    restarted_without(store)
    other.mkdir()
    SqliteStore(other / "queue.db").close()
    other.rename(folder)
    eventually(lambda: store.refusal, 60)
    assert f"{folder}: its file is another one than before" in store.refusal and store.was_taken


def test_a_full_disk_is_waited_for_and_said(open_store: Open) -> None:
    store = open_store()
    assert store.pid is not None
    accepted: list[list[Verdict]] = []
    # No file of the process may grow further.
    resource.prlimit(store.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    store.apply([put(count, bytes(10_000)) for count in range(1, 20)], accepted.append)
    eventually(lambda: store.waits_for)
    assert "queue.db" in store.waits_for and not accepted and store.unanswered == 1
    resource.prlimit(store.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: accepted)
    assert [each.number for each in accepted[0]] == list(range(1, 20))
    assert not store.waits_for and store.restarts == 0 and len(all_ready(store)) == 19


def test_an_answer_that_cannot_be_used_costs_no_other(open_store: Open) -> None:
    store = open_store()
    answers: list[object] = []
    store.apply([put(1)], lambda verdicts: 1 // 0)
    store.apply([put(2)], answers.append)
    eventually(lambda: answers)
    assert store.state()["faults"] == 1 and answers == [[Verdict(2)]] and store.restarts == 0


def test_the_next_life_has_what_was_accepted(open_store: Open) -> None:
    store = open_store()
    accepted: list[object] = []
    store.apply([put(1), put(2), Note("billing", b"settings")], accepted.append)
    eventually(lambda: accepted)
    store.apply([Bury(LANE, 1, 5, b"story")], accepted.append)
    eventually(lambda: len(accepted) == 2)
    store.close()
    recovered = open_store().wait(30)
    assert (recovered.epoch, recovered.ready, recovered.dead) == (2, {LANE: 1}, {"billing": 1})
    assert recovered.notes == {"billing": b"settings"}


def test_a_store_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "queue.db").write_bytes(b"no database, but a text that is long enough for a header" * 40)
    store = StoreProcess(str(tmp_path), "a")
    try:
        with pytest.raises(StoreError, match=r"queue\.db: it is no SQLite database"):
            store.wait(30)
        assert store.restarts == 0
    finally:
        store.close()


def test_a_store_that_is_found_to_be_damaged_while_it_is_open_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "queue.db"
    made = SqliteStore(file)
    # A whole segment, and one more item: of the first one, no page in the middle is looked at when it is opened.
    for first in range(1, SEGMENT_ITEMS, 10_000):
        bodies = {500: b"of a page in the middle"}
        made.apply([put(count, bodies.get(count, b"body")) for count in range(first, first + 10_000)])
    made.apply([put(SEGMENT_ITEMS + 1)])
    made.close()
    with file.open("r+b") as raw:
        raw.seek(file.read_bytes().index(b"of a page in the middle") // 8192 * 8192)
        raw.write(bytes(8192))
    store = StoreProcess(str(tmp_path), "a")
    try:
        assert store.wait(30).ready == {LANE: SEGMENT_ITEMS + 1}
        store.read(LANE, 0, *MANY, lambda items: None)
        eventually(lambda: store.refusal)
        assert re.search(r"queue\.db: it is damaged \(.*\): restore it from a copy", store.refusal)
        assert store.restarts == 0
    finally:
        store.close()


def test_a_store_that_is_in_use_is_waited_for(open_store: Open, tmp_path: Path) -> None:
    first = open_store()
    second = StoreProcess(str(tmp_path / "queues"), "b")
    try:
        eventually(lambda: "another process has it open" in second.waits_for)
        first.close()
        assert second.wait(30).epoch == 2 and second.waits_for == ""
    finally:
        second.close()


def test_it_ends_with_its_router(open_store: Open) -> None:
    store = open_store()
    pid = store.pid
    assert pid is not None
    store.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
