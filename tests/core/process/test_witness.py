"""A consumer that routers of a mesh ask for what it had: its promises, and answers to the latest owner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process import kept_answers, witness
from rpcmq.core.process.task import Task
from rpcmq.core.process.task_states import TaskState
from rpcmq.errors import Outcome
from rpcmq.wire import HEADER_BYTES, KEY, SETTLEMENT, STAMP, Flag, Kind, pack, payload_of
from rpcmq.wire.adoption import HERE_RECORD, WHERE_RECORD, Word
from tests.core.process.serving import COMPUTE, Process

MESH = {"mesh": "east", "routers": [{"name": "a", "urls": ["tcp://a:1"]}], "adopts": True}
FIRST, SECOND, THIRD = b"\0\0", b"\1\0", b"\2\0"

Words = list[tuple[bytes, bytes, int]]


def key(number: int) -> bytes:
    return b"\0" * 12 + number.to_bytes(8)


class Server(Process):
    """A process that serves in a mesh."""

    def __init__(self, **mesh: Any) -> None:
        super().__init__()
        self.mesh = MESH | mesh
        self.connect(url="a", boot=6, mesh=self.mesh)
        self.compute = self.register()

    def move(self, **welcome: Any) -> None:
        """Go on at another router, and register there."""
        says: dict[str, Any] = {"boot": 7, "mesh": self.mesh} | welcome
        self.connect(url="b", **says)
        self.sent()

    def delivered(self, number: int, stamp: bytes = FIRST, kind: int = Kind.REQUEST, **fields: Any) -> Task | None:
        return self.deliver(kind, key=key(number), hops=stamp[0], attempt=stamp[1], **fields)

    def answer(self, task: Task, payload: bytes = b"done") -> None:
        self.serving.answer(0.0, task, Kind.REPLY, 1, payload)

    def asked(self, *numbers: int, stamp: bytes, is_call: bool = True, tag: int = 0) -> tuple[Words, list[bytes]]:
        """Ask for messages; return the words, and what was sent after them."""
        records = b"".join(WHERE_RECORD.pack(key(number), stamp) for number in numbers)
        self.router(pack(Kind.WHERE, records, format=int(is_call), address=COMPUTE.encode(), consumer=tag))
        here, *rest = self.sent()
        assert here[5] == Kind.HERE and here[11] == tag
        return list(HERE_RECORD.iter_unpack(here[HEADER_BYTES:])), rest

    def word(self, number: int, stamp: bytes, is_call: bool = True, tag: int = 0) -> Word:
        """Ask for one message."""
        ((asked, said, word),), _ = self.asked(number, stamp=stamp, is_call=is_call, tag=tag)
        assert asked == key(number) and said == stamp
        return Word(word)

    def taken(self, *numbers: int) -> None:
        self.router(pack(Kind.TAKEN, b"".join(map(key, numbers))))

    @property
    def kept(self) -> int:
        return len(self.serving.witness.answers)


@pytest.fixture
def server() -> Server:
    return Server()


def told(messages: list[bytes]) -> Words:
    """All words in HERE among ``messages``."""
    return [word for m in messages if m[5] == Kind.HERE for word in HERE_RECORD.iter_unpack(m[HEADER_BYTES:])]


# --- promises --------------------------------------------------------------------------------


def test_what_it_never_had_is_promised_and_an_earlier_owner_refused(server: Server) -> None:
    assert server.word(1, SECOND) is Word.NOT_HAD
    assert server.delivered(1, FIRST) is None
    assert told(server.sent()) == [(key(1), SECOND, Word.NEWER)]
    assert server.serving.counters["deliveries of what was had or promised"] == 1
    assert server.delivered(1, SECOND) is not None


def test_a_promise_holds_at_the_next_router(server: Server) -> None:
    server.asked(1, stamp=SECOND)
    server.move()
    assert server.delivered(1, FIRST) is None
    assert server.delivered(1, THIRD) is not None


def test_a_promise_is_for_the_latest_that_asked(server: Server) -> None:
    server.asked(1, stamp=THIRD)
    words, _ = server.asked(1, stamp=SECOND)
    assert words == [(key(1), THIRD, Word.NEWER)]
    assert server.delivered(1, SECOND) is None


def test_attempts_of_an_owner_are_ordered_too(server: Server) -> None:
    server.asked(1, stamp=b"\1\2")
    assert server.delivered(1, b"\1\1") is None
    assert server.delivered(1, b"\1\2") is not None


def test_promises_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "_MAX_PROMISES", 3)
    server.asked(1, 2, 3, 4, stamp=SECOND)
    assert server.serving.counters["promises forgotten"] == 1
    assert server.delivered(2, FIRST) is None
    assert server.delivered(1, FIRST) is not None


# --- what it runs, and has ended -------------------------------------------------------------


def test_what_runs_is_answered_to_who_asked(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    assert server.word(1, SECOND) is Word.RUNNING
    server.answer(task)
    (reply,) = server.sent()
    assert reply[KEY] == key(1) and reply[STAMP] == SECOND


def test_an_answer_is_given_again_after_the_word(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.answer(task)
    server.sent()
    words, (reply,) = server.asked(1, stamp=b"\1\3")
    assert words == [(key(1), b"\1\3", Word.ANSWERED)]
    assert (reply[5], reply[STAMP], payload_of(reply)) == (Kind.REPLY, b"\1\3", b"done")
    assert server.asked(1, stamp=SECOND)[0] == [(key(1), b"\1\3", Word.NEWER)]


def test_the_answer_is_as_of_the_consumer_that_was_asked(server: Server) -> None:
    server.register(tag=5)
    running, ended = server.delivered(1), server.delivered(2)
    assert running is not None and ended is not None
    server.answer(ended)
    server.sent()
    words, (again,) = server.asked(1, 2, stamp=SECOND, tag=5)
    assert [word for _, _, word in words] == [Word.RUNNING, Word.ANSWERED]
    server.answer(running)
    assert [again[11], server.sent()[0][11]] == [5, 5]


def test_a_delivery_of_what_runs_is_not_started_again(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    assert server.delivered(1, SECOND) is None
    server.answer(task)
    assert server.sent()[0][STAMP] == SECOND


def test_a_delivery_of_what_has_ended_is_answered_again(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.answer(task)
    server.sent()
    assert server.delivered(1, SECOND) is None
    (reply,) = server.sent()
    assert reply[5] == Kind.REPLY and reply[STAMP] == SECOND


def test_an_answer_is_kept_until_the_caller_has_it(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.answer(task)
    assert server.kept == 1
    server.taken(1, 2)
    assert server.kept == 0
    assert server.delivered(1, SECOND) is None, "it is known still"


def test_a_cancel_of_an_earlier_owner_is_none(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.asked(1, stamp=SECOND)
    server.router(pack(Kind.CANCEL, key=key(1)))
    assert task.is_wanted
    server.router(pack(Kind.CANCEL, key=key(1), hops=1))
    assert not task.is_wanted


def test_the_answer_to_a_call_that_was_cancelled_is_not_kept(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.router(pack(Kind.CANCEL, key=key(1)))
    server.answer(task)
    assert server.kept == 0
    server.sent()
    assert server.word(1, SECOND) is Word.LOST


# --- moves -----------------------------------------------------------------------------------


def test_what_runs_goes_on_when_it_moves_and_is_answered_once_it_is_asked_for(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.move()
    assert task.is_wanted
    server.serving.send_item(task, Kind.ALIVE, 1, b"")
    assert server.sent() == [], "nobody there has asked for it"
    assert server.word(1, SECOND) is Word.RUNNING
    server.answer(task)
    assert server.sent()[0][STAMP] == SECOND


def test_what_ends_before_it_is_asked_for_is_kept(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.move()
    server.answer(task)
    assert server.sent() == [] and server.kept == 1
    words, (reply,) = server.asked(1, stamp=SECOND)
    assert words[0][2] == Word.ANSWERED and reply[STAMP] == SECOND


def test_an_answer_that_was_on_its_way_is_kept_and_not_late(server: Server) -> None:
    task = server.delivered(1)
    assert task is not None
    server.answer(task)
    server.sent()
    server.move()
    assert server.serving.counters["late answers"] == 0
    assert server.word(1, SECOND) is Word.ANSWERED


@pytest.mark.parametrize("welcome", [{"mesh": MESH | {"adopts": False}}, {"mesh": MESH | {"mesh": "west"}}])
def test_where_nobody_asks_it_is_abandoned_and_never_denied(server: Server, welcome: dict[str, Any]) -> None:
    task = server.delivered(1)
    assert task is not None
    server.move(**welcome)
    assert task.state is TaskState.ABANDONED
    assert server.word(1, SECOND) is Word.LOST


@pytest.mark.parametrize("flags", [Flag.IDEMPOTENT, Flag.STREAM])
def test_what_is_not_asked_for_ends_when_it_moves(server: Server, flags: int) -> None:
    running, ended = server.delivered(1, flags=flags), server.delivered(2, flags=flags)
    assert running is not None and ended is not None
    server.answer(ended)
    assert server.kept == 0
    server.move()
    assert running.state is TaskState.ABANDONED
    assert server.delivered(1, SECOND, flags=flags) is not None


def test_without_a_mesh_nothing_is_kept() -> None:
    process = Process()
    process.register()
    task = process.deliver()
    assert task is not None
    process.serving.answer(0.0, task, Kind.REPLY, 1, b"done")
    assert len(process.serving.witness.answers) == 0


# --- bounds ----------------------------------------------------------------------------------


def test_answers_are_bounded_in_bytes(server: Server) -> None:
    server.serving.witness.answers._max_bytes = 250
    for number in (1, 2, 3):
        task = server.delivered(number)
        assert task is not None
        server.answer(task, b"x" * 70)
        server.sent()
    assert server.serving.counters["answers dropped"] == 1
    assert server.serving.witness.answers.size_bytes <= 250
    assert [server.word(number, SECOND) for number in (1, 2, 3)] == [Word.LOST, Word.ANSWERED, Word.ANSWERED]


def test_an_answer_larger_than_the_bound_is_not_kept(server: Server) -> None:
    server.serving.witness.answers._max_bytes = 100
    task = server.delivered(1)
    assert task is not None
    server.answer(task, b"x" * 100_000)
    assert server.kept == 0 and server.serving.witness.answers.size_bytes == 0
    server.sent()
    assert server.word(1, SECOND) is Word.LOST


def test_answers_and_calls_remembered_are_bounded_in_number(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "_MAX_CALLS", 2)
    for number in range(1, 6):
        task = server.delivered(number)
        assert task is not None
        server.answer(task)
        server.sent()
    assert server.kept == 2
    words = [server.word(number, SECOND) for number in range(1, 6)]
    assert words == [Word.NOT_HAD, Word.LOST, Word.LOST, Word.ANSWERED, Word.ANSWERED]


# --- casts -----------------------------------------------------------------------------------


def settled(messages: list[bytes]) -> list[tuple[bytes, int, int, int]]:
    return [each for m in messages if m[5] == Kind.SETTLE for each in SETTLEMENT.iter_unpack(m[HEADER_BYTES:])]


def test_a_cast_that_runs_is_settled_to_who_asked(server: Server) -> None:
    task = server.delivered(1, kind=Kind.CAST)
    assert task is not None
    assert server.word(1, b"\1\4", is_call=False) is Word.RUNNING
    server.serving.settle(0.0, task, Outcome.OK)
    ((cast, attempt, outcome, _),) = settled(server.sent())
    assert (cast, attempt, outcome) == (key(1), 4, Outcome.OK)


def test_a_cast_that_was_run_is_settled_again(server: Server) -> None:
    task = server.delivered(1, kind=Kind.CAST)
    assert task is not None
    server.serving.settle(0.0, task, Outcome.OK)
    server.sent()
    server.move()
    words, rest = server.asked(1, stamp=b"\1\2", is_call=False)
    assert words == [(key(1), b"\1\2", Word.ANSWERED)]
    assert [each[:2] for each in settled(rest)] == [(key(1), 2)]


def test_a_cast_that_was_run_is_not_run_again_for_whoever_delivers_it(server: Server) -> None:
    task = server.delivered(1, kind=Kind.CAST)
    assert task is not None
    server.serving.settle(0.0, task, Outcome.OK)
    server.sent()
    assert server.delivered(1, SECOND, kind=Kind.CAST) is None
    assert len(settled(server.sent())) == 1


def test_a_call_and_the_copy_of_it_that_a_group_gets_are_two_messages(server: Server) -> None:
    server.register(tag=3, group="audit")
    call = server.delivered(1)
    copy = server.delivered(1, kind=Kind.CAST, consumer=3)
    assert call is not None and copy is not None
    assert server.word(1, SECOND) is Word.RUNNING
    assert server.word(1, SECOND, is_call=False) is Word.NOT_HAD, "the topic itself was given no cast"
    assert server.word(1, SECOND, is_call=False, tag=3) is Word.RUNNING


# --- malformed, and any order ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.WHERE, Kind.TAKEN])
def test_half_a_record_is_refused(server: Server, kind: Kind) -> None:
    server.router(pack(kind, b"x" * 21, format=1))
    assert server.uplink.discarded["length"] == 1


def test_a_question_to_a_consumer_that_is_none_is_not_answered(server: Server) -> None:
    server.router(pack(Kind.WHERE, WHERE_RECORD.pack(key(1), SECOND), format=1, consumer=9))
    assert server.sent() == []


Step = tuple[str, int, int]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["deliver", "ask", "end", "move", "taken"]), st.integers(1, 3), st.integers(0, 4)),
        max_size=40,
    )
)
def test_in_any_order_nothing_starts_twice_or_against_a_promise(steps: list[Step]) -> None:
    server = Server()
    tasks: dict[int, Task] = {}
    promised: dict[int, bytes] = {}
    for verb, number, hops in steps:
        stamp = bytes((hops, 0))
        if verb == "deliver":
            task = server.delivered(number, stamp)
            if task is not None:
                assert number not in tasks, "started twice"
                assert stamp >= promised.get(number, FIRST), "started against a promise"
                tasks[number] = task
        elif verb == "ask":
            words, rest = server.asked(number, stamp=stamp)
            ((_, said, word),) = words
            if word == Word.NOT_HAD:
                assert number not in tasks
                promised[number] = stamp
            elif word == Word.NEWER:
                assert said > stamp
            else:
                assert number in tasks
                assert word == (Word.ANSWERED if tasks[number].has_ended else Word.RUNNING)
            assert all(m[STAMP] == stamp for m in rest if m[5] == Kind.REPLY)
        elif verb == "end" and number in tasks and not tasks[number].has_ended:
            server.answer(tasks[number])
        elif verb == "move":
            server.move()
        elif verb == "taken":
            server.taken(number)
        server.sent()


def test_a_copy_of_a_fanout_that_comes_by_another_router_again_is_not_started_again(server: Server) -> None:
    server.register(tag=5)
    copy: dict[str, Any] = {"kind": Kind.CAST, "flags": Flag.FANOUT}
    tasks = [server.delivered(1, consumer=tag, **copy) for tag in (0, 5)]
    assert None not in tasks, "each consumer of a process has its own"
    server.move()
    assert server.delivered(1, consumer=0, **copy) is None
    assert [row[0] for row in settled(server.sent())] == [key(1)], "the router lets go of it"
    assert server.delivered(1, consumer=5, **copy) is None
    assert server.delivered(2, consumer=5, **copy) is not None
    assert server.serving.counters["duplicate casts dropped"] == 2


def test_what_runs_is_not_counted_on_again_before_its_next_owner_could_say_otherwise(server: Server) -> None:
    pulse = server.uplink.pulse
    pulse.counted_on = -10.0
    task = server.delivered(1)
    assert task is not None and task.counted_on(pulse) == -10.0
    for stamp in (SECOND, THIRD):
        server.move()
        assert pulse.counted_on == 0.0, "the router has welcomed this process"
        assert task.counted_on(pulse) == -10.0, "nobody has asked for it"
        assert server.word(1, stamp) is Word.RUNNING
        assert task.counted_on(pulse) == -10.0, "the owner may not know yet that it runs here"
    pulse.counted_on = 1.0
    assert task.counted_on(pulse) == 1.0
    server.move()
    pulse.counted_on = 2.0
    assert task.counted_on(pulse) == 1.0
