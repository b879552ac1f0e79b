"""The result of a method that is not there yet when the method returns, and for which no greenlet has to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Kept", "Later"]

T = TypeVar("T")


class Later(Generic[T]):
    """Returned by a method whose result comes later, to be used in the client's home alone.

    A greenlet that waits cannot be used again for the next call, and a new one costs as much as a small call.
    """

    __slots__ = ("_then", "_values")

    def __init__(self) -> None:
        self._then: Callable[[T], object] | None = None
        self._values: list[T] = []

    def answer(self, value: T) -> None:
        """The result is ``value``. To be called once."""
        if self._then is None:
            self._values.append(value)
        else:
            self._then(value)

    def then(self, then: Callable[[T], object]) -> None:
        """Have ``then`` called with the result, at once if it is there."""
        self._then = then
        for value in self._values:
            then(value)


class Kept(Later[T]):
    """The same of a message that another thread ends: a cast, too, runs until then."""

    __slots__ = ()
