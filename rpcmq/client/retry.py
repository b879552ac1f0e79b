"""Retries of idempotent calls: policy, back-off and budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from math import inf
from time import monotonic
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from rpcmq.errors import LinkLost, Overloaded, UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["Retry", "RetryBudget", "guarded", "guarded_async"]

T = TypeVar("T")


class _CallbackRaised(Exception):
    """Wraps an exception of the caller's own callback, which must not be retried."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def guarded(callback: Callable[[Any], object]) -> Callable[[Any], None]:
    """``callback`` for use within :meth:`Retry.run`: whatever it raises ends the attempts."""

    def call(value: Any) -> None:
        try:
            callback(value)
        except Exception as error:
            raise _CallbackRaised(error) from error

    return call


def guarded_async(callback: Callable[[Any], object]) -> Callable[[Any], Awaitable[None]]:
    """:func:`guarded` for :meth:`Retry.run_async`; ``callback`` may return what is to be awaited."""

    async def call(value: Any) -> None:
        try:
            made = callback(value)
            if isawaitable(made):
                await made
        except Exception as error:
            raise _CallbackRaised(error) from error

    return call


class RetryBudget:
    """Retries allowed for each call made, so that a failing system is not buried under retries.

    Args:
        ratio: retries a call earns; a few are always allowed.
    """

    def __init__(self, ratio: float, most: float = 10.0) -> None:
        self._ratio = ratio
        self._most = most
        self._tokens = most

    def earn(self) -> None:
        """Credit the budget for a call made."""
        self._tokens = min(self._most, self._tokens + self._ratio)

    def spend(self) -> bool:
        """Spend a retry; return False if the budget does not allow it."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _retry_after(state: RetryCallState) -> float:
    """Return the ``retry_after`` of the last error (seconds)."""
    error = state.outcome.exception() if state.outcome is not None else None
    seconds = error.details.get("retry_after") if isinstance(error, Overloaded) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return 0.0
    return seconds if 0 < seconds < inf else 0.0


@dataclass(frozen=True)
class Retry:
    """A policy for retrying a call.

    Attributes:
        attempts: at most, the first included.
        base: mean pause before the first retry (seconds); doubles, with full jitter.
        most: longest pause (seconds), beside what an error asks for: Overloaded by its ``retry_after``.
    """

    attempts: int = 3
    base: float = 0.05
    most: float = 2.0

    @classmethod
    def of(cls, value: object) -> Retry:
        """``value`` as :meth:`Client.call` takes it.

        Raises:
            UsageError: it is neither a Retry nor a positive number.
        """
        if isinstance(value, Retry):
            return value
        if value is True:
            return cls()
        if isinstance(value, int) and value > 0:
            return cls(attempts=value)
        raise UsageError(f"retry must be True, a number of attempts or a Retry, not {short_repr(value)}")

    def run(self, attempt: Callable[[], T], deadline: float, budget: RetryBudget, pause: Callable[[float], None]) -> T:
        """Run ``attempt`` and return its result; retry after LinkLost and Overloaded, honouring their ``retry_after``.

        Args:
            deadline: monotonic seconds; no pause goes beyond it.
            pause: waits for so many seconds.
        """
        try:
            return Retrying(sleep=pause, **self._policy(deadline, budget))(attempt)
        except _CallbackRaised as raised:
            error = raised.error
        raise error

    async def run_async(
        self,
        attempt: Callable[[], Awaitable[T]],
        deadline: float,
        budget: RetryBudget,
        pause: Callable[[float], Awaitable[None]],
    ) -> T:
        """:meth:`run` for what is awaited."""
        try:
            return await AsyncRetrying(sleep=pause, **self._policy(deadline, budget))(attempt)
        except _CallbackRaised as raised:
            error = raised.error
        raise error

    def _policy(self, deadline: float, budget: RetryBudget) -> dict[str, Any]:
        """The policy for one call, as tenacity takes it."""
        budget.earn()

        def enough(state: RetryCallState) -> bool:
            late = monotonic() + state.upcoming_sleep >= deadline
            return late or state.attempt_number >= self.attempts or not budget.spend()

        jitter = wait_random_exponential(multiplier=self.base, max=self.most)
        return {
            "wait": lambda state: _retry_after(state) + jitter(state),
            "retry": retry_if_exception_type((LinkLost, Overloaded)),
            "stop": enough,
            "reraise": True,
        }
