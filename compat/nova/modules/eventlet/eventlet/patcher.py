"""Monkey patching by eventlet's names, done by gevent.

Names of modules may be those of Python 2: 2to3 does not see them in a string.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any

from gevent import monkey

__all__ = ["import_patched", "inject", "is_monkey_patched", "monkey_patch", "original", "patch_function"]

#: Python 2 name -> Python 3 name.
RENAMED = {
    "BaseHTTPServer": "http.server",
    "CGIHTTPServer": "http.server",
    "ConfigParser": "configparser",
    "Queue": "queue",
    "SimpleHTTPServer": "http.server",
    "SocketServer": "socketserver",
    "StringIO": "io",
    "__builtin__": "builtins",
    "cookielib": "http.cookiejar",
    "dummy_thread": "_thread",
    "httplib": "http.client",
    "robotparser": "urllib.robotparser",
    "thread": "_thread",
    "urllib2": "urllib.request",
    "xmlrpclib": "xmlrpc.client",
}

#: Argument of ``monkey_patch`` -> the modules that gevent then patches.
GROUPS = {
    "os": ("os", "signal"),
    "select": ("select", "selectors"),
    "socket": ("socket", "ssl"),
    "subprocess": ("subprocess",),
    "thread": ("thread", "queue"),
    "time": ("time",),
}
#: Patched by eventlet but not by gevent: drivers in C that nobody can make green.
_IGNORED = ("MySQLdb", "builtins", "psycopg")

#: Modules that hold copies of what another one has, and so must be made anew along with it.
_MADE_OF = {
    "queue": ("_thread", "threading", "time"),
    "selectors": ("select",),
    "ssl": ("socket",),
    "subprocess": ("_thread", "threading", "os", "select", "selectors", "signal", "time"),
    "threading": ("_thread", "time"),
}


def monkey_patch(**on: bool) -> None:
    """Make the standard library cooperative: all of it, or what is named, or all but what is named False.

    Takes os, select, socket, subprocess, thread, time, all (and builtins, MySQLdb, psycopg, without effect).
    Patching twice is harmless. Raises TypeError for another name.
    """
    default = on.pop("all", None)
    unknown = set(on) - {*GROUPS, *_IGNORED}
    if unknown:
        raise TypeError(f"monkey_patch() got an unexpected keyword argument {min(unknown)!r}")
    if default is None:
        default = True not in on.values()
    for name in ("os", "thread", "time", "socket", "select", "subprocess"):
        if not on.get(name, default):
            continue
        for module in GROUPS[name]:
            if not monkey.is_module_patched("threading" if module == "thread" else module):
                getattr(monkey, f"patch_{module}")()


def is_monkey_patched(module: str | ModuleType) -> bool:
    """Tell whether a module, or a group of them as ``monkey_patch`` names it, is patched."""
    name = module if isinstance(module, str) else module.__name__
    return monkey.is_module_patched(RENAMED.get(name, name))


def original(modname: str) -> ModuleType:
    """Give an unpatched copy of a standard module: its threads are native, its sockets block."""
    modname = RENAMED.get(modname, modname)
    key = f"__original_module_{modname}"
    if key not in sys.modules:
        with _replaced({name: original(name) for name in _MADE_OF.get(modname, ())}):
            sys.modules[key] = _fresh(modname)
    return sys.modules[key]


def _fresh(name: str) -> ModuleType:
    """Make a copy of a module that nobody has patched: of Python code by running it again."""
    module = importlib.import_module(name)
    copy = ModuleType(name, module.__doc__)
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.loader is not None and spec.has_location and name in _MADE_OF:
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
    else:
        # Of C code, or one that others rely on to exist only once: the same members, as they were before.
        copy.__dict__.update(module.__dict__)
        copy.__dict__.update(_saved(name))
    return copy


def _saved(name: str) -> dict[str, Any]:
    # gevent keeps them here, and says that others use it; its stubs don't know.
    saved: dict[str, dict[str, Any]] = getattr(monkey, "saved")  # noqa: B009
    return saved.get(name, {})


@contextmanager
def _replaced(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Have these modules imported under these names meanwhile."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def _green(modules: Iterable[tuple[str, ModuleType]], target: str = "") -> dict[str, ModuleType]:
    """Give what ``target`` is to find in place of standard modules: ``modules``, or else all the green ones."""
    given = {RENAMED.get(name, name): module for name, module in modules}
    if given:
        return given
    green = importlib.import_module(f"{__package__}.green")
    names = ("os", "select", "selectors", "socket", "ssl", "subprocess", "_thread", "time", "queue", "threading")
    # threading is itself one of those that are made with the others in place.
    wanted = names[:-1] if target == "threading" else names
    return {name: green.module(name) for name in wanted if not is_monkey_patched(name)}


def inject(
    module_name: str, new_globals: dict[str, Any] | None, *additional_modules: tuple[str, ModuleType]
) -> ModuleType:
    """Import a module anew so that it finds green modules, or those given, where it imports standard ones.

    Its names are copied into ``new_globals`` if that is a dictionary. Under a patched standard library there is
    nothing to replace, and the module is the one that everybody has.
    """
    module_name = RENAMED.get(module_name, module_name)
    replaced = _green(additional_modules, module_name)
    if replaced:
        hidden = sys.modules.pop(module_name, None)
        try:
            with _replaced(replaced):
                module = importlib.import_module(module_name)
        finally:
            sys.modules.pop(module_name, None)
            if hidden is not None:
                sys.modules[module_name] = hidden
                parent, _, child = module_name.rpartition(".")
                if parent:
                    setattr(sys.modules[parent], child, hidden)
    else:
        module = importlib.import_module(module_name)
    if new_globals is not None:
        slurp_properties(module, new_globals, ignore=("__builtins__", "__doc__", "__file__", "__name__", "__path__"))
    return module


def import_patched(module_name: str, *additional_modules: tuple[str, ModuleType]) -> ModuleType:
    """Import a module as ``inject`` does, and give it."""
    return inject(module_name, None, *additional_modules)


def slurp_properties(source: Any, destination: dict[str, Any], ignore: Iterable[str] = (), srckeys: Any = None) -> None:
    """Copy the attributes of a module into a dictionary."""
    names = dir(source) if srckeys is None else srckeys
    destination.update({name: getattr(source, name) for name in names if name not in ignore})


def patch_function(func: Callable[..., Any], *additional_modules: tuple[str, ModuleType]) -> Callable[..., Any]:
    """Wrap a function that imports standard modules when it is called, so that it gets green ones."""

    @wraps(func)
    def patched(*args: Any, **kwargs: Any) -> Any:
        with _replaced(_green(additional_modules)):
            return func(*args, **kwargs)

    return patched
