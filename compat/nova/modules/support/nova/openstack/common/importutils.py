"""Classes and modules by their dotted names."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Any


def import_class(import_str: str) -> Any:
    """The class, or whatever it is, of that dotted name.

    Raises:
        ImportError: there is none; the text has the traceback.
    """
    module, _, name = import_str.rpartition(".")
    try:
        importlib.import_module(module)
        return getattr(sys.modules[module], name)
    except (ValueError, AttributeError):
        raise ImportError(f"Class {name} cannot be found ({traceback.format_exc()})") from None


def import_object(import_str: str, *args: Any, **kwargs: Any) -> Any:
    """An object of that class."""
    return import_class(import_str)(*args, **kwargs)


def import_object_ns(name_space: str, import_str: str, *args: Any, **kwargs: Any) -> Any:
    """An object of that class in the namespace, or of that name if there is none."""
    try:
        return import_class(f"{name_space}.{import_str}")(*args, **kwargs)
    except ImportError:
        return import_class(import_str)(*args, **kwargs)


def import_module(import_str: str) -> Any:
    """The module of that name."""
    importlib.import_module(import_str)
    return sys.modules[import_str]


def try_import(import_str: str, default: Any = None) -> Any:
    """The module of that name, or ``default``."""
    try:
        return import_module(import_str)
    except ImportError:
        return default
