"""The home of the clients and services of a test, which itself lives in gevent, as the router of these tests does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from time import monotonic
from typing import Any

import gevent
import gevent.event
import pytest
from gevent.threadpool import ThreadPool

__all__ = [
    "CLIENT_SHELL",
    "each_blocking_shell",
    "each_shell",
    "each_shell_at_length",
    "in_thread",
    "new_event",
    "ordered",
    "over",
]

#: The setting ``shell`` of the clients and services of these tests: ``CLIENT_SHELL=threads`` has those of tests/client
#: live in a plain thread; ``CLIENT_SHELL=aio`` takes those of :mod:`rpcmq.aio`.
CLIENT_SHELL = os.environ.get("CLIENT_SHELL", "gevent")

#: The home of those of the test that runs.
_current = CLIENT_SHELL

NOT_OURS = "drives the client's engines in the test's own hub"

_pool: ThreadPool | None = None


def in_thread(function: Any, *args: Any, **options: Any) -> Any:
    """Run ``function`` in a thread; return its result or raise its exception."""
    global _pool
    if _pool is None:
        _pool = ThreadPool(200)

    def run() -> tuple[Any, BaseException | None]:
        try:
            return function(*args, **options), None
        except BaseException as error:
            return None, error

    value, error = _pool.apply(run)
    if error is not None:
        raise error
    return value


class Event:
    """A flag that greenlets and threads wait for, beside each other."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float = 60.0) -> bool:
        end = monotonic() + timeout
        while not self._is_set and monotonic() < end:
            gevent.sleep(0.002)
        return self._is_set


def new_event() -> Any:
    """A flag for handlers, wherever these tests run them."""
    return gevent.event.Event() if _current == "gevent" else Event()


def ordered(seen: list[Any]) -> list[Any]:
    """What handlers have ``seen``, in order; sorted where they are threads, which begin in any order."""
    return seen if _current == "gevent" else sorted(seen)


def over(shell: str, test: Any) -> Iterator[str]:
    """Have ``test`` use ``shell``, or skip it where it cannot."""
    global _current
    if shell != "gevent" and test.get_closest_marker("own_hub"):
        pytest.skip(NOT_OURS)
    if shell != "gevent" and test.get_closest_marker("in_order"):
        pytest.skip("handlers of threads begin in any order")
    if shell == "aio" and test.get_closest_marker("refuses_async"):
        pytest.skip("asyncio runs async methods and handlers")
    _current = shell
    yield shell
    _current = CLIENT_SHELL


@pytest.fixture(params=["gevent", "threads", "aio"] if CLIENT_SHELL == "gevent" else [CLIENT_SHELL])
def each_shell(request: pytest.FixtureRequest) -> Iterator[str]:
    """The fixture ``client_shell`` of a module whose tests run over gevent, over plain threads and over asyncio."""
    yield from over(request.param, request.node)


_OTHERS = [pytest.param(shell, marks=pytest.mark.long) for shell in ("threads", "aio")]


@pytest.fixture(params=["gevent", *_OTHERS] if CLIENT_SHELL == "gevent" else [CLIENT_SHELL])
def each_shell_at_length(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same of a module with slow tests: those over threads and asyncio are among the long ones that CI runs."""
    yield from over(request.param, request.node)


@pytest.fixture(params=["gevent", "threads"] if CLIENT_SHELL == "gevent" else [CLIENT_SHELL])
def each_blocking_shell(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same for tests of what asyncio has otherwise."""
    if request.param == "aio":
        pytest.skip("tests/aio has these")
    yield from over(request.param, request.node)
