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

    __slots__ = ("_error", "_fail", "_has_ended", "_then", "_values")

    def __init__(self) -> None:
        self._then: Callable[[T], object] | None = None
        self._fail: Callable[[BaseException], object] | None = None
        self._values: list[T] = []
        self._error: BaseException | None = None
        self._has_ended = False

    def answer(self, value: T) -> None:
        """The result is ``value``, unless there is one already."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._then is None:
            self._values.append(value)
        else:
            self._then(value)

    def fail(self, error: BaseException) -> None:
        """There will be no result, because of ``error``, unless there is one already."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._fail is None:
            self._error = error
        else:
            self._fail(error)

    def then(self, then: Callable[[T], object], fail: Callable[[BaseException], object]) -> None:
        """Have ``then`` called with the result, or ``fail`` with the error; at once if it is there."""
        self._then, self._fail = then, fail
        for value in self._values:
            then(value)
        if self._error is not None:
            fail(self._error)


class Kept(Later[T]):
    """The same of a message that another thread ends: a cast, too, runs until then."""

    __slots__ = ()
