"""Heartbeats carry the time, so that their answers show how old they are."""

from __future__ import annotations

from rpcmq.core.process.pulse import Pulse
from rpcmq.wire import Kind, pack, payload_of


def answer(question: bytes) -> bytes:
    return pack(Kind.HEARTBEAT, payload_of(question), sequence=3)


def linked(now: float = 10.0) -> Pulse:
    pulse = Pulse()
    pulse.greets(now)
    pulse.welcomed(now + 1.0, 5.0)
    return pulse


def test_a_welcome_shows_that_the_router_counted_on_us_when_we_asked():
    assert linked(10.0).counted_on == 10.0


def test_an_answer_counts_from_its_question():
    pulse = linked(10.0)
    pulse.beats(16.0)
    late = answer(pulse.question(1))
    pulse.beats(21.0)
    pulse.answered(90.0, late)  # this process was stopped, and reads what has come before
    assert pulse.counted_on == 16.0
    pulse.answered(90.0, answer(pulse.question(1)))
    assert pulse.counted_on == 21.0
    pulse.answered(90.0, late)
    assert pulse.counted_on == 21.0


def test_a_heartbeat_that_answers_nothing_shows_nothing():
    pulse = linked(10.0)
    pulse.answered(20.0, pack(Kind.HEARTBEAT))
    assert pulse.counted_on == 10.0


def test_a_router_that_returns_no_times_is_believed_to_answer_at_once():
    pulse = linked(10.0)
    pulse.answered(20.0, pack(Kind.HEARTBEAT, sequence=3))
    assert pulse.counted_on == 20.0
    pulse.beats(21.0)
    pulse.answered(22.0, answer(pulse.question(1)))
    pulse.answered(23.0, pack(Kind.HEARTBEAT, sequence=3))
    assert pulse.counted_on == 21.0


def test_a_time_to_come_is_not_believed():
    pulse = linked(10.0)
    pulse.beats(50.0)
    pulse.answered(20.0, answer(pulse.question(1)))
    assert pulse.counted_on == 10.0


def test_who_needs_to_know_more_often_has_more_heartbeats():
    pulse = linked(10.0)
    assert pulse.next == 16.0
    assert pulse.at_most(0.5)
    assert not pulse.at_most(2.0)
    assert pulse.next == 11.5
    pulse.welcomed(20.0, 0.25)
    assert pulse.next == 20.25
