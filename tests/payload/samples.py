"""Classes that the payload tests send about, and a comparison that also looks at types."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st


@dataclass
class Instance:
    name: str
    flavor: int = 1


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str


class Point(NamedTuple):
    x: int
    y: int


class Color(enum.Enum):
    RED = "red"


class Outer:
    class Inner:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Outer.Inner)

        def __hash__(self) -> int:
            return 1


class Keyed:
    """Is made without a call, with keyword arguments."""

    def __new__(cls, *, name: str = "") -> Keyed:
        made = super().__new__(cls)
        made.name = name
        return made

    name: str

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, str]]:
        return (), {"name": self.name}

    def __getstate__(self) -> None:
        return None


class BadConstructor:
    def __init__(self, name: str) -> None:
        raise LookupError(f"no {name} here")

    @classmethod
    def made(cls) -> BadConstructor:
        return cls.__new__(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        return BadConstructor, ("bad",)


def join(*parts: str) -> str:
    return "-".join(parts)


CONSTANT = 17


class InstanceError(Exception):
    """Formats its message from its argument, as many do."""

    def __init__(self, instance_id: int) -> None:
        super().__init__(f"instance {instance_id} is gone")
        self.instance_id = instance_id


class TwoArgumentsError(Exception):
    """Cannot be made from its ``args``."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def kind(value: object) -> type:
    """``type(value)``, which tells the type checker nothing about ``value``."""
    return type(value)


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types all through, and NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(key, other_key) and same(value, other)
            for (key, value), (other_key, other) in zip(left.items(), right.items(), strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(item, other) for other in right) for item in left)
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, BaseException):
        return same(left.args, right.args)
    return bool(left == right or repr(left) == repr(right))


HASHABLE_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.dates()
    | st.datetimes().map(lambda value: value.replace(fold=0))
    | st.times().map(lambda value: value.replace(fold=0))
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
)
SCALARS = HASHABLE_SCALARS | st.sampled_from(["$", "v", "datetime", "", "\ud800", "\x00"])
KEYS = st.recursive(
    SCALARS.filter(lambda value: value == value),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    return (
        lists
        | lists.map(tuple)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.just("$"), inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        # What looks like a tagged value of typed JSON.
        | st.fixed_dictionaries({"$": inner, "v": inner})
    )


VALUES = st.recursive(SCALARS, _grow, max_leaves=12)
"""All that every format carries."""
