"""The transition tables of a task and of a registration: each row by what really happens, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rpcmq.core.common import illegal_events
from rpcmq.core.common.illegal_events import IllegalEvent
from rpcmq.core.process.task import Registration, Task
from rpcmq.core.process.task_states import ENDED, REGISTRATION_TRANSITIONS, TRANSITIONS, RegistrationState, TaskState
from rpcmq.errors import Outcome
from rpcmq.testing import checked_states
from rpcmq.wire import Kind, control, pack, parse
from tests.core.process.serving import COMPUTE, Collected, Process

RECEIVED, WAITING, RUNNING, STREAMING, CANCELLED, ABANDONED, ANSWERED, SETTLED, WASTED, RETURNED = TaskState
NEW, WANTED, LEAVING, REMOVED = RegistrationState
KEY = b"\1" * 20


@pytest.fixture
def process() -> Process:
    return Process()


class Peer(Collected):
    """Calls the process directly; its registration has a credit of 1."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process
        self.registration = process.register(credit=1)

    def call(self, key: bytes = KEY) -> None:
        message = pack(Kind.REQUEST, b"p", key=key, address=COMPUTE.encode(), format=2)
        self.process.serving.accept(0.0, message, self.registration, self)

    def waiting(self) -> Task:
        """One that waits for another to end."""
        self.call(b"\2" * 20)
        self.call()
        return self.registration.waiting[KEY]


def delivered(process: Process, kind: int = Kind.REQUEST, flags: int = 0) -> Task:
    process.register()
    task = process.deliver(kind, flags=flags)
    assert task is not None
    return task


def in_state(process: Process, state: TaskState) -> Task:
    if state is WAITING:
        return Peer(process).waiting()
    task = delivered(process, Kind.CAST if state is SETTLED else Kind.REQUEST)
    if state is STREAMING:
        item_sent(process, task)
    elif state is CANCELLED:
        cancelled(process, task)
    elif state in (ABANDONED, WASTED):
        abandoned(process, task)
    if state is RETURNED:
        given_back(process, task)
    elif state in ENDED:
        ended(process, task)
    assert task.state is state
    return task


def started(process: Process, task: Task) -> None:
    other = next(iter(task.registration.running.values()))
    process.serving.answer(0.0, other, Kind.REPLY, 2, b"")


def item_sent(process: Process, task: Task) -> None:
    process.serving.send_item(task, Kind.ITEM, 2, b"")


def cancelled(process: Process, task: Task) -> None:
    process.router(control(Kind.CANCEL, {}, key=task.key, consumer=0))


def abandoned(process: Process, task: Task) -> None:
    if task.sender is process.uplink:
        process.connect(boot=6)
    else:
        process.serving.cancel_direct(task.key, task.sender)


def ended(process: Process, task: Task) -> None:
    if task.is_call:
        process.serving.answer(0.0, task, Kind.REPLY, 2, b"")
    else:
        process.serving.settle(0.0, task, Outcome.OK)


def given_back(process: Process, task: Task) -> None:
    assert process.uplink.router is not None
    process.uplink.router = replace(process.uplink.router, takes_back=True)
    assert process.serving.give_back(task)


EVENTS: dict[str, Callable[[Process, Task], None]] = {
    "started": started, "item sent": item_sent, "cancelled": cancelled, "abandoned": abandoned, "answered": ended,
    "settled": ended, "given back": given_back, "ended": ended,
}  # fmt: skip


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=str)
def test_each_row_of_the_table_happens_in_a_process(process: Process, state: TaskState, event: str) -> None:
    if state is RECEIVED:
        checked_states.seen.clear()
        task = delivered(process) if event == "started" else Peer(process).waiting()
    else:
        task = delivered(process, Kind.CAST) if event == "settled" else in_state(process, state)
        checked_states.seen.clear()
        EVENTS[event](process, task)
    assert checked_states.seen[state, event] >= 1
    assert task.state is TRANSITIONS[state, event]


