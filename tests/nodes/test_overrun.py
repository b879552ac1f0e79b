"""Steps that take too long are broken off in a router that runs, and nothing else is."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from typing import Any

import pytest
from gevent import subprocess

from rpcmq import Client
from rpcmq.config import load_router_config
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.router import Router
from rpcmq.errors import CallError, NoConsumer, UsageError
from rpcmq.nodes import Node
from rpcmq.nodes.loading import PlugIns
from rpcmq.nodes.overrun import Overrun, Steps, Watchdog
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.testing.nodes import plan_of
from rpcmq.transport.originals import allocate_lock
from tests.nodes import hostile
from tests.nodes.hostile import KIND

pytestmark = pytest.mark.integration


def test_a_step_is_broken_off_and_what_comes_after_it_is_not() -> None:
    steps = Steps()
    watchdog = Watchdog(steps)
    try:
        for _ in range(3):
            steps.begin(0.05)
            with pytest.raises(Overrun):
                _loop(steps)
            # Had another exception been on its way, it would come here.
            until = monotonic() + 0.1
            while monotonic() < until:
                pass
        steps.begin(10.0)
        until = monotonic() + 0.1
        while monotonic() < until:
            pass
        assert steps.end() >= 0.1
    finally:
        watchdog.close()


def test_a_step_that_waits_is_broken_off_after_a_while_and_one_on_a_busy_machine_is_not() -> None:
    steps = Steps()
    watchdog = Watchdog(steps)
    lock = allocate_lock()
    lock.acquire()
    try:
        steps.begin(0.05)
        lock.acquire(True, 0.3)  # as if others had the processor
        steps.end()
        with pytest.raises(Overrun):
            _wait(steps, lock)
    finally:
        watchdog.close()


def _wait(steps: Steps, lock: Any) -> None:
    steps.begin(0.02)
    try:
        for _ in range(200):
            lock.acquire(True, 0.05)
    finally:
        steps.end()


@pytest.mark.parametrize("wait", [partial(sleep, 600), lambda: os.read(os.pipe()[0], 1)], ids=["sleep", "read"])
def test_a_step_that_waits_within_a_system_call_is_woken(wait: Callable[[], object]) -> None:
    steps = Steps()
    watchdog = Watchdog(steps)
    try:
        for _ in range(2):
            steps.begin(0.01)
            with pytest.raises(Overrun):
                _end_after(steps, wait)
    finally:
        watchdog.close()
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL


def test_a_step_that_searches_for_ever_is_broken_off() -> None:
    steps = Steps()
    for _ in range(2):  # the second one takes over the signal that the first one has left
        watchdog = Watchdog(steps)
        try:
            steps.begin(0.01)
            with pytest.raises(Overrun):
                # Each letter more doubles the time: this search does not end.
                _end_after(steps, partial(re.match, "(a+)+$", "a" * 60 + "b"))
        finally:
            watchdog.close()
    signal.raise_signal(signal.SIGVTALRM)  # one that was on its way does no harm
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0.0


def test_a_timer_of_the_program_stays() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGVTALRM, lambda number, frame: came.append(number))
    try:
        Watchdog(Steps()).close()
        signal.raise_signal(signal.SIGVTALRM)
        until = monotonic() + 30
        while not came and monotonic() < until:
            pass
        assert came == [signal.SIGVTALRM]
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _end_after(steps: Steps, wait: Callable[[], object]) -> None:
    try:
        wait()
    finally:
        steps.end()


def test_a_handler_of_the_program_stays() -> None:
    before = signal.signal(signal.SIGURG, signal.SIG_IGN)
    try:
        Watchdog(Steps()).close()
        assert signal.getsignal(signal.SIGURG) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGURG, before)


def test_routers_in_one_process_share_the_handler() -> None:
    first, second = Watchdog(Steps()), Watchdog(Steps())
    first.close()
    steps = Steps()
    watchdog = Watchdog(steps)
    try:
        steps.begin(0.01)
        with pytest.raises(Overrun):
            _end_after(steps, partial(sleep, 600))
    finally:
        watchdog.close()
        second.close()


def _loop(steps: Steps) -> None:
    try:
        while True:
            pass
    finally:
        steps.end()


_PROFILED = """
import sys
from rpcmq.nodes.overrun import Overrun, Steps, Watchdog

steps = Steps()
watchdog = Watchdog(steps)
steps.begin(0.01)
try:
    while True:
        pass
except Overrun:
    pass
steps.end()
watchdog.close()
sys.setprofile(lambda *_: None)
(lambda: None)()
sys.setprofile(None)
"""


def test_a_step_that_was_broken_off_leaves_nothing_for_the_interpreter_to_look_for() -> None:
    # Under a profiler CPython 3.11 hung.
    assert subprocess.run([sys.executable, "-c", _PROFILED], timeout=60, check=False).returncode == 0


def test_no_exception_comes_after_the_end_of_a_step_however_close_its_time_was() -> None:
    """Steps that end before and after their time is up."""
    steps = Steps()
    watchdog = Watchdog(steps)
    hit = 0
    try:
        for number in range(60):
            try:
                steps.begin(0.001)
                until = monotonic() + 0.001 * number
                while monotonic() < until:
                    pass
                steps.end()
            except Overrun:
                steps.end()
                hit += 1
            for _ in range(2000):
                len("after it")
    finally:
        watchdog.close()
    assert 0 < hit < 60


@pytest.mark.own_hub
@pytest.mark.parametrize("node", [hostile.Loops, hostile.LoopsAndCatches, hostile.Sleeps, hostile.Searches])
def test_a_node_that_loops_is_taken_out_of_a_router_that_goes_on(node: type[Node]) -> None:
    notes: list[LogEvent] = []
    plug_ins = PlugIns([plan_of(node, "looper", max_seconds=0.1)])

    config = load_router_config(flags={"router.listen": "tcp://127.0.0.1:0"})
    router = EmbeddedRouter(config, notes.append, partial(Router, plug_ins=plug_ins.makers))
    plug_ins.watch()
    try:
        with Client(router.url) as client:
            with pytest.raises(NoConsumer, match=r"longer than max_seconds = 0\.1"):
                client.ask_node(KIND, timeout=30)
            assert client.query("nodes", timeout=30)["nodes"][0]["state"] == "out"
            assert client.restart_node("looper", timeout=30) == ""
            assert client.control_node("looper", "do", {"a": 1}, timeout=30) == {"did": {"a": 1}}
            with pytest.raises(UsageError, match="those of nodes are from 0x80"):
                client.ask_node(0x11)
            with pytest.raises(CallError, match="unknown"):
                client.control_node("nobody", "do", timeout=30)
    finally:
        router.close()
        plug_ins.close()
    assert [note.event for note in notes].count("node out") == 1
