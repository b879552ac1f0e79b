"""Calls that are expected: one, in any order, several times."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Mock(Protocol):
    """The object that a call is made on.

    Attributes:
        _description: how it is shown.
        _expected_calls_queue: what is expected of it next.
    """

    _description: str
    _expected_calls_queue: deque[MockMethod | Group]


def call_text(name: str, params: Iterable[Any], named_params: dict[str, Any]) -> str:
    """A call as it would be written."""
    arguments = [*map(repr, params), *(f"{key}={value!r}" for key, value in named_params.items())]
    return f"{name}({', '.join(arguments)})"


class MockMethod:
    """A call: one that is expected, or one that is made."""

    def __init__(self, mock: Mock, name: str, spec: Any, params: Any, named_params: dict[str, Any]) -> None:
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
        return f"{call_text(path, self._params, self._named_params)} -> {self._return_value!r}"

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

    def _grouped(self, kind: type[Group], name: str) -> MockMethod:
        queue: deque[MockMethod | Group] = self._mock._expected_calls_queue
        assert queue and queue[-1] is self, "a group must be said right after its call, on the last one"
        queue.pop()
        last: Any = queue[-1] if queue else None
        if type(last) is kind and last.name == name:
            last.calls.append(self)
        else:
            queue.append(kind(name, self))
        return self


class Group:
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


class _Unordered(Group):
    def take(self, made: MockMethod) -> MockMethod | None:
        for call in self.calls:
            if call._matches(made):
                self.calls.remove(call)
                return call
        return None

    def over(self) -> bool:
        return not self.calls

    satisfied = over


class _MultipleTimes(Group):
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
