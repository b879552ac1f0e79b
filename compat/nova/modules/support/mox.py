"""``mox``: mocks that are told in advance what will be called.

A test makes mocks, calls on them what it expects (with results: ``mock.get(7).AndReturn('x')``), switches them over
with ``ReplayAll``, runs the code, and has ``VerifyAll`` see to it that nothing is missing. A call that is not the
next expected one fails at once. Written from the documented behaviour of pymox 0.5.3, as suites of 2011 to 2013 use it.
"""

from __future__ import annotations

import inspect
import re
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any
from unittest import TestCase

import stubout

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


# --- errors -------------------------------------------------------------------------------------


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
    """What is mocked has no such method or attribute. An AttributeError too, or Python 3's ``hasattr`` would raise."""

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
        super().__init__(f"Unexpected mock creation: {_call(str(instance), params, named_params)}")


# --- comparators: arguments that match more than one value ----------------------------------------


class Comparator:
    """An argument that equals what its ``equals`` says."""

    def equals(self, rhs: Any) -> bool:
        """Tell whether ``rhs``, an actual argument, is acceptable."""
        raise NotImplementedError("method must be implemented by a subclass.")

    def __eq__(self, rhs: object) -> bool:
        return self.equals(rhs)

    def __ne__(self, rhs: object) -> bool:
        return not self.equals(rhs)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        details = ", ".join(f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items())
        return f"<{type(self).__name__} {details}>"


class IgnoreArg(Comparator):
    """Any value."""

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return True


class Is(Comparator):
    """The very same object."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return rhs is self._obj


class IsA(Comparator):
    """An instance of a class, or of that of the given object."""

    def __init__(self, class_name: Any) -> None:
        self._class_name = class_name

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        try:
            return bool(isinstance(rhs, self._class_name))
        except TypeError:
            return type(rhs) is type(self._class_name)


class IsAlmost(Comparator):
    """A number that is the same to so many places."""

    def __init__(self, float_value: float, places: int = 7) -> None:
        self._float_value = float_value
        self._places = places

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        try:
            return bool(round(rhs - self._float_value, self._places) == 0)
        except TypeError:
            return False


class StrContains(Comparator):
    """A text that contains another."""

    def __init__(self, search_string: str) -> None:
        self._search_string = search_string

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return isinstance(rhs, str) and self._search_string in rhs


class Regex(Comparator):
    """A text in which the regular expression is found."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.regex = re.compile(pattern, flags)

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return isinstance(rhs, str) and self.regex.search(rhs) is not None


class In(Comparator):
    """A collection that has the item or the key."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        try:
            return bool(self._key in rhs)
        except TypeError:
            return False


class Not(Comparator):
    """What another comparator refuses."""

    def __init__(self, predicate: Comparator) -> None:
        self._predicate = predicate

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return not self._predicate.equals(rhs)


class And(Comparator):
    """What all comparators accept."""

    def __init__(self, *args: Comparator) -> None:
        self._comparators = args

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return all(each.equals(rhs) for each in self._comparators)


class Or(Comparator):
    """What one of the comparators accepts."""

    def __init__(self, *args: Comparator) -> None:
        self._comparators = args

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return any(each.equals(rhs) for each in self._comparators)


class Func(Comparator):
    """What a function is true for."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self._func = func

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return bool(self._func(rhs))


class ContainsKeyValue(Comparator):
    """A dictionary that has the key with the value."""

    def __init__(self, key: Any, value: Any) -> None:
        self._key = key
        self._value = value

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        try:
            return bool(rhs[self._key] == self._value)
        except (KeyError, IndexError, TypeError):
            return False


class ContainsAttributeValue(Comparator):
    """An object that has the attribute with the value."""

    def __init__(self, key: str, value: Any) -> None:
        self._key = key
        self._value = value

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        try:
            return bool(getattr(rhs, self._key) == self._value)
        except AttributeError:
            return False


class SameElementsAs(Comparator):
    """A collection of the same items, in any order."""

    def __init__(self, expected_seq: Iterable[Any]) -> None:
        self._expected = list(expected_seq)

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        try:
            actual = list(rhs)
        except TypeError:
            return False
        try:
            return Counter(actual) == Counter(self._expected)
        except TypeError:
            left = list(actual)
            for item in self._expected:
                if item not in left:
                    return False
                left.remove(item)
            return not left


class Value(Comparator):
    """A value to be seen by a ``Remember``, and the same again afterwards."""

    def __init__(self) -> None:
        self._value: Any = None
        self._has_value = False

    def store_value(self, rhs: Any) -> None:
        """Remember it."""
        self._value = rhs
        self._has_value = True

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return self._has_value and bool(rhs == self._value)


class Remember(Comparator):
    """Any value, which it keeps in a ``Value``."""

    def __init__(self, value_store: Value) -> None:
        self._value_store = value_store

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        self._value_store.store_value(rhs)
        return True


