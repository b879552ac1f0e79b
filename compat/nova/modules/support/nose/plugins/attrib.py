"""Attributes on tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def attr(*names: str, **values: Any) -> Callable[[T], T]:
    """Decorate a test with attributes: ``names`` are true, ``values`` as given."""

    def mark(test: T) -> T:
        for name, value in {**dict.fromkeys(names, True), **values}.items():
            setattr(test, name, value)
        return test

    return mark
