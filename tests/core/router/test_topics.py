"""Statistics that count late, and queues of messages whose sender used a sequence twice."""

from __future__ import annotations

import random

import pytest

from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.model import Request
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.errors import Outcome
from rpcmq.histogram import Histogram, microseconds


def test_what_was_answered_is_seen_whenever_one_looks():
    rng = random.Random(3)
    statistics = Statistics("compute", "reboot")
    expected = Histogram()
    for number in range(1, 1001):
        seconds = rng.choice([0.0, 0.001, 0.001, rng.random()])
        statistics.answered(seconds)
        expected.record(microseconds(seconds))
        if rng.random() < 0.05:
            assert statistics.outcomes == {Outcome.OK: number}
            assert statistics.latency.count == number
    assert statistics.latency.to_dict() == expected.to_dict()


def test_other_ends_have_an_outcome_and_a_latency_too():
    statistics = Statistics("compute", "reboot")
    statistics.answered(0.5)
    statistics.ended(Outcome.TIMEOUT, 2.0)
    statistics.ended(Outcome.OVERLOADED, 0.0)
    assert statistics.outcomes == {Outcome.OK: 1, Outcome.TIMEOUT: 1, Outcome.OVERLOADED: 1}
    assert (statistics.latency.count, statistics.latency.min, statistics.latency.max) == (3, 0, 2_000_000)


@pytest.mark.parametrize(("seconds", "us"), [(0.0, 0), (-1e-9, 0), (4.9e-7, 0), (5e-7, 1), (1.2345674, 1_234_567)])
def test_durations_count_in_whole_microseconds(seconds: float, us: int):
    statistics = Statistics("compute", "reboot")
    statistics.answered(seconds)
    statistics.ended(Outcome.TIMEOUT, seconds)
    assert (statistics.latency.sum, statistics.latency.min, statistics.latency.max) == (2 * us, us, us)


def test_latencies_that_wait_to_be_counted_are_bounded():
    statistics = Statistics("compute", "reboot")
    for number in range(100_000):
        statistics.answered(number / 1e6)
        assert len(statistics._answered) <= 64


def pending(number: int) -> Request:
    made = Request()
    made.key, made.message, made.number = b"k" * 20, bytes(40), number
    return made


def test_messages_of_one_key_are_kept_apart_in_a_queue():
    queue: Queue[Request] = Queue("compute")
    first, second, third = pending(1), pending(2), pending(3)
    for one in (first, second, third):
        queue.append(one)
    queue.remove(second)
    assert (len(queue), queue.size_bytes, queue.head_number()) == (2, 80, 1)
    assert (queue.popleft(), queue.popleft()) == (first, third)
    assert (len(queue), queue.size_bytes, queue.head_number()) == (0, 0, None)


def test_what_could_not_be_delivered_goes_back_to_the_front():
    queue: Queue[Request] = Queue("compute")
    first, second = pending(1), pending(2)
    queue.append(second)
    queue.requeue(first)
    assert list(queue) == [first, second]
    assert first.queue is queue