@pytest.mark.parametrize("state", [RUNNING, STREAMING, CANCELLED])
def test_the_end_of_one_that_the_router_counts_is_sent_once(process: Process, state: TaskState) -> None:
    task = in_state(process, state)
    process.sent()
    ended(process, task)
    assert [parse(message).kind for message in process.sent()] == [Kind.REPLY]
    with pytest.raises(IllegalEvent, match="task: answered while it is"):
        ended(process, task)
    illegal_events.raised.clear()
    assert not process.sent()


@pytest.mark.parametrize("state", [ANSWERED, SETTLED, WASTED])
def test_to_end_what_has_ended_is_counted_in_production(
    process: Process, state: TaskState, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = in_state(process, state)
    process.sent()
    monkeypatch.setattr(illegal_events, "_strict", False)
    ended(process, task)
    item_sent(process, task)
    end = "answered" if task.is_call else "settled"
    assert process.uplink.illegal.counts == {f"task: {end} while it is {state.value}": 1}
    assert task.state is state and not process.sent()


@pytest.mark.parametrize("state", TaskState)
def test_a_cancel_is_legal_at_any_time(process: Process, state: TaskState) -> None:
    if state is RECEIVED:
        return
    task = in_state(process, state)
    cancelled(process, task)
    cancelled(process, task)
    assert task.state is (CANCELLED if state in (RUNNING, STREAMING, CANCELLED) else state)


def test_a_change_that_the_table_lacks_is_illegal(process: Process) -> None:
    task = in_state(process, ANSWERED)
    with pytest.raises(IllegalEvent, match="task: made running while it is answered"):
        task.state = RUNNING
    illegal_events.raised.clear()


def test_an_attempt_is_abandoned_when_the_next_one_of_its_request_is_delivered(process: Process) -> None:
    process.register()
    first = process.deliver(key=KEY)
    second = process.deliver(key=KEY, attempt=1)
    assert first is not None and second is not None
    assert (first.state, second.state) == (ABANDONED, RUNNING) and process.serving.changed == [first]
    process.sent()
    item_sent(process, first)
    ended(process, first)
    assert not process.sent() and process.serving.counters["late answers"] == 1
    assert second.registration.running == {KEY: second}


# --- registrations ------------------------------------------------------------------------------


def registration_in_state(process: Process, state: RegistrationState) -> Registration:
    if state is NEW:
        return Registration(0, COMPUTE, 1, "", process.tasks.append)
    registration = process.register()
    if state is LEAVING:
        process.serving.unregister(0.0, registration, 1.0)
    elif state is REMOVED:
        process.serving.remove(registration)
    assert registration.state is state
    return registration


REGISTRATION_EVENTS: dict[str, Callable[[Process, Registration], object]] = {
    "registered": lambda process, registration: process.serving.register(0.0, registration, 1.0),
    "unregistered": lambda process, registration: process.serving.unregister(0.0, registration, 1.0),
    "removed": lambda process, registration: process.serving.remove(registration),
}


@pytest.mark.parametrize(("state", "event"), REGISTRATION_TRANSITIONS, ids=str)
def test_each_row_of_a_registration_happens_in_a_process(
    process: Process, state: RegistrationState, event: str
) -> None:
    registration = registration_in_state(process, state)
    checked_states.seen.clear()
    REGISTRATION_EVENTS[event](process, registration)
    assert checked_states.seen[state, event] == 1
    assert registration.state is REGISTRATION_TRANSITIONS[state, event]


@pytest.mark.parametrize("event", ["registered", "unregistered"])
def test_nothing_happens_to_a_registration_that_was_removed(process: Process, event: str) -> None:
    registration = registration_in_state(process, REMOVED)
    with pytest.raises(IllegalEvent, match=r"registration: made \w+ while it is removed"):
        REGISTRATION_EVENTS[event](process, registration)
    illegal_events.raised.clear()


def test_removing_a_registration_again_leaves_the_one_that_has_its_tag_now(process: Process) -> None:
    first = registration_in_state(process, REMOVED)
    second = process.register(first.tag)
    process.serving.remove(first)
    assert process.serving.registrations == {first.tag: second}


def test_none_that_is_leaving_is_made_anew_at_another_router(process: Process) -> None:
    registration = registration_in_state(process, LEAVING)
    registration.is_refused = True
    process.sent()
    process.serving.register_again(0.0, registration)
    assert not process.sent()
