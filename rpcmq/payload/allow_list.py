"""The allow-list of globals that a pickle may name: exact (module, qualname) pairs, never patterns.

Loading a pickle is calling what it names with arguments that it brings, so each entry is a
decision. Two rules keep the decisions small:

* What a pickle gets for a name is taken from a table filled from the list; the name itself is
  never walked or imported. ``"a:B.C"`` is one entry; listing ``"a:B"`` does not give ``B.C``.
* A pickle gets no class written in Python, but a stand-in, which only constructs (``stand_in``).

Listing a class still trusts it: its constructor, ``__setstate__``, ``__hash__``, property setters
and the methods ``append``, ``extend``, ``add`` and ``__setitem__`` run with arguments of the
sender's choice.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rpcmq.errors import PayloadRefused, UsageError
from rpcmq.payload.allow_entries import NUMPY, entry_name, imported, imported_module, not_allowed, parsed
from rpcmq.payload.bounded_text import short_repr
from rpcmq.payload.exception_registry import STEERS_CONTROL_FLOW, loaded_subclass
from rpcmq.payload.stand_in import for_pickle, real_class

__all__ = ["AllowList", "allow", "classes_defined_in"]

T = TypeVar("T")


# --- entries allowed by the process -------------------------------------------------------------


class _Allowed:
    """Everything given to :func:`allow` in this process, shared by all lists that are not complete in themselves."""

    def __init__(self) -> None:
        self.classes: dict[tuple[str, str], object] = {}
        self.modules: set[str] = set()
        self.exceptions: dict[type[Exception], None] = {}

    def find(self, module: str, qualname: str) -> object | None:
        found = self.classes.get((module, qualname))
        if found is None and module in self.modules:
            cls = _defined_in(sys.modules.get(module), qualname)
            if cls is not None:
                found = self.classes[module, qualname] = for_pickle(f"{module}:{qualname}", cls)
        return found


_ALLOWED = _Allowed()


def allow(what: T) -> T:
    """Lets values and exceptions of a class, or of all classes that a module defines, come into this process.

    The process that *receives* them must say so; it holds for all its clients and services, made before or after. As a
    decorator, or with a class or module::

        @rpcmq.allow
        class Flavor(NamedTuple): ...

        rpcmq.allow(models)         # what models itself defines, not what it imports

    Whoever may send to this process can then have these classes constructed with arguments of their choice.

    Args:
        what: a class, a module of your own, or an entry as of the setting ``allow``: ``"models:Flavor"``,
            ``"models:*"``, ``"numpy"``.

    Returns:
        ``what``.

    Raises:
        UsageError: it is neither, or would let any sender run code of its choice.
    """
    if isinstance(what, type):
        _allow_class(what)
    elif isinstance(what, types.ModuleType):
        parsed(f"{what.__name__}:*")
        _ALLOWED.modules.add(what.__name__)
    elif isinstance(what, str):
        _allow_entry(what)
    else:
        raise UsageError(
            f"rpcmq.allow takes a class, a module or an entry 'module:Class', not {short_repr(what)}"
            + (": functions are not sent as values" if callable(what) else "")
        )
    return what


def _allow_class(cls: type) -> None:
    module, qualname = cls.__module__, cls.__qualname__
    parsed(f"{module}:{qualname}")
    _ALLOWED.classes[module, qualname] = for_pickle(f"{module}:{qualname}", cls)
    if issubclass(cls, Exception):
        _ALLOWED.exceptions[cls] = None


def _allow_entry(entry: str) -> None:
    module, qualname = parsed(entry)
    single = AllowList((entry,))
    single.load_all()
    if (module, qualname) == NUMPY:
        _ALLOWED.classes.update(_numpy_globals())
    elif qualname == "*":
        _ALLOWED.modules.add(module)
    else:
        found = _ALLOWED.classes[module, qualname] = single.find(module, qualname)
        cls = real_class(found)
        if cls is not None and issubclass(cls, Exception):
            _ALLOWED.exceptions[cls] = None


def classes_defined_in(module: types.ModuleType) -> Iterator[type]:
    """The classes at the top level of ``module`` that it defines itself."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__ and value.__qualname__ == name:
            yield value


def _defined_in(module: types.ModuleType | None, qualname: str) -> type | None:
    """The class that ``module`` defines as ``qualname``; None: it imports that, or has it under another name."""
    if module is None:
        return None
    found: Any = module
    path = ""
    for part in qualname.split("."):
        path = f"{path}.{part}" if path else part
        found = vars(found).get(part)
        if not isinstance(found, type) or found.__module__ != module.__name__ or found.__qualname__ != path:
            return None
    cls: type = found
    return cls


def _numpy_globals() -> dict[tuple[str, str], object]:
    from rpcmq.payload import numpy_pickle

    return numpy_pickle.numpy_globals()


