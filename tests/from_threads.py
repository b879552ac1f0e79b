"""Clients and services of ``rpcmq.threads`` for tests that live in gevent, as the router of these tests does.

Each verb runs in a thread of its own, and only the greenlet that uses it waits: what waits in a plain thread would
hold up the hub.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import wraps
from time import monotonic
from typing import Any

import gevent
import gevent.event
import pytest
from gevent.threadpool import ThreadPool

import rpcmq.threads

__all__ = ["CLIENT_SHELL", "client", "each_shell", "in_thread", "new_event", "over", "service"]

#: The home of the clients of these tests: "auto" is gevent, and ``CLIENT_SHELL=plain`` runs those of tests/client over
#: :mod:`rpcmq.threads`.
CLIENT_SHELL = os.environ.get("CLIENT_SHELL", "auto")

#: The home of those of the test that runs.
_current = CLIENT_SHELL

NOT_OURS = "drives the client's engines in the test's own hub"

_VERBS = {
    "call", "cast", "close", "connect", "declare", "describe", "fanout_cast", "kick", "multicall", "notify", "publish",
    "purge", "query", "start", "statistics", "stop", "subscribe", "wait",
}  # fmt: skip
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
    return Event() if _current == "plain" else gevent.event.Event()


def over(shell: str, test: Any) -> Iterator[str]:
    """Have ``test`` use ``shell``, or skip it where it cannot."""
    global _current
    if shell != "auto" and test.get_closest_marker("own_hub"):
        pytest.skip(NOT_OURS)
    if shell == "plain" and test.get_closest_marker("in_order"):
        pytest.skip("handlers of threads begin in any order")
    _current = shell
    yield shell
    _current = CLIENT_SHELL


@pytest.fixture(params=["auto", "plain"] if CLIENT_SHELL == "auto" else [CLIENT_SHELL])
def each_shell(request: pytest.FixtureRequest) -> Iterator[str]:
    """The fixture ``client_shell`` of a module whose tests run over gevent and over plain threads."""
    yield from over(request.param, request.node)


class _Driven:
    """An object whose verbs run in threads."""

    def __init__(self, driven: Any) -> None:
        object.__setattr__(self, "driven", driven)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.driven, name)
        if name not in _VERBS:
            return _Driven(found) if name == "client" else found

        @wraps(found)
        def verb(*args: Any, **options: Any) -> Any:
            result = in_thread(found, *args, **options)
            if name == "multicall":
                return _Items(result)
            return _Driven(result) if name == "subscribe" else result

        return verb

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.driven, name, value)

    def __enter__(self) -> Any:
        in_thread(self.driven.__enter__)
        return self

    def __exit__(self, *error: object) -> None:
        in_thread(self.driven.__exit__, *error)


class _Items:
    """A stream whose items are waited for in threads."""

    _END: Any = object()

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        item = in_thread(next, self._items, self._END)
        if item is self._END:
            raise StopIteration
        return item

    def close(self) -> None:
        in_thread(self._items.close)  # type: ignore[attr-defined]


def client(*args: Any, **settings: Any) -> Any:
    """A :class:`rpcmq.threads.Client` for use in greenlets."""
    settings.pop("shell", None)
    return _Driven(in_thread(rpcmq.threads.Client, *args, **settings))


def service(*args: Any, **settings: Any) -> Any:
    """A :class:`rpcmq.threads.Service` for use in greenlets."""
    if "client" in settings:
        settings["client"] = settings["client"].driven
    settings.setdefault("concurrency", 64)
    return _Driven(in_thread(rpcmq.threads.Service, *args, **settings))
