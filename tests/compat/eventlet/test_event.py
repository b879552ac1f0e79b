from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def event(eventlet: Any) -> Any:
    return eventlet.event.Event()


def test_everybody_who_waits_gets_what_is_sent(eventlet: Any, event: Any):
    threads = [eventlet.spawn(event.wait) for _ in range(3)]
    eventlet.sleep(0)
    assert not event.ready() and event.poll("nothing") == "nothing"
    event.send({"answer": 42})
    assert [thread.wait() for thread in threads] == [{"answer": 42}] * 3
    assert event.ready() and event.has_result() and not event.has_exception()
    assert event.wait() is event.poll() is event.poll_result()


def test_none_can_be_sent(eventlet: Any, event: Any):
    eventlet.spawn_after(0.001, event.send)
    assert event.wait() is None
    assert event.ready() and event.has_result()


def test_sending_twice_is_an_error(event: Any):
    event.send(1)
    with pytest.raises(AssertionError):
        event.send(2)
    with pytest.raises(AssertionError):
        event.send_exception(ValueError())
    assert event.wait() == 1


def test_an_exception_is_raised_at_everybody(eventlet: Any, event: Any):
    def wait() -> str:
        with pytest.raises(ValueError, match="bad"):
            event.wait()
        return "raised"

    threads = [eventlet.spawn(wait) for _ in range(2)]
    eventlet.sleep(0)
    event.send_exception(ValueError("bad"))
    assert [thread.wait() for thread in threads] == ["raised"] * 2
    assert event.has_exception() and not event.has_result()
    with pytest.raises(ValueError, match="bad"):
        event.poll_exception()
    assert event.poll_result("none") == "none"


@pytest.mark.parametrize("exc", [KeyError, KeyError("k"), (KeyError, KeyError("k"), None)])
def test_exceptions_in_all_their_forms(eventlet: Any, exc: Any):
    event = eventlet.event.Event()
    event.send(exc=exc)
    with pytest.raises(KeyError):
        event.wait()


def test_reset_makes_it_fresh(eventlet: Any, event: Any):
    with pytest.raises(AssertionError):
        event.reset()
    event.send(1)
    event.reset()
    assert not event.ready()
    eventlet.spawn_n(event.send, 2)
    assert event.wait() == 2


def test_who_is_killed_while_waiting_harms_nobody(eventlet: Any, event: Any):
    first, second = eventlet.spawn(event.wait), eventlet.spawn(event.wait)
    eventlet.sleep(0)
    first.kill()
    event.send("x")
    assert second.wait() == "x"


def test_wait_for_a_limited_time(eventlet: Any, event: Any):
    assert event.wait(timeout=0.001) is None
    event.send(0)
    assert event.wait(timeout=0.001) == 0


def test_a_timeout_of_the_caller_goes_through(eventlet: Any, event: Any):
    with pytest.raises(eventlet.Timeout), eventlet.Timeout(0.001):
        event.wait()
