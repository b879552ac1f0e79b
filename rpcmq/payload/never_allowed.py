"""Globals that must never be allowed."""

from __future__ import annotations

from typing import Final

__all__ = ["is_never_allowed"]

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


def is_never_allowed(module: str, qualname: str) -> bool:
    """Whether listing this global would let a pickle run code of its choice."""
    if module == "builtins":
        return qualname.partition(".")[0] in _NEVER_BUILTINS
    return module.partition(".")[0] in _NEVER_MODULES
