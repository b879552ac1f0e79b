"""Shells: gevent's keeps the contract, and a connection runs on any other that does, too."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent.monkey import get_original

from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.testing import InProcessRouter
from rpcmq.transport.connection import Connection
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.shell import Handle, Shell, WaitableEvent
from rpcmq.transport.wake_timer import WakeTimer
from rpcmq.wire import Kind, body_of, json_bytes
from rpcmq.wire.bodies import HelloBody

_select: Any = get_original("select", "select")


class _Callback:
    def __init__(self, function: Callable[[], object], due: float = 0.0, period: float = 0.0) -> None:
        self.function, self.due, self.period, self.stopped = function, due, period, False

    def stop(self) -> None:
        self.stopped = True

    close = stop


class _Flag:
    """Set by the loop in whose thread it is waited for: whoever waits turns that loop."""

    def __init__(self, shell: PlainShell) -> None:
        self._shell, self._is_set = shell, False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        end = monotonic() + (60.0 if timeout is None else timeout)
        while not self._is_set and monotonic() < end:
            self._shell.turn(end)
        return self._is_set


class PlainShell:
    """A loop over select() in a plain thread, without gevent: who waits turns it."""

    may_starve = True
    shares_interpreter = True

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._soon: deque[_Callback] = deque()
        self._timers: list[_Callback] = []
        self._readers: dict[_Callback, int] = {}
        self.errors: list[BaseException] = []

    def call_soon(self, function: Callable[..., object], *args: object) -> Handle:
        self._soon.append(_Callback(lambda: function(*args)))
        return self._soon[-1]

    def call_later(self, seconds: float, function: Callable[[], object]) -> Handle:
        self._timers.append(_Callback(function, monotonic() + seconds))
        return self._timers[-1]

    def call_every(self, seconds: float, function: Callable[[], object]) -> Handle:
        self._timers.append(_Callback(function, monotonic() + seconds, seconds))
        return self._timers[-1]

    def call_when_readable(self, fd: int, function: Callable[[], object]) -> Handle:
        callback = _Callback(function)
        self._readers[callback] = fd
        return callback

    def check_name(self, url: str, on_failure: Callable[[str], object]) -> Handle:
        return _Callback(lambda: None)

    @property
    def is_current(self) -> bool:
        return threading.get_ident() == self._thread

    can_wait = is_current

    def event(self) -> WaitableEvent:
        return _Flag(self)

    def sleep(self, seconds: float) -> None:
        self.turn(monotonic() + seconds)

    def run_together(self, functions: Sequence[Callable[[], object]]) -> None:
        for function in functions:
            function()

    def run_at_exit(self, function: Callable[[], object]) -> bool:
        return False

    def after_fork_in_child(self) -> None:
        raise AssertionError("nothing forks here")

    survives_fork = False

    def print_exception(self, context: object, error: BaseException) -> None:
        self.errors.append(error)

    def turn(self, end: float) -> None:
        """Wait until something is to be called, or until ``end``, and call it."""
        self._timers = [timer for timer in self._timers if not timer.stopped]
        self._readers = {callback: fd for callback, fd in self._readers.items() if not callback.stopped}
        due = min([end, *(timer.due for timer in self._timers)])
        pause = 0.0 if self._soon else max(0.0, due - monotonic())
        readable = _select([*self._readers.values()], [], [], pause)[0]
        now = monotonic()
        ready = [self._soon.popleft() for _ in range(len(self._soon))]
        ready += [callback for callback, fd in self._readers.items() if fd in readable]
        for timer in self._timers:
            if timer.due <= now:
                ready.append(timer)
        for callback in ready:
            if callback.stopped:
                continue
            if callback.period:
                callback.due = now + callback.period
            elif callback.due:
                callback.stop()
            callback.function()


def talk(url: str, shell: Shell) -> dict[str, Any]:
    """Ask the router at ``url`` for its statistics over a connection on ``shell``."""
    answered = shell.event()
    uplink = Uplink(
        HelloBody(versions=(1,), identity="plain", queue_type="roundrobin"),
        lambda now, welcome: None,
        lambda *why: None,
    )
    casts = Casts(uplink, lambda message, error: None)
    calls = Calls(uplink, casts)

    def welcomed(now: float, welcome: Welcome) -> None:
        calls.welcome(now, welcome)
        connection.on_ready()

    def wake() -> None:
        for call in calls.take_changed():
            if call.waiter is not None:
                call.waiter()

    uplink.on_welcome = welcomed
    connection = Connection((url,), uplink, (calls,), wake, lambda: None, shell=shell)
    connection.wait_ready(10.0)
    try:
        call = Call("router", 0, 10.0)
        call.waiter = answered.set
        calls.start(monotonic(), call, Kind.QUERY, json_bytes({"what": "overview"}))
        connection.send_soon()
        answered.wait(20)
        assert call.answer is not None, call.error
        return body_of(call.answer)
    finally:
        connection.close()
        assert connection.closed and connection.lost_wakeups == 0


def test_a_connection_runs_on_gevents_shell(router: InProcessRouter) -> None:
    assert talk(router.url, GeventShell())


def test_a_connection_runs_on_a_shell_without_gevent(router: InProcessRouter) -> None:
    said: list[object] = []

    def run() -> None:
        shell = PlainShell()
        try:
            said.append(talk(router.url, shell))
        except BaseException as error:
            said.append(error)
        said.extend(shell.errors)

    get_original("_thread", "start_new_thread")(run, ())
    with gevent.Timeout(20):
        while not said:
            gevent.sleep(0.01)
    (answer,) = said
    assert isinstance(answer, dict) and answer, answer


def test_gevents_shell_calls_soon_later_and_again() -> None:
    shell, calls = GeventShell(), list[object]()
    stopped = shell.call_soon(calls.append, "stopped")
    stopped.stop()
    shell.call_soon(calls.append, "soon")
    often, done = shell.event(), shell.event()

    def count() -> None:
        calls.append("again")
        if calls.count("again") > 2:
            often.set()

    again = shell.call_every(0.001, count)
    later = shell.call_later(0.05, done.set)
    for event in (often, done):
        event.wait(20)
    for handle in (again, later):
        handle.stop()
        handle.close()
    assert often.is_set() and done.is_set() and calls[0] == "soon" and "stopped" not in calls


def test_the_loop_itself_cannot_wait() -> None:
    shell, said = GeventShell(), list[bool]()
    assert shell.can_wait and shell.is_current
    shell.call_soon(lambda: said.append(shell.can_wait))
    shell.sleep(0.01)
    assert said == [False]


def test_a_wake_timer_fires_once_at_the_first_of_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, fired = PlainShell(), list[float]()
    timer = WakeTimer(shell, lambda: fired.append(monotonic()))
    now = monotonic()
    timer.fire_by(now + 60.0, now)
    timer.fire_by(now + 0.01, now)
    timer.fire_by(now + 0.02, now)
    assert timer.due == now + 0.01
    while not fired:
        shell.turn(now + 10)
    assert len(fired) == 1 and timer.due == 0.0
    timer.fire_by(monotonic() + 0.01, monotonic())
    timer.stop()
    shell.turn(monotonic() + 0.05)
    assert len(fired) == 1
