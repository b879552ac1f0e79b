"""Which globals a pickle may name: exact (module, qualname) pairs, never patterns.

Loading a pickle is calling what it names with arguments that it brings, so each entry is a
decision. Two rules keep the decisions small:

* What a pickle gets for a name is taken from a table filled from the list; the name itself is
  never walked or imported. ``"a:B.C"`` is one entry; listing ``"a:B"`` does not give ``B.C``.
* A pickle may set attributes on whatever it holds, classes included. So a class written in Python
  is never handed over: a *stand-in* is, which only constructs. (Classes written in C whose
  attributes cannot be set are handed over as they are.)

Listing a class still trusts it: its constructor, ``__setstate__``, ``__hash__``, property setters
and the methods ``append``, ``extend``, ``add`` and ``__setitem__`` run with arguments of the
sender's choice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from rpcmq.errors import PayloadRefused, UsageError
from rpcmq.payload.bounded_text import brief

__all__ = ["AllowList", "stand_in"]

_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: setting an attribute raises TypeError.

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


class _StandIn(type):
    """The type of stand-ins: calling one constructs, and nothing can be set on it."""

    _build: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._build(*args, **kwargs)

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise PayloadRefused(f"pickle sets attribute {name[:80]!r} on {cls!r}")

    def __delattr__(cls, name: str) -> NoReturn:
        raise PayloadRefused(f"pickle deletes attribute {name[:80]!r} of {cls!r}")

    def __repr__(cls) -> str:
        return f"<stand-in for {cls.__module__}:{cls.__qualname__}>"


def stand_in(entry: str, build: Callable[..., Any], new: type | None = None) -> type:
    """What a pickle gets for ``entry`` in place of a mutable class or a function.

    Args:
        entry: ``"module:qualname"``.
        build: called where the pickle calls the global.
        new: the class whose ``__new__`` makes the object where the pickle asks for an object
            without calling the constructor; None refuses that.
    """
    module, _, qualname = entry.partition(":")

    def make(_cls: type, *args: Any, **kwargs: Any) -> Any:
        if new is None:
            raise PayloadRefused(f"pickle makes a {entry} without calling it")
        return new.__new__(new, *args, **kwargs)

    namespace = {
        "__slots__": (),
        "__module__": module,
        "__qualname__": qualname,
        "__new__": make,
        "_build": staticmethod(build),
    }
    return _StandIn(qualname, (), namespace)


def for_pickle(entry: str, value: object) -> object:
    """``value``, which ``entry`` names, in the form in which a pickle may hold it."""
    if isinstance(value, type):
        if value.__flags__ & _IMMUTABLE_TYPE:
            return value
        return stand_in(entry, value, new=value)
    if callable(value):
        return stand_in(entry, value)
    raise PayloadRefused(f"allow-list entry {entry!r} names neither a class nor a function")


class AllowList:
    """An immutable set of globals that a pickle may name.

    Args:
        names: entries ``"module:qualname"``, for example ``"nova.objects:Instance"`` or
            ``"nova.objects:Instance.State"``. The syntax is checked here; a module is imported
            when a pickle first names an entry of it, or by ``load_all``.

    Raises:
        UsageError: an entry is malformed, or would undo the list.
    """

    __slots__ = ("_guarded", "_listed", "_ready")

    def __init__(self, names: Iterable[str] = ()) -> None:
        if isinstance(names, str):
            raise UsageError(f"allow-list must be a list of entries, not the string {names!r}")
        self._listed = frozenset(map(_parsed, names))
        self._guarded: dict[tuple[str, str], object] = {}
        self._ready: dict[tuple[str, str], object] = {}

    @classmethod
    def guarded(
        cls, entries: Iterable[tuple[str, object]], substitutes: Iterable[tuple[str, object]] = ()
    ) -> AllowList:
        """A list whose entries come with what a pickle is to get for each.

        Args:
            entries: ``("module:qualname", object for the pickle)``.
            substitutes: the same for globals that are *not* allowed, but for which the pickle of
                an allowed type gets a narrow replacement.
        """
        made = cls()
        made._guarded = {_parsed(name): value for name, value in entries}
        made._listed = frozenset(made._guarded)
        for name, value in substitutes:
            module, _, qualname = name.partition(":")
            made._guarded[module, qualname] = value
        made._ready = dict(made._guarded)
        return made

    def allowing(self, *more: str) -> AllowList:
        """This list with ``more`` entries. Raises ``UsageError`` as the constructor does."""
        made = AllowList(more)
        made._listed |= self._listed
        made._guarded = self._guarded
        made._ready = dict(self._guarded)
        return made

    def restricted_to(self, *names: str) -> AllowList:
        """A list of ``names`` only, in the form that they have here. Raises ``UsageError`` as the constructor does."""
        made = AllowList(names)
        # Substitutes, which are not listed, belong to the pickles of what is.
        made._guarded = {
            key: value for key, value in self._guarded.items() if key in made._listed or key not in self._listed
        }
        made._ready = dict(made._guarded)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """All entries, sorted."""
        return tuple(sorted(f"{module}:{qualname}" for module, qualname in self._listed))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and tuple(name.split(":")) in self._listed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AllowList):
            return NotImplemented
        return self._listed == other._listed and self._guarded == other._guarded

    def __hash__(self) -> int:
        return hash(self._listed)

    def __repr__(self) -> str:
        return f"AllowList({list(self.names)!r})"

    def load_all(self) -> None:
        """Imports what every entry names, so that a wrong one is found at start.

        Raises:
            UsageError: an entry names nothing that can be imported, or no class or function.
        """
        for module, qualname in sorted(self._listed):
            try:
                self.find(module, qualname)
            except PayloadRefused as error:
                raise UsageError(str(error)) from error

    def find(self, module: str, qualname: str) -> object:
        """What a pickle that names this global gets.

        Raises:
            PayloadRefused: it is not listed, or cannot be imported here.
        """
        key = (module, qualname)
        try:
            return self._ready[key]
        except KeyError:
            pass
        if key not in self._listed:
            raise PayloadRefused(_not_allowed(module, qualname))
        entry = f"{module}:{qualname}"
        value = self._ready[key] = for_pickle(entry, _imported(entry, module, qualname))
        return value


def _parsed(entry: str) -> tuple[str, str]:
    if not isinstance(entry, str):
        raise UsageError(f"allow-list entry {brief(entry)} is not a string 'module:qualname'")
    module, colon, qualname = entry.partition(":")
    if "<locals>" in qualname:
        raise UsageError(
            f"allow-list entry {entry!r}: a class defined inside a function cannot be found by "
            "name; define it at the top level of its module"
        )
    parts = module.split(".") + qualname.split(".")
    if not colon or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f"allow-list entry {entry!r} is not of the form 'module:qualname', for example 'nova.objects:Instance'"
        )
    if is_never_allowed(module, qualname):
        raise UsageError(
            f"allow-list entry {entry!r} would let any sender run code of its choice; "
            "list the classes of the values themselves"
        )
    return module, qualname


def _imported(entry: str, module: str, qualname: str) -> object:
    try:
        value: Any = importlib.import_module(module)
        for part in qualname.split("."):
            value = getattr(value, part)
    except Exception as error:
        raise PayloadRefused(
            f"allow-list entry {entry!r} cannot be imported here: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    return value


def _not_allowed(module: str, qualname: str) -> str:
    entry = f"{module[:200]}:{qualname[:200]}"
    if is_never_allowed(module, qualname):
        return f"pickle names the global {entry!r}, which runs code of the sender's choice and can never be allowed"
    text = (
        f"pickle names the global {entry!r}, which is not on this process's allow-list; if it is "
        f"to be trusted, add it here: allow=[{entry!r}], or RPCMQ_ALLOW={entry} in the environment"
    )
    if module == "__main__":
        text += " (and move it to a module: __main__ is another one in each process)"
    return text
