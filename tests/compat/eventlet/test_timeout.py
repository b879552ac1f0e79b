from __future__ import annotations

from typing import Any

import pytest


def test_it_counts_from_the_moment_it_is_made(eventlet: Any):
    timeout = eventlet.Timeout(0.001)
    assert timeout.pending
    with pytest.raises(eventlet.Timeout) as caught:
        eventlet.sleep(5)
    assert caught.value is timeout and not timeout.pending


def test_cancelled_ones_and_those_of_none_are_not_raised(eventlet: Any):
    eventlet.Timeout(0.001).cancel()
    never = eventlet.Timeout()
    assert not never.pending
    eventlet.sleep(0.005)
    never.cancel()


def test_with_ends_it(eventlet: Any):
    with eventlet.Timeout(0.005) as timeout:
        assert timeout.pending
    assert not timeout.pending
    eventlet.sleep(0.01)
    with pytest.raises(eventlet.Timeout), timeout:
        eventlet.sleep(5)


def test_false_is_silent_and_only_for_itself(eventlet: Any):
    after: list[int] = []
    with eventlet.Timeout(0.001, False):
        eventlet.sleep(5)
        after.append(1)
    assert after == []
    outer = eventlet.Timeout(0.001)
    with pytest.raises(eventlet.Timeout) as caught, eventlet.Timeout(5, False):
        eventlet.sleep(5)
    assert caught.value is outer


@pytest.mark.parametrize("exception", [KeyError, KeyError("late")])
def test_another_exception_can_be_raised(eventlet: Any, exception: Any):
    with pytest.raises(KeyError), eventlet.Timeout(0.001, exception):
        eventlet.sleep(5)


def test_it_is_no_ordinary_exception(eventlet: Any):
    assert not issubclass(eventlet.Timeout, Exception)
    assert eventlet.Timeout is eventlet.timeout.Timeout


def test_starting_twice_is_an_error(eventlet: Any):
    timeout = eventlet.Timeout(5)
    with pytest.raises(AssertionError):
        timeout.start()
    timeout.cancel()
    timeout.start()
    timeout.cancel()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), ""),
        ((1,), "1 second"),
        ((2.5,), "2.5 seconds"),
        ((2, True), "2 seconds"),
        ((2, False), "2 seconds (silent)"),
        ((2, KeyError), "2 seconds (<class 'KeyError'>)"),
    ],
)
def test_its_text(eventlet: Any, args: tuple[Any, ...], text: str):
    timeout = eventlet.Timeout(*args)
    timeout.cancel()
    assert str(timeout) == text


def test_with_timeout(eventlet: Any):
    assert eventlet.with_timeout(1, int, "5") == 5
    assert eventlet.with_timeout(0.001, eventlet.sleep, 5, timeout_value="late") == "late"
    with pytest.raises(eventlet.Timeout):
        eventlet.with_timeout(0.001, eventlet.sleep, 5)

    def inner() -> None:
        raise eventlet.Timeout

    with pytest.raises(eventlet.Timeout):
        eventlet.with_timeout(1, inner, timeout_value="not that of somebody else")


def test_it_hits_who_made_it(eventlet: Any):
    def worker() -> str:
        with eventlet.Timeout(0.001, False):
            eventlet.sleep(5)
        return "went on"

    thread = eventlet.spawn(worker)
    eventlet.sleep(0.005)
    assert thread.wait() == "went on"
