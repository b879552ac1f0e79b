"""Green threads: how they begin, end, fail and die."""

from __future__ import annotations

from typing import Any

import gevent
import pytest
from greenlet import GreenletExit


def test_wait_gives_what_the_function_returned(eventlet: Any):
    assert eventlet.spawn(lambda a, b: a - b, 5, b=3).wait() == 2


def test_spawned_functions_run_in_turn_and_not_before_their_spawner_waits(eventlet: Any):
    order: list[Any] = []
    eventlet.spawn_n(order.append, 1)
    eventlet.spawn(order.append, 2)
    eventlet.spawn_after(0, order.append, 3)
    assert order == []
    eventlet.sleep(0)
    assert order == [1, 2, 3]


def test_an_error_is_raised_at_who_waits_and_printed(eventlet: Any, capsys: pytest.CaptureFixture[str]):
    thread = eventlet.spawn(int, "boom")
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            thread.wait()
    printed = capsys.readouterr().err
    assert "Traceback (most recent call last)" in printed and "ValueError: invalid literal" in printed


@pytest.mark.parametrize("spawn", ["spawn", "spawn_n"])
def test_an_error_that_nobody_waits_for_is_printed_too(eventlet: Any, spawn: str, capsys: pytest.CaptureFixture[str]):
    getattr(eventlet, spawn)(int, "boom")
    eventlet.sleep(0)
    assert "Traceback" in capsys.readouterr().err


def test_errors_are_not_printed_if_so_wished(eventlet: Any, capsys: pytest.CaptureFixture[str]):
    eventlet.debug.hub_exceptions(False)
    try:
        with pytest.raises(ValueError, match="boom"):
            eventlet.spawn(int, "boom").wait()
    finally:
        eventlet.debug.hub_exceptions(True)
    assert capsys.readouterr().err == ""


def test_system_exit_ends_the_main_greenlet(eventlet: Any):
    def leave() -> None:
        raise SystemExit(3)

    eventlet.spawn_n(leave)
    with pytest.raises(SystemExit):
        eventlet.sleep(1)


# --- kill -----------------------------------------------------------------------------------------


def test_waiting_for_a_killed_one_raises_greenlet_exit(eventlet: Any, capsys: pytest.CaptureFixture[str]):
    thread = eventlet.spawn(eventlet.sleep, 60)
    eventlet.sleep(0)
    assert thread and not thread.dead
    thread.kill()
    assert thread.dead and not thread
    with pytest.raises(GreenletExit):
        thread.wait()
    assert capsys.readouterr().err == ""


def test_kill_returns_when_the_killed_one_has_cleaned_up(eventlet: Any):
    cleaned: list[int] = []

    def run() -> None:
        try:
            eventlet.sleep(60)
        finally:
            cleaned.append(1)

    thread = eventlet.spawn(run)
    eventlet.sleep(0)
    eventlet.kill(thread)
    assert cleaned == [1]


def test_kill_does_not_wait_for_one_that_survives(eventlet: Any):
    def run() -> str:
        try:
            eventlet.sleep(60)
        except GreenletExit:
            eventlet.sleep(0.01)
        return "survived"

    thread = eventlet.spawn(run)
    eventlet.sleep(0)
    thread.kill()
    assert not thread.dead
    assert thread.wait() == "survived"


def test_one_that_is_killed_before_it_began_never_begins(eventlet: Any):
    ran: list[int] = []
    linked: list[Any] = []
    thread = eventlet.spawn(ran.append, 1)
    thread.link(linked.append)
    thread.kill()
    assert thread.dead and linked == [thread]
    with pytest.raises(GreenletExit):
        thread.wait()
    eventlet.sleep(0.01)
    assert ran == []


def test_kill_with_an_exception(eventlet: Any):
    waiting = eventlet.spawn(eventlet.sleep, 60)
    eventlet.sleep(0)
    unbegun = eventlet.spawn(eventlet.sleep, 60)
    for thread in (waiting, unbegun):
        thread.kill(KeyError("why"))
        with pytest.raises(KeyError, match="why"):
            thread.wait()


def test_the_dead_are_not_killed_again(eventlet: Any):
    thread = eventlet.spawn(lambda: 7)
    thread.wait()
    thread.kill()
    thread.kill(ValueError)
    assert thread.wait() == 7