class AllowList:
    """An immutable set of globals that a pickle may name.

    Args:
        names: entries ``"module:qualname"``, for example ``"nova.objects:Instance"`` or
            ``"nova.objects:Instance.State"``; ``"models:*"`` for all classes that a module of your own defines itself;
            ``"numpy"`` for its arrays and scalars. The syntax is checked here; a module is imported when a pickle
            first names an entry of it, or by ``load_all``.

    Raises:
        UsageError: an entry is malformed, or would undo the list.
    """

    __slots__ = ("_guarded", "_listed", "_open", "_ready")

    def __init__(self, names: Iterable[str] = ()) -> None:
        if isinstance(names, str):
            raise UsageError(f"allow-list must be a list of entries, not the string {names!r}")
        self._listed = frozenset(map(parsed, names))
        self._guarded: dict[tuple[str, str], object] = {}
        self._ready: dict[tuple[str, str], object] = {}
        #: Whether entries allowed by :func:`allow` in this process are added to the list.
        self._open = False

    @classmethod
    def guarded(
        cls,
        entries: Iterable[tuple[str, object]],
        substitutes: Iterable[tuple[str, object]] = (),
        *,
        extended: bool = False,
    ) -> AllowList:
        """A list whose entries come with what a pickle is to get for each.

        Args:
            entries: ``("module:qualname", object for the pickle)``.
            substitutes: the same for globals that are *not* allowed, but for which the pickle of
                an allowed type gets a narrow replacement.
            extended: by what this process allows with :func:`allow`.
        """
        made = cls()
        made._guarded = {parsed(name): value for name, value in entries}
        made._listed = frozenset(made._guarded)
        for name, value in substitutes:
            module, _, qualname = name.partition(":")
            made._guarded[module, qualname] = value
        made._ready = dict(made._guarded)
        made._open = extended
        return made

    def allowing(self, *more: str) -> AllowList:
        """This list with ``more`` entries. Raises ``UsageError`` as the constructor does."""
        made = AllowList(more)
        made._listed |= self._listed
        made._guarded = self._guarded
        made._ready = dict(self._guarded)
        made._open = self._open
        return made

    def restricted_to(self, *names: str) -> AllowList:
        """A list of ``names`` only, in the form that they have here. Raises ``UsageError`` as the constructor does."""
        made = AllowList(names)
        # Substitutes are not listed; they belong to the pickles of listed types.
        made._guarded = {
            key: value for key, value in self._guarded.items() if key in made._listed or key not in self._listed
        }
        made._ready = dict(made._guarded)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """All entries, sorted."""
        return tuple(sorted(entry_name(*key) for key in self._listed))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.entry_for(*name.partition(":")[::2]) != ""

    def entry_for(self, module: str, qualname: str) -> str:
        """The entry to list so that this global is allowed as here; empty: it is not, or comes with every list."""
        key = module, qualname
        if key in self._listed:
            return entry_name(*key)
        if module.partition(".")[0] == "numpy" and self.find_or_none(module, qualname) is not None:
            return "numpy"
        return "" if key in self._guarded or self.find_or_none(module, qualname) is None else entry_name(*key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AllowList):
            return NotImplemented
        return (self._listed, self._guarded, self._open) == (other._listed, other._guarded, other._open)

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
                if (module, qualname) == NUMPY:
                    _numpy_globals()
                elif qualname == "*":
                    if not any(classes_defined_in(imported_module(f"{module}:*", module))):
                        raise UsageError(f"allow-list entry '{module}:*': {module} defines no class itself")
                else:
                    self.find(module, qualname)
            except PayloadRefused as error:
                raise UsageError(str(error)) from error

    def find(self, module: str, qualname: str) -> object:
        """Return the object that a pickle gets for this global.

        Raises:
            PayloadRefused: it is not listed, or cannot be imported here.
        """
        try:
            return self._ready[module, qualname]
        except KeyError:
            pass  # not asked for before
        found = self.find_or_none(module, qualname)
        if found is None:
            raise PayloadRefused(not_allowed(module, qualname))
        return found

    def find_or_none(self, module: str, qualname: str) -> object | None:
        """Like :meth:`find`; None: it is not listed. Raises ``PayloadRefused`` where it cannot be imported."""
        key = (module, qualname)
        found = self._ready.get(key)
        if found is None and qualname not in ("", "*"):
            if key in self._listed:
                found = for_pickle(entry_name(*key), imported(entry_name(*key), module, qualname))
            elif (module, "*") in self._listed:
                cls = _defined_in(imported_module(f"{module}:*", module), qualname)
                found = None if cls is None else for_pickle(entry_name(*key), cls)
            elif NUMPY in self._listed and module.partition(".")[0] == "numpy":
                found = _numpy_globals().get(key)
            if found is not None:
                self._ready[key] = found
            elif self._open:
                found = _ALLOWED.find(module, qualname)
        return found

    def exception_class(self, name: str) -> type[Exception] | None:
        """The exception class ``"module:qualname"`` if it is listed beyond what comes with every list, or derives from
        one that is and is loaded; nothing is imported but what is listed.
        """
        module, _, qualname = name.partition(":")
        try:
            found = None if (module, qualname) in self._guarded else self.find_or_none(module, qualname)
        except PayloadRefused:
            found = None
        cls = real_class(found) or loaded_subclass(name, self._exceptions())
        return (
            cls if cls is not None and issubclass(cls, Exception) and not issubclass(cls, STEERS_CONTROL_FLOW) else None
        )

    def _exceptions(self) -> Iterator[type[Exception]]:
        """The exception classes that are listed one by one."""
        for module, qualname in self._listed - self._guarded.keys():
            if qualname in ("", "*"):
                continue
            try:
                cls = real_class(self.find_or_none(module, qualname))
            except PayloadRefused:
                continue  # listed, and not installed here: there is no class to register
            if cls is not None and issubclass(cls, Exception):
                yield cls
        if self._open:
            yield from list(_ALLOWED.exceptions)
            for name in list(_ALLOWED.modules):
                if name in sys.modules:
                    yield from (cls for cls in classes_defined_in(sys.modules[name]) if issubclass(cls, Exception))
