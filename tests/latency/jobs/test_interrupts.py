"""Signals while an engine works; with DuckDB: ``test_local``, with Spark: ``test_session``."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rpcmq.latency.jobs.interrupts import Interrupts

SECONDS = 60.0


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def watchers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "rpcmq interrupts"]


def test_whoever_loses_a_signal_is_interrupted_again_and_again_and_the_end_of_the_block_raises() -> None:
    called = threading.Semaphore(0)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:  # noqa: PT012
        with interrupts.repeated(called.release):
            with suppress(KeyboardInterrupt):  # as DuckDB does now and then
                signal.raise_signal(signal.SIGINT)
            for _ in range(3):
                assert called.acquire(timeout=SECONDS)
        raise AssertionError("the end of the block has not raised")
    assert watchers() == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_that_ends_the_block_is_not_disturbed_on_its_way() -> None:
    undisturbed = False
    with pytest.raises(SystemExit) as caught, Interrupts() as interrupts, interrupts.repeated(lambda: None):  # noqa: PT012
        try:
            raise ValueError("interrupted")
        except ValueError:
            signal.raise_signal(signal.SIGTERM)
            undisturbed = True
            raise
    assert undisturbed
    assert caught.value.code == 128 + signal.SIGTERM


def test_without_a_signal_nothing_is_interrupted_and_nothing_stays() -> None:
    called: list[None] = []
    with Interrupts() as interrupts, interrupts.repeated(lambda: called.append(None)):
        assert watchers() == ["rpcmq interrupts"]
        signal.raise_signal(signal.SIGCHLD)
    assert (called, watchers(), signal.set_wakeup_fd(-1)) == ([], [], -1)


def test_a_loop_that_waits_for_signals_keeps_them() -> None:
    told, teller = socket.socketpair()
    with told, teller:
        teller.setblocking(False)
        signal.set_wakeup_fd(teller.fileno())
        try:
            with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.repeated(lambda: None):  # noqa: PT012
                assert watchers() == []
                signal.raise_signal(signal.SIGINT)
            assert signal.set_wakeup_fd(-1) == teller.fileno()
        finally:
            signal.set_wakeup_fd(-1)
        assert told.recv(1) == bytes([signal.SIGINT])
