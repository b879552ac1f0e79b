"""The name that errors give to the methods of a class from which the public one derives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["shown_as"]

C = TypeVar("C", bound=type)


def shown_as(public: str) -> Callable[[C], C]:
    """Have Python's own TypeErrors call the methods of a class ``public.method()``, as its users know them."""

    def rename(cls: C) -> C:
        for name, found in vars(cls).items():
            method: Any = found if inspect.isfunction(found) else None
            while method is not None:
                method.__qualname__ = f"{public}.{name}"
                method = getattr(method, "__wrapped__", None)
        return cls

    return rename
