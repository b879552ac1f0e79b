"""The entries of an allow-list: how they are written, what they stand for, and what is said of a global without one."""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

from rpcmq.errors import PayloadRefused, UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.payload.never_allowed import carries_nothing, is_never_allowed

__all__ = ["NUMPY", "NUMPY_ARRAYS", "entry_name", "imported", "imported_module", "not_allowed", "parsed"]

NUMPY = ("numpy", "")
#: Globals named by pickles of numpy's arrays and scalars, in any of its modules; see ``numpy_pickle``.
NUMPY_ARRAYS = frozenset(("dtype", "ndarray", "_frombuffer", "_reconstruct", "scalar"))


def entry_name(module: str, qualname: str) -> str:
    """The entry that stands for a global."""
    return f"{module}:{qualname}" if qualname else module


def parsed(entry: str) -> tuple[str, str]:
    """Module and qualname of an entry; the qualname of all classes of a module is ``*``.

    Raises:
        UsageError: it is malformed, or can never be allowed.
    """
    if not isinstance(entry, str):
        raise UsageError(f"allow-list entry {short_repr(entry)} is not a string 'module:qualname'")
    if entry == "numpy":
        return NUMPY
    module, colon, qualname = entry.partition(":")
    if "<locals>" in qualname:
        raise UsageError(
            f"allow-list entry {entry!r}: a class defined inside a function cannot be found by "
            "name; define it at the top level of its module"
        )
    if qualname == "*" and (module.partition(".")[0] in sys.stdlib_module_names or is_never_allowed(module, "")):
        raise UsageError(
            f"allow-list entry {entry!r}: '*' is for a module of your own; list the classes of {module} one by one"
        )
    parts = module.split(".") + ([] if qualname == "*" else qualname.split("."))
    if not colon or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f"allow-list entry {entry!r} is not of the form 'module:qualname', for example 'nova.objects:Instance' "
            "or, for all classes that a module of your own defines, 'nova.objects:*'"
        )
    if is_never_allowed(module, qualname):
        raise UsageError(
            f"allow-list entry {entry!r} would let any sender run code of its choice; "
            "list the classes of the values themselves"
        )
    if carries_nothing(module, qualname):
        raise UsageError(f"allow-list entry {entry!r} cannot be allowed: {_reason(qualname)}")
    return module, qualname


def imported(entry: str, module: str, qualname: str) -> object:
    """The global that ``entry`` names.

    Raises:
        PayloadRefused: it cannot be imported here.
    """
    value: Any = imported_module(entry, module)
    try:
        for part in qualname.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise _not_imported(entry, error) from error
    return value


def imported_module(entry: str, module: str) -> types.ModuleType:
    """The module that ``entry`` names.

    Raises:
        PayloadRefused: it cannot be imported here.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise _not_imported(entry, error) from error


def _not_imported(entry: str, error: Exception) -> PayloadRefused:
    return PayloadRefused(
        f"allow-list entry {entry!r} cannot be imported here: {type(error).__name__}: {str(error)[:200]}"
    )


def not_allowed(module: str, qualname: str) -> str:
    """Explain why a pickle that names this global is refused, and how to allow it."""
    entry = f"{module[:200]}:{qualname[:200]}"
    if is_never_allowed(module, qualname):
        return f"pickle names the global {entry!r}, which runs code of the sender's choice and can never be allowed"
    if carries_nothing(module, qualname):
        return f"pickle names the global {entry!r}, which cannot be allowed: {_reason(qualname)}"
    if module.partition(".")[0] != "numpy" and _is_loaded_function(module, qualname):
        return (
            f"pickle names the function {entry!r}, which is not on this process's allow-list: {_NOT_SENT}. Only if a "
            f"class of yours is rebuilt by calling it (__reduce__) and it is to be trusted, set allow=[{entry!r}] or "
            f"RPCMQ_ALLOW={entry} in this process ({_program()})"
        )
    name = qualname[:200]
    if module.partition(".")[0] == "numpy" and qualname not in NUMPY_ARRAYS:
        return (
            f"pickle names the global {entry!r}; of numpy only arrays and scalars are carried: send such, or .tolist()"
        )
    if module.partition(".")[0] == "numpy":
        entry, line = "numpy", 'rpcmq.allow("numpy")'
    else:
        line = f"rpcmq.allow({name})"
    text = (
        f"pickle names the global {module[:200] + ':' + name!r}, which is not on this process's allow-list; if it is "
        f"to be trusted, write {line} in this process ({_program()}), which receives it, or allow=[{entry!r}], or "
        f"set RPCMQ_ALLOW={entry} in its environment"
    )
    if module == "__main__":
        text += " (and move it to a module: __main__ is another one in each process)"
    return text


#: The reason that functions are refused, and the way to do without.
_NOT_SENT = "functions are not sent as values; send data, or the name of what is to be called"


def _reason(qualname: str) -> str:
    return "an object() has nothing to send; send data" if qualname == "object" else _NOT_SENT


def _is_loaded_function(module: str, qualname: str) -> bool:
    """Return whether this global is a function here. Nothing is imported for it, and no code of a module runs."""
    loaded = sys.modules.get(module)
    found = vars(loaded).get(qualname) if type(loaded) is types.ModuleType else None
    return type(found) in (types.FunctionType, types.BuiltinFunctionType)


def _program() -> str:
    return f"{os.path.basename(sys.argv[0] or 'python')}, pid {os.getpid()}"
