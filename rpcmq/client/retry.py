"""Trying an idempotent call again: how often, how long, and not when everybody does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import gevent
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from rpcmq.errors import LinkLost, Overloaded, UsageError

__all__ = ["Retry", "RetryBudget"]

T = TypeVar("T")


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
        """A call was made."""
        self._tokens = min(self._most, self._tokens + self._ratio)

    def spend(self) -> bool:
        """Whether a retry is allowed; it counts as made then."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(frozen=True)
class Retry:
    """When to try a call again.

    Attributes:
        attempts: at most, the first included.
        base: mean pause before the first retry (seconds); doubles, with full jitter.
        most: longest pause (seconds).
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
        raise UsageError(f"retry must be True, a number of attempts or a Retry, not {value!r}")

    def run(self, attempt: Callable[[], T], deadline: float, budget: RetryBudget) -> T:
        """What ``attempt`` returns, tried again after LinkLost and Overloaded.

        Args:
            deadline: monotonic seconds; no pause goes beyond it.
        """
        budget.earn()

        def enough(state: RetryCallState) -> bool:
            late = monotonic() + state.upcoming_sleep >= deadline
            return late or state.attempt_number >= self.attempts or not budget.spend()

        retrying = Retrying(
            sleep=gevent.sleep,
            wait=wait_random_exponential(multiplier=self.base, max=self.most),
            retry=retry_if_exception_type((LinkLost, Overloaded)),
            stop=enough,
            reraise=True,
        )
        return retrying(attempt)
