"""``stubout``: attributes replaced for the time of a test."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

__all__ = ["StubOutForTesting"]

_MISSING = object()


class _Saved(NamedTuple):
    """An attribute as it was: what the object itself had, and what reading it gave."""

    obj: Any
    name: str
    own: Any
    value: Any


class StubOutForTesting:
    """Replaces attributes of modules, classes and instances, and puts them back, the last one first."""

    def __init__(self) -> None:
        self.cache: list[_Saved] = []
        self.stubs: list[_Saved] = []

    def __enter__(self) -> StubOutForTesting:
        return self

    def __exit__(self, *_: object) -> None:
        self.UnsetAll()
        self.SmartUnsetAll()

    def Set(self, parent: Any, child_name: str, new_child: Any) -> None:
        """Replace an attribute until ``UnsetAll``. Raises AttributeError if there is none."""
        self.cache.append(_Saved(parent, child_name, _own(parent, child_name), getattr(parent, child_name)))
        setattr(parent, child_name, new_child)

    def UnsetAll(self) -> None:
        """Put back what ``Set`` replaced; harmless if done already."""
        _restore(self.cache)

    def SmartSet(self, obj: Any, attr_name: str, new_attr: Any) -> None:
        """Replace an attribute where it is defined, the class or one of its bases too, until ``SmartUnsetAll``.

        Raises AttributeError if there is none.
        """
        owner = obj
        if not inspect.ismodule(obj) and _own(obj, attr_name) is _MISSING:
            classes = inspect.getmro(obj if inspect.isclass(obj) else type(obj))
            owner = next((cls for cls in classes if attr_name in vars(cls)), None)
        if owner is None or not hasattr(owner, attr_name):
            raise AttributeError(f"Attribute {attr_name!r} not found on {obj!r}")
        old = _own(owner, attr_name)
        if isinstance(old, staticmethod) and not isinstance(new_attr, staticmethod):
            new_attr = staticmethod(new_attr)
        self.stubs.append(_Saved(owner, attr_name, old, getattr(owner, attr_name)))
        setattr(owner, attr_name, new_attr)

    def SmartUnsetAll(self) -> None:
        """Put back what ``SmartSet`` replaced; harmless if done already."""
        _restore(self.stubs)

    # The names of later versions.
    set = Set
    unset_all = UnsetAll
    smart_set = SmartSet
    smart_unset_all = SmartUnsetAll


def _own(obj: Any, name: str) -> Any:
    """The attribute as the object itself has it, unbound; ``_MISSING`` if it inherits it."""
    try:
        return vars(obj).get(name, _MISSING)
    except TypeError:
        # No dictionary, but slots.
        return getattr(obj, name, _MISSING)


def _restore(saved: list[_Saved]) -> None:
    while saved:
        obj, name, own, value = saved.pop()
        if own is not _MISSING:
            setattr(obj, name, own)
        elif name in getattr(obj, "__dict__", {name: None}):
            delattr(obj, name)
        else:
            # It keeps its attributes elsewhere: a package that stands for another, flags.
            setattr(obj, name, value)
