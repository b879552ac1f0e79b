"""``mox``: mocks that are told in advance what will be called.

A test makes mocks, calls on them what it expects (with results: ``mock.get(7).AndReturn('x')``), switches them over
with ``ReplayAll``, runs the code, and has ``VerifyAll`` see to it that nothing is missing. A call that is not the
next expected one fails at once. Written from the documented behaviour of pymox 0.5.3, as suites of 2011 to 2013 use it.
"""

from __future__ import annotations

from mox.calls import MockMethod
from mox.comparators import (
    And,
    Comparator,
    ContainsAttributeValue,
    ContainsKeyValue,
    Func,
    IgnoreArg,
    In,
    Is,
    IsA,
    IsAlmost,
    Not,
    Or,
    Regex,
    Remember,
    SameElementsAs,
    StrContains,
    Value,
)
from mox.errors import (
    Error,
    ExpectedMethodCallsError,
    ExpectedMockCreationError,
    UnexpectedMethodCallError,
    UnexpectedMockCreationError,
    UnknownMethodCallError,
)
from mox.mocks import MockAnything, MockObject, Mox, MoxTestBase, Replay, Reset, Verify

__all__ = [
    "And",
    "Comparator",
    "ContainsAttributeValue",
    "ContainsKeyValue",
    "Error",
    "ExpectedMethodCallsError",
    "ExpectedMockCreationError",
    "Func",
    "IgnoreArg",
    "In",
    "Is",
    "IsA",
    "IsAlmost",
    "MockAnything",
    "MockMethod",
    "MockObject",
    "Mox",
    "MoxTestBase",
    "Not",
    "Or",
    "Regex",
    "Remember",
    "Replay",
    "Reset",
    "SameElementsAs",
    "StrContains",
    "UnexpectedMethodCallError",
    "UnexpectedMockCreationError",
    "UnknownMethodCallError",
    "Value",
    "Verify",
]
