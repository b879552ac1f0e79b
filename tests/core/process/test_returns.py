"""A process gives back messages, and keeps credit for casts that it has settled and still runs."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.process.task_states import TaskState
from rpcmq.errors import Outcome
from rpcmq.wire import KEY, KIND_AT, SETTLEMENT, Flag, Kind, body_of, control, payload_of
from tests.core.process.serving import Process


@pytest.fixture
def process() -> Process:
    process = Process()
    process.connect(takes_back=True)
    return process


def run_on(process: Process, tag: int = 0) -> None:
    """A cast is settled and goes on."""
    task = process.deliver(Kind.CAST, consumer=tag)
    assert task is not None
    process.serving.occupy(task.registration, 1)
    process.serving.settle(0.0, task, Outcome.OK)


def test_credit_is_kept_before_the_cast_is_settled(process: Process) -> None:
    registration = process.register(tag=3)
    run_on(process, 3)
    run_on(process, 3)
    messages = process.sent()
    assert [m[KIND_AT] for m in messages] == [Kind.OCCUPIED, Kind.SETTLE]
    assert payload_of(messages[0]) == (2).to_bytes(4)
    process.serving.occupy(registration, -1)
    (message,) = process.sent()
    assert (message[KIND_AT], payload_of(message)) == (Kind.OCCUPIED, (1).to_bytes(4))
    assert not process.sent()


def test_a_router_that_knows_nothing_of_us_is_told_with_the_registration(process: Process) -> None:
    process.register()
    run_on(process)
    process.sent()
    messages = process.connect(boot=6, takes_back=True)
    (register,) = [m for m in messages if m[KIND_AT] == Kind.REGISTER]
    assert body_of(register)["occupied"] == 1
    assert not [m for m in messages if m[KIND_AT] == Kind.OCCUPIED]


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
def test_a_message_is_given_back_and_may_come_again(process: Process, kind: int) -> None:
    registration = process.register()
    task = process.deliver(kind, attempt=2, flags=Flag.IDEMPOTENT)
    assert task is not None
    assert process.serving.give_back(task) and task.state is TaskState.RETURNED
    (message,) = process.sent()
    assert message[KIND_AT] == Kind.GIVE_BACK and message[KEY] == task.key
    assert not registration.running and not process.serving.recent.is_known(task.key)
    again = process.deliver(kind, key=task.key, attempt=2, flags=Flag.RESENT)
    assert again is not None and again.is_wanted
    assert not process.serving.give_back(task)


def test_copies_of_fanouts_are_not_given_back(process: Process) -> None:
    process.register()
    task = process.deliver(Kind.CAST, flags=Flag.FANOUT)
    assert task is not None and not process.serving.give_back(task) and task.is_wanted and not process.sent()


def test_an_earlier_router_is_told_nothing_of_it() -> None:
    process = Process()
    registration = process.register()
    task = process.deliver(Kind.CAST)
    assert task is not None and not process.serving.give_back(task) and task.is_wanted
    process.serving.occupy(registration, 1)
    assert not process.sent()


@pytest.mark.parametrize("is_aside", [True, False])
def test_the_next_router_delivers_what_was_set_aside_and_nothing_else(process: Process, is_aside: bool) -> None:
    registration = process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    if is_aside:
        registration.set_aside.add(task)
    (register,) = [m for m in process.connect(boot=6, takes_back=True) if m[KIND_AT] == Kind.REGISTER]
    assert body_of(register).get("recent", "") == ("" if is_aside else task.key.hex())
    assert not registration.set_aside and not task.is_wanted
    again = process.deliver(Kind.CAST, key=task.key, flags=Flag.IDEMPOTENT | Flag.RESENT)
    assert (again is not None) == is_aside


def test_an_idempotent_cast_that_runs_on_is_not_taken_for_ended(process: Process) -> None:
    """It would be lost if this process died: the router that delivers it again is told when it has ended."""
    process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    process.connect(boot=6, takes_back=True)
    again = process.deliver(Kind.CAST, key=task.key, attempt=1, flags=Flag.IDEMPOTENT)
    assert again is not None and again.is_wanted
    process.serving.settle(0.0, task, Outcome.OK)
    process.serving.settle(0.0, again, Outcome.OK)
    assert [m[KIND_AT] for m in process.sent()] == [Kind.SETTLE]
    assert process.deliver(Kind.CAST, key=task.key, attempt=2, flags=Flag.IDEMPOTENT) is None


def test_the_next_router_is_told_the_end_of_an_idempotent_cast_that_is_sent_again_while_it_runs_on(
    process: Process,
) -> None:
    """Told at once, it would not have another consumer run it if this process died then."""
    process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    process.connect(boot=6, takes_back=True)
    process.sent()
    again = Flag.IDEMPOTENT | Flag.RESENT
    assert process.deliver(Kind.CAST, key=task.key, attempt=3, flags=again) is None
    assert not process.sent()
    # It may be offered once more by that router, which counts on the latest attempt.
    assert process.deliver(Kind.CAST, key=task.key, attempt=4, flags=again) is None
    process.serving.settle(0.0, task, Outcome.OK)
    (settled,) = process.sent()
    assert settled[KIND_AT] == Kind.SETTLE
    (settlement,) = SETTLEMENT.iter_unpack(payload_of(settled))
    assert settlement[:2] == (task.key, 4)
    assert process.deliver(Kind.CAST, key=task.key, attempt=5, flags=again) is None
    assert [m[KIND_AT] for m in process.sent()] == [Kind.SETTLE], "it has ended"


def test_no_earlier_router_is_told_of_that_end(process: Process) -> None:
    process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    process.connect(boot=6, takes_back=True)
    process.deliver(Kind.CAST, key=task.key, attempt=3, flags=Flag.IDEMPOTENT | Flag.RESENT)
    process.connect(boot=7, takes_back=True)
    process.sent()
    process.serving.settle(0.0, task, Outcome.OK)
    assert not process.sent()


@pytest.mark.parametrize("mesh", [{}, {"mesh": "east", "routers": []}])
def test_a_router_of_a_mesh_is_not_told_that_a_cast_was_had_that_runs_on_and_may_run_twice(
    process: Process, mesh: dict[str, Any]
) -> None:
    process.register()
    tasks = [process.deliver(Kind.CAST, flags=flags) for flags in (Flag.IDEMPOTENT, 0)]
    keys = [task.key.hex() for task in tasks if task is not None]
    (register,) = [m for m in process.connect(boot=6, mesh=mesh) if m[KIND_AT] == Kind.REGISTER]
    assert body_of(register)["recent"] == "".join(keys[1:] if mesh else keys)


def test_an_idempotent_cast_that_was_run_before_its_session_ended_is_not_run_again(process: Process) -> None:
    process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    process.serving.settle(0.0, task, Outcome.OK)
    process.connect(boot=6, takes_back=True)
    process.sent()
    assert process.deliver(Kind.CAST, key=task.key, attempt=2, flags=Flag.IDEMPOTENT) is None
    (settled,) = process.sent()
    assert settled[KIND_AT] == Kind.SETTLE
    other = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert other is not None and other.is_wanted


def test_a_consumer_that_was_taken_for_lost_leaves_what_it_has_not_begun_to_others(process: Process) -> None:
    registration = process.register()
    registration.sets_aside = True
    begun, waits, call = (process.deliver(kind) for kind in (Kind.CAST, Kind.CAST, Kind.REQUEST))
    copy = process.deliver(Kind.CAST, flags=Flag.FANOUT)
    assert begun is not None and waits is not None and call is not None and copy is not None
    assert registration.set_aside == {begun, waits}
    process.serving.settle(0.0, begun, Outcome.OK)
    registration.set_aside.discard(begun)
    process.sent()
    process.router(control(Kind.REGISTERED, {"topic": "compute.node-7"}, consumer=0))
    assert (waits.is_wanted, call.is_wanted, copy.is_wanted) == (False, True, True)
    assert not registration.set_aside and set(registration.running) == {call.key, copy.key}
    # It is not begun, and nobody is told of it.
    process.serving.settle(0.0, waits, Outcome.OK)
    assert not process.sent() and registration.unended == 2
    # They may come again, the one that was begun in vain.
    assert process.deliver(Kind.CAST, key=begun.key, flags=Flag.IDEMPOTENT) is None
    again = process.deliver(Kind.CAST, key=waits.key, flags=Flag.IDEMPOTENT)
    assert again is not None and registration.set_aside == {again}


def test_a_registration_that_is_unknown_has_nothing_to_leave(process: Process) -> None:
    process.router(control(Kind.REGISTERED, {"topic": "compute"}, consumer=7))
    assert not process.sent()


def test_a_consumer_is_doubtful_from_the_welcome_until_the_router_has_it_again(process: Process) -> None:
    registration, other = process.register(), process.register(tag=1)

    def resumes(lapsed: bool) -> list[bool]:
        process.connect(resumed=True, takes_back=True, lapsed=lapsed)
        return [each.is_lapsed for each in (registration, other)]

    assert resumes(lapsed=False) == [False, False]
    assert resumes(lapsed=True) == [True, True]
    process.router(control(Kind.REGISTERED, {"topic": "compute.node-7"}, consumer=0))
    # The connection was lost before the other word had come: it is still to come.
    assert resumes(lapsed=False) == [False, True]
    # Of one that was being registered meanwhile the ordinary word comes.
    process.router(control(Kind.REGISTERED, {"topic": "compute.node-7"}, key=bytes(19) + b"x", consumer=1))
    assert not other.is_lapsed
    assert resumes(lapsed=True) == [True, True]
    process.connect(boot=6, takes_back=True)
    assert not registration.is_lapsed and not other.is_lapsed


@pytest.mark.parametrize("flags", [Flag.IDEMPOTENT, Flag.IDEMPOTENT | Flag.RESENT])
def test_what_waits_gives_way_to_what_comes_again(process: Process, flags: int) -> None:
    """Of a cast that is set aside its sender may have told another router, and it is that one's then."""
    registration = process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    registration.set_aside.add(task)
    again = process.deliver(Kind.CAST, key=task.key, hops=1, flags=flags)
    assert again is not None and registration.running == {task.key: again}
    assert not registration.set_aside and not task.is_wanted
    assert not process.serving.give_back(task)
    process.serving.settle(0.0, again, Outcome.OK)
    (message,) = process.sent()
    assert message[KIND_AT] == Kind.SETTLE


def test_what_was_begun_does_not_run_once_more_for_another_router(process: Process) -> None:
    process.register()
    task = process.deliver(Kind.CAST, flags=Flag.IDEMPOTENT)
    assert task is not None
    assert process.deliver(Kind.CAST, key=task.key, hops=1, flags=Flag.IDEMPOTENT | Flag.RESENT) is None
