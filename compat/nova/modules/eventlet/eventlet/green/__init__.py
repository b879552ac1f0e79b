"""Standard modules that are cooperative: ``from eventlet.green import socket``, by the names of Python 2 or 3.

Under a patched standard library they are the standard modules themselves. Otherwise each is a copy with gevent's
functions in it, or one that was imported anew so as to find such copies.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from gevent import monkey

from eventlet import patcher

__all__ = ["module"]

#: Standard modules of which gevent has cooperative parts.
_GEVENT = {
    "_thread": "gevent.thread",
    "os": "gevent.os",
    "queue": "gevent.queue",
    "select": "gevent.select",
    "selectors": "gevent.selectors",
    "signal": "gevent.signal",
    "socket": "gevent.socket",
    "ssl": "gevent.ssl",
    "subprocess": "gevent.subprocess",
    "time": "gevent.time",
}
#: One module of Python 2 that is several now; later ones win.
_MERGED = {
    "urllib": ("urllib.response", "urllib.error", "urllib.parse", "urllib.request"),
    "urllib2": ("urllib.response", "urllib.error", "urllib.parse", "urllib.request"),
}
#: Modules that only need those above, and are imported anew if these are not patched.
_BUILT_ON = (
    "asynchat",
    "asyncore",
    "ftplib",
    "http.client",
    "http.cookiejar",
    "http.server",
    "smtplib",
    "socketserver",
    "telnetlib",
    "threading",
    "urllib.error",
    "urllib.parse",
    "urllib.request",
    "urllib.response",
    "xmlrpc.client",
)
#: Made green by others.
_OTHERS = {"zmq": "zmq.green"}


@cache
def module(name: str) -> ModuleType:
    """Give the cooperative module of that name. Raises ImportError if there is none."""
    if name in _MERGED:
        merged = ModuleType(f"{__name__}.{name}")
        for part in _MERGED[name]:
            source = module(part)
            merged.__dict__.update({k: v for k, v in vars(source).items() if not k.startswith("__")})
            setattr(merged, part.rpartition(".")[2], source)
        # So that `import eventlet.green.urllib.request` finds its parts.
        merged.__path__ = []
        return merged
    name = patcher.RENAMED.get(name, name)
    if name in _OTHERS:
        return importlib.import_module(_OTHERS[name])
    if name in _GEVENT:
        return _overlaid(name, _GEVENT[name])
    if name in _BUILT_ON:
        if monkey.is_module_patched("threading" if name == "threading" else "socket"):
            return importlib.import_module(name)
        made: ModuleType = patcher.import_patched(name)
        return _ending_threads(made) if name == "threading" else made
    if name in ("builtins", "http"):
        return importlib.import_module(name)
    raise ImportError(f"no module named {__name__}.{name}", name=f"{__name__}.{name}")


def _overlaid(name: str, cooperative: str) -> ModuleType:
    standard = importlib.import_module(name)
    if monkey.is_module_patched(name):
        return standard
    source = importlib.import_module(cooperative)
    copy = ModuleType(name, standard.__doc__)
    copy.__dict__.update(vars(standard))
    for attribute in (*source.__implements__, *getattr(source, "__extensions__", ())):
        setattr(copy, attribute, getattr(source, attribute))
    return copy


def _ending_threads(threading: Any) -> ModuleType:
    """Have threads that are greenlets tell of their end, which before Python 3.13 only native ones do."""
    if hasattr(threading, "_set_sentinel"):
        threading._set_sentinel = threading._allocate_lock
        run = threading.Thread._bootstrap_inner

        def _bootstrap_inner(thread: Any) -> None:
            try:
                run(thread)
            finally:
                if thread._tstate_lock is not None:
                    thread._tstate_lock.release()

        threading.Thread._bootstrap_inner = _bootstrap_inner
    made: ModuleType = threading
    return made


class _Finder(MetaPathFinder, Loader):
    """Imports ``eventlet.green.X``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(f"{__name__}.")
        if prefix or not name:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, placeholder: ModuleType) -> None:
        # What is imported is a module that has a name already, so it takes the place of the new one.
        fullname = placeholder.__name__
        sys.modules[fullname] = module(fullname.removeprefix(f"{__name__}."))


sys.meta_path.append(_Finder())


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError as error:
        raise AttributeError(name) from error
