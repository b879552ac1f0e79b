"""Threads that do for the main thread what a signal must not leave half done."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import pytest

from rpcmq.transport.originals import get_ident
from rpcmq.transport.thread_deputies import Errand, is_to_be_deputed
from tests.from_threads import in_thread

user: ContextVar[str] = ContextVar("user")


def test_only_the_main_thread_has_deputies():
    assert is_to_be_deputed()
    assert not in_thread(is_to_be_deputed)


def test_an_errand_is_run_elsewhere_in_the_context_of_the_main_thread():
    user.set("u")
    assert Errand(user.get).run() == "u"
    first, second = (Errand(get_ident).run() for _ in range(2))
    assert first == second != threading.main_thread().ident


def test_what_an_errand_raises_is_raised():
    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        Errand(fail).run()


def test_messages_are_handled_here_and_all_of_them_before_the_result():
    told: list[Any] = []

    def work() -> str:
        for n in range(100):
            errand.tell(n)
        return "done"

    errand = Errand(work, on_message=lambda message: told.append((message, get_ident())))
    assert errand.run() == "done"
    assert told == [(n, threading.main_thread().ident) for n in range(100)]


def test_an_exception_of_the_handler_of_messages_withdraws_the_errand():
    calls: list[str] = []
    go_on = threading.Event()

    def work() -> None:
        errand.tell("half")
        go_on.wait(20)

    def fail(message: str) -> None:
        raise ValueError(message)

    errand = Errand(work, lambda: calls.append("withdrawn"), lambda: calls.append("awaited"), fail)
    with pytest.raises(ValueError, match="half"):
        errand.run()
    assert calls == ["withdrawn", "awaited"]
    go_on.set()
