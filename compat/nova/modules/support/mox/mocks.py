"""Mocks, and what makes, replays and verifies them."""

from __future__ import annotations

import inspect
import types
from collections import deque
from collections.abc import Callable
from typing import Any
from unittest import TestCase

import stubout
from mox.calls import Group, MockMethod
from mox.errors import (
    ExpectedMethodCallsError,
    ExpectedMockCreationError,
    UnexpectedMethodCallError,
    UnexpectedMockCreationError,
    UnknownMethodCallError,
)


class MockAnything:
    """A mock that has every attribute."""

    def __init__(self, description: str | None = None) -> None:
        vars(self).update(_description=description or type(self).__name__)
        self._Reset()

    def __repr__(self) -> str:
        return f"<{self._description} instance>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            # Copying, pickling and inspection ask for these; nobody expects them to be mocked.
            raise AttributeError(name)
        return self._method(name, None)

    def __bool__(self) -> bool:
        return True

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, *params: Any, **named_params: Any) -> Any:  # noqa: D102
        return self._called("__call__", None, params, named_params)

    def __getitem__(self, key: Any) -> Any:
        return self._called("__getitem__", None, (key,), {})

    def __setitem__(self, key: Any, value: Any) -> Any:
        return self._called("__setitem__", None, (key, value), {})

    # What these give while recording is the call, to say its result by: `mock.__iter__().AndReturn(iter([1]))`.

    def __contains__(self, key: Any) -> Any:
        return self._called("__contains__", None, (key,), {})

    def __iter__(self) -> Any:
        return self._called("__iter__", None, (), {})

    def _method(self, name: str, spec: Any) -> Callable[..., Any]:
        def method(*params: Any, **named_params: Any) -> Any:
            return self._called(name, spec, params, named_params)

        method.__name__ = name
        return method

    def _called(self, name: str, spec: Any, params: tuple[Any, ...], named_params: dict[str, Any]) -> Any:
        call = MockMethod(self, name, spec, params, named_params)
        if not self._replay_mode:
            self._expected_calls_queue.append(call)
            return call
        return self._expected(call)._result(call)

    def _expected(self, made: MockMethod) -> MockMethod:
        queue: deque[MockMethod | Group] = self._expected_calls_queue
        while queue:
            head = queue[0]
            if isinstance(head, MockMethod):
                if not head._matches(made):
                    raise UnexpectedMethodCallError(made, head)
                queue.popleft()
                return head
            found = head.take(made)
            if head.over():
                queue.popleft()
            if found is not None:
                return found
            if not head.satisfied():
                raise UnexpectedMethodCallError(made, head)
            if queue and queue[0] is head:
                queue.popleft()
        raise UnexpectedMethodCallError(made, None)

    def _Replay(self) -> None:
        """Expect what was recorded, from now on."""
        vars(self).update(_replay_mode=True)

    def _Verify(self) -> None:
        """Raise ExpectedMethodCallsError if something that was expected did not come."""
        missing = [each for each in self._expected_calls_queue if isinstance(each, MockMethod) or not each.satisfied()]
        if missing:
            raise ExpectedMethodCallsError(missing)

    def _Reset(self) -> None:
        """Forget what was recorded, and record anew."""
        vars(self).update(_replay_mode=False, _expected_calls_queue=deque())


class MockObject(MockAnything):
    """A mock of a class, a module, a function or an object, with its attributes and no others.

    Attributes that can't be called are those of the original; ``attrs`` are further ones.
    """

    def __init__(self, class_to_mock: Any, attrs: dict[str, Any] | None = None, signature: Any = None) -> None:
        name = getattr(class_to_mock, "__name__", None) or type(class_to_mock).__name__
        super().__init__(name)
        vars(self).update(_class_to_mock=class_to_mock, _known=set(dir(class_to_mock)), _signature=signature)
        for key, value in (attrs or {}).items():
            if key in self._known and callable(getattr(class_to_mock, key)):
                raise ValueError(f"Cannot set attribute {key!r}: it is a method of {class_to_mock!r}")
            vars(self)[key] = value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # So that isinstance() says yes.
        original = vars(self).get("_class_to_mock")
        return original if inspect.isclass(original) else type(original)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name not in self._known:
            raise UnknownMethodCallError(name)
        original = getattr(self._class_to_mock, name)
        if not callable(original):
            return original
        return self._method(name, self._spec(name, original))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._known and name not in vars(self):
            raise UnknownMethodCallError(name)
        vars(self)[name] = value

    def __call__(self, *params: Any, **named_params: Any) -> Any:  # noqa: D102
        if not callable(self._class_to_mock):
            raise TypeError("Not callable")
        return self._called("__call__", self._signature or self._class_to_mock, params, named_params)

    def __getitem__(self, key: Any) -> Any:
        self._needs("__getitem__", "unsubscriptable object")
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> Any:
        self._needs("__setitem__", "object does not support item assignment")
        return super().__setitem__(key, value)

    def __contains__(self, key: Any) -> Any:
        self._needs("__contains__", "unsubscriptable object")
        return super().__contains__(key)

    def __iter__(self) -> Any:
        if not {"__iter__", "__getitem__"} & self._known:
            raise TypeError("not iterable object")
        return super().__iter__()

    def _needs(self, name: str, text: str) -> None:
        if name not in self._known:
            raise TypeError(text)

    def _spec(self, name: str, original: Any) -> Any:
        """Return the signature to check arguments against, bound as methods are: mocks are called without self."""
        if inspect.isclass(self._class_to_mock):
            return _without_self(self._class_to_mock, name) or original
        return original


