"""Work that is done in small steps, so that whoever does it can hear others between them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

__all__ = ["Steps", "finish"]

T = TypeVar("T")

#: Yields after each step, of some 0.1 ms, and returns what came of it all. What it looks at may change at each yield.
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Take all steps at once, and return what they lead to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
