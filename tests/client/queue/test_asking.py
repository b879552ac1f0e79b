"""Questions about items, step by step: how long each may take."""

from __future__ import annotations

import pytest

from rpcmq.client.queue.asking import result, state
from rpcmq.client.queue.places import ItemPlace
from rpcmq.client.queue.steps import Ask, End, Pause, Steps, next_step
from rpcmq.errors import CallTimeout, Overloaded, RemoteError

PLACE = ItemPlace("billing", "a", "invoice-1", 0, 1)


def question_of(step: object) -> Ask:
    assert isinstance(step, Ask)
    return step


@pytest.mark.parametrize("steps", [state(PLACE, 1.0), result(PLACE, 1.0)], ids=["state", "result"])
def test_an_owner_that_is_stopped_is_hardly_waited_for_longer_than_was_asked(steps: Steps[object]) -> None:
    assert question_of(next(steps)).seconds <= 2.0
    assert isinstance(steps.throw(CallTimeout("nobody answers")), Pause)
    assert question_of(next(steps)).seconds <= 2.0


def test_a_wait_for_a_result_of_a_stopped_owner_names_the_item() -> None:
    steps = result(PLACE, 0.0)
    assert question_of(next(steps))
    with pytest.raises(CallTimeout, match="'invoice-1' of queue 'billing' at a: its owner has not said within 0 s"):
        steps.throw(CallTimeout("nobody answers"))


def test_a_long_wait_for_a_result_is_of_many_questions() -> None:
    question = question_of(next(result(PLACE, 3600.0)))
    assert question.message["args"]["seconds"] < question.seconds < 60.0


CROWDED = RemoteError("rpcmq.client.queue.protocol.Crowded", "64 MiB wait")


def test_whoever_is_crowded_out_asks_again_until_the_time_is_over() -> None:
    steps = state(PLACE, 5.0)
    assert question_of(next(steps))
    assert isinstance(next_step(steps, error=CROWDED), Pause)
    assert question_of(next(steps))
    assert next_step(steps, ("ready", 0, "")) == End(("ready", 0, ""))
    steps = state(PLACE, 0.0)
    assert question_of(next(steps))
    with pytest.raises(Overloaded, match="64 MiB wait"):
        steps.throw(CROWDED)


def test_another_failure_of_a_queue_server_is_told() -> None:
    steps = state(PLACE, 5.0)
    assert question_of(next(steps))
    with pytest.raises(RemoteError, match="no such thing"):
        steps.throw(RemoteError("builtins.ValueError", "no such thing"))
