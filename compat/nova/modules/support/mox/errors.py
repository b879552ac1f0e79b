"""Exceptions of mocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mox.calls import call_text


class Error(AssertionError):
    """Root of what mocks raise."""


class ExpectedMethodCallsError(Error):
    """Calls that were expected were not made."""

    def __init__(self, expected_methods: Iterable[Any]) -> None:
        self._expected = list(expected_methods)
        if not self._expected:
            raise ValueError("There must be at least one expected method")
        super().__init__(self._expected)

    def __str__(self) -> str:
        calls = (f"{n:3d}.  {call}" for n, call in enumerate(self._expected))
        return "\n".join(["Verify: Expected methods never called:", *calls])


class UnexpectedMethodCallError(Error):
    """A call was made that is not the next one expected."""

    def __init__(self, unexpected_method: Any, expected: Any) -> None:
        self._texts = str(unexpected_method), "nothing" if expected is None else str(expected)
        super().__init__(*self._texts)

    def __str__(self) -> str:
        return f"Unexpected method call.  Called: {self._texts[0]}  Expected: {self._texts[1]}"


class UnknownMethodCallError(Error, AttributeError):
    """The mocked object has no such method or attribute. An AttributeError, too: Python 3's ``hasattr`` needs it."""

    def __init__(self, unknown_method_name: str) -> None:
        super().__init__(unknown_method_name)

    def __str__(self) -> str:
        return f"Method called is not a member of the object: {self.args[0]}"


class PrivateAttributeError(Error):
    """A private attribute of an object without it was used."""


class ExpectedMockCreationError(ExpectedMethodCallsError):
    """Objects that were expected to be made were not."""


class UnexpectedMockCreationError(Error):
    """An object was made that was not expected."""

    def __init__(self, instance: Any, *params: Any, **named_params: Any) -> None:
        super().__init__(f"Unexpected mock creation: {call_text(str(instance), params, named_params)}")
