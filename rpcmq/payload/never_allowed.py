"""Globals that must never be allowed."""

from __future__ import annotations

import builtins
import types
from typing import Final

__all__ = ["carries_nothing", "is_never_allowed"]

_NEVER_MODULES: Final = frozenset(
    {
        "_codecs", "_pickle", "_posixsubprocess", "_thread", "asyncio", "bdb", "code", "codecs",
        "codeop", "copyreg", "ctypes", "dill", "functools", "gc", "gevent", "imp", "importlib",
        "inspect", "linecache", "logging", "marshal", "multiprocessing", "nt", "operator",
        "_operator", "os", "pdb", "pickle", "pip", "pkgutil", "posix", "profile", "pty", "pydoc",
        "runpy", "shelve", "shutil", "signal", "site", "socket", "subprocess", "sys", "tempfile",
        "threading", "timeit", "trace", "types", "webbrowser", "zipimport",
    }
)  # fmt: skip
_NEVER_BUILTINS: Final = frozenset(
    {
        "__build_class__", "__import__", "breakpoint", "classmethod", "compile", "delattr", "dir",
        "eval", "exec", "exit", "filter", "getattr", "globals", "hasattr", "help", "input", "iter",
        "locals", "map", "memoryview", "next", "open", "property", "quit", "setattr",
        "staticmethod", "super", "type", "vars",
    }
)  # fmt: skip
"""Listing one of these would undo the list, so it is refused. A guard for whoever writes the
configuration; what protects the process is that nothing is allowed unless it is listed."""


_CARRY_NOTHING: Final = frozenset(
    {"object", *(name for name, value in vars(builtins).items() if isinstance(value, types.BuiltinFunctionType))}
)
"""Functions such as ``print``, which are not sent and rebuild no value; ``object`` is no value either."""


def carries_nothing(module: str, qualname: str) -> bool:
    """Return whether this global of Python is no value that can be sent and rebuilds none: no use in listing it."""
    return module == "builtins" and qualname in _CARRY_NOTHING


def is_never_allowed(module: str, qualname: str) -> bool:
    """Return whether listing this global would let a pickle run code of its choice."""
    if module == "builtins":
        return qualname.partition(".")[0] in _NEVER_BUILTINS
    return module.partition(".")[0] in _NEVER_MODULES
