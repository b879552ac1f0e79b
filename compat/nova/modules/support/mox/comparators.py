"""Comparators: arguments that match more than one value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any


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
    """A value that another comparator refuses."""

    def __init__(self, predicate: Comparator) -> None:
        self._predicate = predicate

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return not self._predicate.equals(rhs)


class And(Comparator):
    """A value that all comparators accept."""

    def __init__(self, *args: Comparator) -> None:
        self._comparators = args

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return all(each.equals(rhs) for each in self._comparators)


class Or(Comparator):
    """A value that at least one of the comparators accepts."""

    def __init__(self, *args: Comparator) -> None:
        self._comparators = args

    def equals(self, rhs: Any) -> bool:  # noqa: D102
        return any(each.equals(rhs) for each in self._comparators)


class Func(Comparator):
    """A value for which a function returns true."""

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
