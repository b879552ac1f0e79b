"""Requests that end in the very moment in which they are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
import pytest

from rpcmq.gateway.messages import Request
from rpcmq.gateway.operations import Operations


class Subscriptions:
    """Runs ``meanwhile`` while it subscribes, and notes who has left."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None
        self.left: list[str] = []

    def add(self, pattern: str, listener: Any, number: int) -> Callable[[], None]:
        self.meanwhile()
        return lambda: self.left.append(pattern)


class Requester:
    """Notes how requests have ended."""

    def __init__(self) -> None:
        self.results: list[int] = []

    def result(self, number: int, value: Any) -> None:
        self.results.append(number)

    def failed(self, number: int, error: BaseException) -> None:
        raise error


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_subscription_that_is_stopped_as_the_router_confirms_it_is_left(is_stopped: bool) -> None:
    subscriptions, requester = Subscriptions(), Requester()
    operations = Operations(None, subscriptions, "", 1.0, 1.0)  # type: ignore[arg-type]
    if is_stopped:
        subscriptions.meanwhile = lambda: operations.stop(7)
    operations.start(requester, Request(7, "subscribe", "disk.#"))  # type: ignore[arg-type]
    gevent.sleep(0)
    assert (subscriptions.left, requester.results) == ((["disk.#"], []) if is_stopped else ([], [7]))
    operations.stop(7)
    assert subscriptions.left == ["disk.#"]