# --- expected calls -------------------------------------------------------------------------------


def _call(name: str, params: Iterable[Any], named_params: dict[str, Any]) -> str:
    arguments = [*map(repr, params), *(f"{key}={value!r}" for key, value in named_params.items())]
    return f"{name}({', '.join(arguments)})"


class MockMethod:
    """A call: one that is expected, or one that is made."""

    def __init__(self, mock: MockAnything, name: str, spec: Any, params: Any, named_params: dict[str, Any]) -> None:
        self._mock = mock
        self._name = name
        self._params = tuple(params)
        self._named_params = named_params
        self._return_value: Any = None
        self._exception: Any = None
        self._side_effects: Callable[..., Any] | None = None
        _check_signature(spec, name, self._params, named_params)

    def __str__(self) -> str:
        path = f"{self._mock._description}.{self._name}" if self._name != "__call__" else self._mock._description
        return f"{_call(path, self._params, self._named_params)} -> {self._return_value!r}"

    __repr__ = __str__

    def _matches(self, made: MockMethod) -> bool:
        same = self._name == made._name and len(self._params) == len(made._params)
        return same and bool(self._params == made._params and self._named_params == made._named_params)

    def _result(self, made: MockMethod) -> Any:
        result = self._return_value
        if self._side_effects is not None:
            effect = self._side_effects(*made._params, **made._named_params)
            # What the side effect gives counts only if nothing else was said.
            result = effect if result is None else result
        if self._exception is not None:
            raise self._exception
        return result

    def AndReturn(self, return_value: Any) -> Any:
        """Have the call return this; gives it back."""
        self._return_value = return_value
        return return_value

    def AndRaise(self, exception: Any) -> None:
        """Have the call raise this exception, an instance or a class."""
        self._exception = exception

    def WithSideEffects(self, side_effects: Callable[..., Any]) -> MockMethod:
        """Have the call call this with its arguments too."""
        self._side_effects = side_effects
        return self

    def InAnyOrder(self, group_name: str = "default") -> MockMethod:
        """Accept the call in any order among those of its group that come one after the other here."""
        return self._grouped(_Unordered, group_name)

    def MultipleTimes(self, group_name: str = "default") -> MockMethod:
        """Accept the call once or more often, in any order among those of its group."""
        return self._grouped(_MultipleTimes, group_name)

    def _grouped(self, kind: type[_Group], name: str) -> MockMethod:
        queue: deque[MockMethod | _Group] = self._mock._expected_calls_queue
        assert queue and queue[-1] is self, "a group must be said right after its call, on the last one"
        queue.pop()
        last: Any = queue[-1] if queue else None
        if type(last) is kind and last.name == name:
            last.calls.append(self)
        else:
            queue.append(kind(name, self))
        return self


class _Group:
    """Expected calls whose order does not matter."""

    def __init__(self, name: str, first: MockMethod) -> None:
        self.name = name
        self.calls = [first]

    def __str__(self) -> str:
        return f"{type(self).__name__.lstrip('_')} {self.name!r}: {', '.join(map(str, self.calls))}"

    def take(self, made: MockMethod) -> MockMethod | None:
        """Give the expected call that is the one made, or None."""
        raise NotImplementedError

    def over(self) -> bool:
        """Tell whether no call of the group can come any more."""
        raise NotImplementedError

    def satisfied(self) -> bool:
        """Tell whether all that must come has come."""
        raise NotImplementedError


class _Unordered(_Group):
    def take(self, made: MockMethod) -> MockMethod | None:
        for call in self.calls:
            if call._matches(made):
                self.calls.remove(call)
                return call
        return None

    def over(self) -> bool:
        return not self.calls

    satisfied = over


class _MultipleTimes(_Group):
    def __init__(self, name: str, first: MockMethod) -> None:
        super().__init__(name, first)
        self.seen: set[int] = set()

    def take(self, made: MockMethod) -> MockMethod | None:
        for n, call in enumerate(self.calls):
            if call._matches(made):
                self.seen.add(n)
                return call
        return None

    def over(self) -> bool:
        return False

    def satisfied(self) -> bool:
        return len(self.seen) == len(self.calls)


def _check_signature(spec: Any, name: str, params: tuple[Any, ...], named_params: dict[str, Any]) -> None:
    """Raise AttributeError, as mox does, if what is mocked could not be called so."""
    if spec is None:
        return
    try:
        signature = inspect.signature(spec)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*params, **named_params)
    except TypeError as error:
        raise AttributeError(f"{name}: {error}") from None


# --- mocks ----------------------------------------------------------------------------------------


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
        queue: deque[MockMethod | _Group] = self._expected_calls_queue
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
        """What to check arguments by: a method of a class as if bound, since mocks are called without self."""
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