def test_one_may_kill_itself(eventlet: Any):
    after: list[int] = []

    def run() -> None:
        eventlet.kill(eventlet.getcurrent())
        after.append(1)

    with pytest.raises(GreenletExit):
        eventlet.spawn(run).wait()
    assert after == []


def test_bare_greenlets_and_gevents_can_be_killed(eventlet: Any):
    ended: list[str] = []

    def run(name: str) -> None:
        try:
            eventlet.sleep(60)
        finally:
            ended.append(name)

    bare, theirs = eventlet.spawn_n(run, "bare"), gevent.spawn(run, "gevent")
    eventlet.sleep(0)
    unbegun = eventlet.spawn_n(run, "unbegun")
    for each in (unbegun, bare, theirs):
        eventlet.kill(each)
        assert each.dead
    eventlet.sleep(0)
    assert ended == ["bare", "gevent"]


# --- links ----------------------------------------------------------------------------------------


def test_links_get_the_thread_and_their_arguments(eventlet: Any):
    calls: list[Any] = []

    def linked(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    thread = eventlet.spawn(lambda: 1)
    thread.link(linked, "a", b=2)
    thread.wait()
    eventlet.sleep(0)
    thread.link(linked, "late")
    assert calls == [((thread, "a"), {"b": 2}), ((thread, "late"), {})]


def test_a_link_is_called_after_an_error_too_and_can_wait_for_the_thread(eventlet: Any):
    seen: list[Any] = []

    def linked(thread: Any) -> None:
        with pytest.raises(ValueError, match="boom"):
            thread.wait()
        seen.append(thread)

    thread = eventlet.spawn(int, "boom")
    thread.link(linked)
    eventlet.sleep(0)
    assert seen == [thread]


def test_unlink_takes_back_what_was_linked_with_the_same_arguments(eventlet: Any):
    calls: list[Any] = []
    thread = eventlet.spawn(lambda: 1)
    thread.link(calls.append)
    assert thread.unlink(calls.append, "other") is False
    assert thread.unlink(calls.append) is True
    thread.wait()
    eventlet.sleep(0)
    assert calls == []


# --- later ----------------------------------------------------------------------------------------


def test_spawn_after_waits_and_can_be_cancelled(eventlet: Any):
    late = eventlet.spawn_after(0.01, lambda: "late")
    never = eventlet.spawn_after(0.005, pytest.fail, "it was cancelled")
    never.cancel()
    assert late.wait() == "late"
    with pytest.raises(GreenletExit):
        never.wait()


def test_cancel_leaves_one_alone_that_has_begun(eventlet: Any):
    thread = eventlet.spawn(lambda: eventlet.sleep(0.01) or "done")
    eventlet.sleep(0)
    thread.cancel()
    assert thread.wait() == "done"


def test_spawn_after_local_needs_its_spawner_alive(eventlet: Any):
    ran: list[str] = []

    def spawner() -> None:
        eventlet.spawn_after_local(0.005, ran.append, "local")
        eventlet.spawn_after(0.005, ran.append, "global")

    eventlet.spawn(spawner).wait()
    eventlet.spawn_after_local(0.005, ran.append, "mine")
    eventlet.sleep(0.03)
    assert ran == ["global", "mine"]


def test_exc_after_raises_here(eventlet: Any):
    timer = eventlet.exc_after(0.005, KeyError)
    with pytest.raises(KeyError):
        eventlet.sleep(5)
    assert not timer.pending
    eventlet.exc_after(0.005, KeyError).cancel()
    eventlet.sleep(0.01)


# --- a killed service --------------------------------------------------------------------------------


def test_a_loop_that_is_killed_and_waited_for(eventlet: Any):
    """As services of the Diablo era stop: kill, then wait, and GreenletExit is no surprise."""
    beats: list[int] = []

    def loop() -> None:
        while True:
            beats.append(1)
            eventlet.sleep(0)

    thread = eventlet.spawn(loop)
    for _ in range(3):
        eventlet.sleep(0)
    thread.kill()
    with pytest.raises(GreenletExit):
        thread.wait()
    count = len(beats)
    eventlet.sleep(0)
    assert count == len(beats) >= 3
