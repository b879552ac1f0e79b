"""The transition table of a call: each row by what really happens in a process, and that nothing else is taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.core.common import illegal_events
from rpcmq.core.common.illegal_events import IllegalEvent
from rpcmq.core.process.call import Call
from rpcmq.core.process.call_states import TRANSITIONS, CallState
from rpcmq.errors import CallError, LinkLost, Outcome
from rpcmq.testing import checked_states
from rpcmq.wire import Kind, pack
from tests.core.process.calling import COMPUTE, Process

NEW, OPEN, CANCELLED, ANSWERED, FAILED = CallState
Row = tuple[CallState, str]


def in_state(process: Process, state: CallState) -> Call:
    if state is NEW:
        return Call("compute", 0, 10.0)
    call = process.start()
    if state is CANCELLED:
        process.calls.cancel(call)
    elif state is ANSWERED:
        answered(process, call)
    elif state is FAILED:
        process.error(call.key, Outcome.TIMEOUT)
    assert call.state is state
    return call


def started(process: Process, call: Call) -> None:
    process.calls.start(0.0, call, Kind.REQUEST, b"", address=COMPUTE)


def answered(process: Process, call: Call) -> None:
    process.router(pack(Kind.REPLY, b"done", key=call.key))


def failed(process: Process, call: Call) -> None:
    process.calls._table.fail(call, LinkLost("why", {}))


def cancelled(process: Process, call: Call) -> None:
    process.calls.cancel(call)


EVENTS: dict[str, Callable[[Process, Call], None]] = {
    "started": started,
    "answered": answered,
    "failed": failed,
    "cancelled": cancelled,
}


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=str)
def test_each_row_of_the_table_happens_in_a_process(process: Process, state: CallState, event: str) -> None:
    call = in_state(process, state)
    checked_states.seen.clear()
    EVENTS[event](process, call)
    assert checked_states.seen == {(state, event): 1}
    assert call.state is TRANSITIONS[state, event]
    assert (call.key in process.calls.open) is (call.state is OPEN)


@pytest.mark.parametrize("state", [ANSWERED, FAILED])
def test_messages_about_what_has_ended_are_late_and_cancelling_it_is_no_event(
    process: Process, state: CallState
) -> None:
    call = in_state(process, state)
    checked_states.seen.clear()
    answered(process, call)
    process.error(call.key, Outcome.TIMEOUT)
    process.calls.cancel(call)
    assert call.state is state and not checked_states.seen
    assert process.calls.counters == {"late replies": 1, "late errors": 1}


@pytest.mark.parametrize("state", [OPEN, ANSWERED, FAILED])
def test_a_call_is_not_started_twice(process: Process, state: CallState) -> None:
    call = in_state(process, state)
    with pytest.raises(IllegalEvent, match=f"call: started while it is {state.value}"):
        started(process, call)
    illegal_events.raised.clear()
    assert call.state is state


@pytest.mark.parametrize("state", [ANSWERED, FAILED])
def test_a_call_ends_once(process: Process, monkeypatch: pytest.MonkeyPatch, state: CallState) -> None:
    call = in_state(process, state)
    process.woken()
    answer, error = call.answer, call.error
    with pytest.raises(IllegalEvent, match=f"call: failed while it is {state.value}"):
        failed(process, call)
    illegal_events.raised.clear()

    # In production it is counted, and reported once; its waiter is not woken again.
    monkeypatch.setattr(illegal_events, "_strict", False)
    process.uplink.illegal.counts.clear()
    errors: list[Exception] = []
    process.uplink.on_error = errors.append
    for _ in range(3):
        failed(process, call)
    assert process.uplink.illegal.counts == {f"call: failed while it is {state.value}": 3}
    assert [str(each) for each in errors] == [f"call: failed while it is {state.value}"]
    assert (call.answer, call.error) == (answer, error) and process.woken() == []


@pytest.mark.parametrize(
    ("field", "value", "event"),
    [("answer", b"done", "answered"), ("error", CallError("why"), "failed"), ("cancelled", True, "cancelled")],
)
@pytest.mark.parametrize("state", CallState)
def test_what_the_table_lacks_raises_in_tests(
    process: Process, state: CallState, field: str, value: object, event: str
) -> None:
    call = in_state(process, state)
    if (state, event) in TRANSITIONS:
        setattr(call, field, value)
        assert call.state is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalEvent, match=f"call: {event} while it is {state.value}"):
        setattr(call, field, value)
    illegal_events.raised.clear()
    assert call.state is state
