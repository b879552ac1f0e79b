"""Endpoints for the tests of the client library."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import gevent

from rpcmq.client import current_request
from rpcmq.testing import InProcessRouter
from tests.from_threads import new_event


def message(method: str, **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


class Compute:
    """A compute manager that remembers what it was asked."""

    attribute = 5

    class Nested:
        pass

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.contexts: list[Any] = []
        self.started = new_event()
        self.go_on = new_event()
        self.ended: list[str] = []

    def add(self, ctx: Any, a: int, b: int = 0) -> int:
        """Add two numbers.

        The second may be left out.
        """
        return a + b

    def echo(self, ctx: Any, value: Any = None) -> Any:
        self.contexts.append(ctx)
        return value

    def note(self, ctx: Any, value: Any = None) -> None:
        self.contexts.append(ctx)
        self.seen.append(value)

    def fail(self, ctx: Any, error: Any = None) -> None:
        raise error if isinstance(error, BaseException) else ValueError("x", 7)

    def count(self, ctx: Any, n: int, fail_at: int = -1) -> Iterator[int]:
        try:
            for i in range(n):
                if i == fail_at:
                    raise LookupError(f"no {i}")
                self.seen.append(i)
                yield i
        finally:
            self.ended.append("count")

    def hold(self, ctx: Any) -> str:
        """Runs until told to go on."""
        self.started.set()
        self.go_on.wait()
        self.ended.append("hold")
        return "held"

    def until_cancelled(self, ctx: Any) -> str:
        request = current_request()
        assert request is not None
        self.started.set()
        while not request.cancelled:
            gevent.sleep(0.002)
        self.ended.append("cancelled")
        return "too late"

    def remaining(self, ctx: Any) -> float | None:
        request = current_request()
        assert request is not None
        return request.remaining

    def _private(self, ctx: Any) -> None:
        self.seen.append("private")

    def moment(self, ctx: Any) -> datetime:
        return datetime(2024, 2, 29, 12, 0, tzinfo=UTC)

    def moments(self, ctx: Any) -> Iterator[datetime]:
        yield self.moment(ctx)

    def large(self, ctx: Any) -> bytes:
        return bytes(100_000)


def topic(router: InProcessRouter, name: str = "compute") -> dict[str, Any]:
    """The router's row about a topic; to be used within ``eventually``."""
    rows = [row for row in router.query("topics")["topics"] if row["topic"] == name]
    assert rows, f"the router knows no topic {name!r}"
    found: dict[str, Any] = rows[0]
    return found
