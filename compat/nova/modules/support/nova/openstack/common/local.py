"""Storage of a green thread: ``store`` holds values weakly (Essex+), ``strong_store`` as usual (Grizzly+).

What is kept weakly must be able to be: a context, but no text or number.
"""

from __future__ import annotations

import weakref
from typing import Any

from gevent.local import local

_MISSING = object()


class WeakLocal:
    """Attributes of one green thread each. One whose value nobody else holds reads as None, and is then unset.

    This holds a ``local`` and is none: a subclass that hides the references in ``__getattribute__`` breaks gevent's.
    """

    __slots__ = ("__weakref__", "_references")

    def __init__(self) -> None:
        object.__setattr__(self, "_references", local())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_references(self), name)()

    def __setattr__(self, name: str, value: Any) -> None:
        # Unset is said by None, which has no weak references.
        setattr(_references(self), name, (lambda: None) if value is None else weakref.ref(value))

    def __delattr__(self, name: str) -> None:
        delattr(_references(self), name)


#: The slot of that name, past ``__getattr__`` and ``__setattr__``.
_references: Any = WeakLocal.__dict__["_references"].__get__

store = WeakLocal()
weak_store = store
strong_store = local()
