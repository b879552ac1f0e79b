"""Endpoints for the tests of the command line."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import gevent

import rpcmq


class Flavor:
    """A class of the application."""


class Compute:
    """Servers that are not there."""

    def add(self, ctx: Any, a: Any, b: Any = 2) -> Any:
        """Add two values.

        Of whatever type.
        """
        return a + b

    def size(self, ctx: Any, body: Iterator[bytes], factor: int = 1) -> int:
        """Return the number of bytes of a stream."""
        return factor * sum(map(len, body))

    def sizes(self, ctx: Any, body: Iterator[bytes]) -> Iterator[int]:
        """Return the size of each chunk of a stream."""
        yield from map(len, body)

    def context(self, ctx: Any) -> Any:
        """Return the context."""
        return ctx

    def fail(self, ctx: Any, text: str) -> None:
        """Raise ValueError."""
        raise ValueError(text)

    def end(self, ctx: Any, name: str) -> None:
        """Raise what would end a program."""
        raise getattr(builtins, name)("asked to")

    def items(self, ctx: Any, n: int) -> Iterator[int]:
        """Yield the numbers below n."""
        yield from range(n)

    def sleep(self, ctx: Any, seconds: float) -> float:
        """Take so long."""
        gevent.sleep(seconds)
        return seconds

    def started(self, ctx: Any) -> dict[str, Any]:
        """Return a value that JSON has no form for."""
        return {"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}

    def own(self, ctx: Any) -> Flavor:
        """Return an object of a class that only this process allows."""
        rpcmq.allow(Flavor)
        return Flavor()


instance = Compute()


class Demanding:
    """Cannot be made without an argument."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
