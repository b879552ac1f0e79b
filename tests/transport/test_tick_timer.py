"""The timer of a router's ticks."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest

from rpcmq.transport.tick_timer import TickTimer


class Loop:
    """A loop whose timers fire when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.function: Callable[[], None] = lambda: None

    def timer(self, seconds: float) -> Loop:
        self.seconds = seconds
        return self

    def start(self, function: Callable[[], None]) -> None:
        self.function = function

    def stop(self) -> None:
        pass

    close = stop


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def timer(loop, said) -> TickTimer:
    say = said.append
    return TickTimer(loop, lambda now: say("tick"), lambda: say("catch up"), lambda: say("look"))


def test_one_deadline_is_waited_for(timer, loop, said):
    now = monotonic()
    timer.fire_by(now + 0.3, now)
    assert loop.seconds == pytest.approx(0.3)
    loop.function()
    assert said == ["tick"]


def test_where_wake_ups_follow_each_other_it_fires_early_and_only_looks(timer, loop, said):
    now = monotonic()
    timer.fire_by(now + 0.3, now)
    timer.fire_by(now + 0.2, now + 0.001)
    assert loop.seconds == pytest.approx(0.005)
    assert timer.fires_soon(now + 0.002)
    loop.function()
    assert said == ["look"]
    timer.fire_by(now + 0.2, now + 0.1)
    loop.function()
    assert said == ["look", "tick"]


def test_what_is_due_soon_is_not_put_off_where_wake_ups_follow_each_other(timer, loop, said):
    now = monotonic()
    timer.fire_by(now + 0.3, now)
    timer.fire_by(now + 0.004, now + 0.001)
    assert loop.seconds == pytest.approx(0.003)
    loop.function()
    assert said == ["tick"]