def _without_self(owner: type, name: str) -> Any:
    """Give a method of a class as if bound; None if it is static, of the class, or no method."""
    own = inspect.getattr_static(owner, name)
    return own.__get__(object()) if isinstance(own, types.FunctionType) else None


class _MockFactory(MockObject):
    """Stands for a class: gives the mocks that the test had it make, in that order."""

    def __init__(self, class_to_mock: Any, mox: Mox) -> None:
        super().__init__(class_to_mock)
        vars(self).update(_mox=mox, _instances=deque())

    def __call__(self, *params: Any, **named_params: Any) -> Any:
        if self._replay_mode:
            if not self._instances:
                raise UnexpectedMockCreationError(self._class_to_mock, *params, **named_params)
            super().__call__(*params, **named_params)
            return self._instances.popleft()
        call = super().__call__(*params, **named_params)
        instance = self._mox.CreateMock(self._class_to_mock)
        call.AndReturn(instance)
        self._instances.append(instance)
        return instance

    def _Verify(self) -> None:
        if self._instances:
            raise ExpectedMockCreationError(self._instances)
        super()._Verify()

    def _Reset(self) -> None:
        super()._Reset()
        vars(self).update(_instances=deque())


class Mox:
    """Makes mocks and switches them over together."""

    def __init__(self) -> None:
        self._mock_objects: list[MockAnything] = []
        self.stubs = stubout.StubOutForTesting()

    def CreateMock(self, class_to_mock: Any, attrs: dict[str, Any] | None = None) -> Any:
        """Make a mock with the attributes of a class, a module, a function or an object, and no others."""
        return self._made(MockObject(class_to_mock, attrs))

    def CreateMockAnything(self, description: str | None = None) -> Any:
        """Make a mock with every attribute."""
        return self._made(MockAnything(description))

    def _made(self, mock: MockAnything) -> MockAnything:
        self._mock_objects.append(mock)
        return mock

    def StubOutWithMock(self, obj: Any, attr_name: str, use_mock_anything: bool = False) -> None:
        """Replace an attribute by a mock of it, until ``UnsetStubs``. Raises TypeError if it is a mock already."""
        original = getattr(obj, attr_name)
        if type(original) in (MockAnything, MockObject, _MockFactory):
            raise TypeError(f"Cannot mock a MockAnything! Did you remember to call UnsetStubs in your previous test? "
                            f"({attr_name})")  # fmt: skip
        if use_mock_anything:
            stub = self.CreateMockAnything(f"Stub for {original}")
        else:
            # A mock does not bind, so calls through an instance reach it without self.
            signature = _without_self(obj, attr_name) if inspect.isclass(obj) else None
            stub = self._made(MockObject(original, signature=signature))
        self.stubs.Set(obj, attr_name, stub)

    def StubOutClassWithMocks(self, obj: Any, attr_name: str) -> None:
        """Replace a class: each call of it, recorded here, makes a mock that the same call gives again later."""
        original = getattr(obj, attr_name)
        if not inspect.isclass(original):
            raise TypeError("Given attr is not a Class.  Use StubOutWithMock.")
        self.stubs.Set(obj, attr_name, self._made(_MockFactory(original, self)))

    def ReplayAll(self) -> None:
        """Expect, from now on, what was recorded."""
        Replay(*self._mock_objects)

    def VerifyAll(self) -> None:
        """Raise ExpectedMethodCallsError if something that was expected did not come."""
        Verify(*self._mock_objects)

    def ResetAll(self) -> None:
        """Forget what was recorded, and record anew."""
        Reset(*self._mock_objects)

    def UnsetStubs(self) -> None:
        """Put back what was stubbed out."""
        self.stubs.UnsetAll()
        self.stubs.SmartUnsetAll()


def Replay(*args: Any) -> None:
    """Have these mocks expect what was recorded."""
    for mock in args:
        mock._Replay()


def Verify(*args: Any) -> None:
    """Raise ExpectedMethodCallsError if one of these mocks still expects something."""
    for mock in args:
        mock._Verify()


def Reset(*args: Any) -> None:
    """Have these mocks record anew."""
    for mock in args:
        mock._Reset()


class MoxTestBase(TestCase):
    """A test case with ``mox`` and ``stubs``, cleaned up and verified when a test has passed."""

    def setUp(self) -> None:
        """Make them."""
        super().setUp()
        self.mox = Mox()
        self.stubs = stubout.StubOutForTesting()

    def run(self, result: Any = None) -> Any:
        """Run the test; what it stubbed out is put back whatever comes of it."""
        method = getattr(self, self._testMethodName)

        def verified(*args: Any, **kwargs: Any) -> None:
            method(*args, **kwargs)
            self.mox.VerifyAll()

        def restore() -> None:
            if hasattr(self, "mox"):
                self.mox.UnsetStubs()
                self.stubs.UnsetAll()
                self.stubs.SmartUnsetAll()

        self.addCleanup(restore)
        setattr(self, self._testMethodName, verified)
        try:
            return super().run(result)
        finally:
            delattr(self, self._testMethodName)
