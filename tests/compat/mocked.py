"""Classes for tests to replace parts of, and the outcome of a test case that is run within a test."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

#: Imports a module by its name.
Load = Callable[[str], Any]


class Base:
    value = 1

    def method(self) -> str:
        return "base"

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def cls(cls) -> str:
        return cls.__name__


class Db:
    limit = 5

    def get(self, ctxt: Any, key: str, default: Any = None) -> Any: ...

    def put(self, ctxt: Any, key: str) -> Any: ...

    def __getitem__(self, key: str) -> Any: ...


def outcome(case: unittest.TestCase) -> tuple[list[str], list[str], list[str]]:
    """Run one test; the last lines of its failures and errors, and the reasons of its skips."""
    result = unittest.TestResult()
    case.run(result)

    def last(found: list[tuple[unittest.TestCase, str]]) -> list[str]:
        return [text.strip().rpartition("\n")[2] for _, text in found]

    return last(result.failures), last(result.errors), [reason for _, reason in result.skipped]
