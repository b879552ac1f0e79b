"""The part of ``nova.test`` that skips tests."""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Callable
from typing import Any, TypeVar
from unittest import SkipTest

from compat.nova import options

T = TypeVar("T", bound=Callable[..., Any])


class skip_test:
    """Decorates a test, or a class of them, that is skipped."""

    def __init__(self, msg: str) -> None:
        self.message = msg

    def __call__(self, test: T) -> T:
        return self._wrap(test) if self._skips() else test

    def _skips(self) -> bool:
        return True

    def _wrap(self, test: T) -> T:
        if inspect.isclass(test):
            return unittest.skip(self.message)(test)

        @functools.wraps(test)
        def skipped(*args: Any, **kwargs: Any) -> None:
            raise SkipTest(self.message)

        return skipped  # type: ignore[return-value]


class skip_if(skip_test):
    """Decorates a test that is skipped if a condition holds; the message may be left out."""

    def __init__(self, condition: Any, msg: str = "") -> None:
        super().__init__(msg)
        self.condition = condition

    def _skips(self) -> bool:
        return bool(self.condition)


class skip_unless(skip_if):
    """Decorates a test that is skipped unless a condition holds."""

    def _skips(self) -> bool:
        return not self.condition


def skip_if_fake(func: T) -> T:
    """Decorate a test that can't run where ``fake_tests`` is set, as it is in Nova's own runs."""

    @functools.wraps(func)
    def test(*args: Any, **kwargs: Any) -> Any:
        if any(getattr(conf, "fake_tests", False) for conf in options.configurations()):
            raise SkipTest("Test cannot be run in fake mode")
        return func(*args, **kwargs)

    return test  # type: ignore[return-value]
