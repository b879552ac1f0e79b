"""Import finder for legacy modules: ``nova`` in three layers, ``eventlet``, and aliases of renamed modules.

* ``nova.X`` comes from the first of: core (the RPC modules), trees (a given one, else each ``nova``
  package on ``sys.path``), support. The parts of a package may come from all of them.
* Of ``nova.rpc`` and ``nova.openstack.common.rpc`` a tree gives nothing, not even a module that core lacks.
* ``nova.openstack.common.rpc.X`` *is* ``nova.rpc.X``: one ``RemoteError``, one table of consumers. Core may
  have a file of its own for a name below it (Havana's proxy). So that ``from nova.openstack.common.rpc
  import proxy`` can give that one, the package itself is a :class:`Mirror` of ``nova.rpc``.
* ``eventlet``, ``mox``, ``mox3``, ``stubout`` and all below them are ours, whatever is installed: what the registries
  have under these names is for another Python.
* ``exceptions`` and ``__builtin__`` are ``builtins``, ``unittest2`` is ``unittest``; ``compat.nova.X`` is ``nova.X`` if
  the shim has no module of that name.

Modules load under their legacy names, since legacy code compares and sends those names.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from compat.nova.eras import of_tree

__all__ = ["RENAMED", "Fallback", "Finder", "Mirror"]

#: Former package names -> today's.
RENAMED = {"__builtin__": "builtins", "exceptions": "builtins", "unittest2": "unittest"}
#: Mocking packages, which suites used to replace dependencies.
_OF_TESTS = ("mox", "mox3", "stubout")

_RPC = "nova.rpc"
_COMMON_RPC = "nova.openstack.common.rpc"
_PROXY = f"{_COMMON_RPC}.proxy"
_SHIM = "compat.nova"
_PACKAGE = Path(__file__).parent


class Finder(MetaPathFinder):
    """Goes first on ``sys.meta_path``.

    Args:
        core: directory whose ``nova`` always wins.
        support: directory whose ``nova`` fills what trees lack.
        eventlet: directory that holds ``eventlet``.
        tree: directory that holds the ``nova`` to overlay; None is whatever is on ``sys.path`` when a module
            is looked for; False is none at all.
        static_proxy: in Folsom and Grizzly ``nova.openstack.common.rpc.proxy`` is the same as ``nova.rpc.proxy``.
            None: whether it is, is read off the trees when that is imported.
    """

    def __init__(
        self,
        core: Path,
        support: Path,
        eventlet: Path,
        tree: Path | Literal[False] | None = None,
        static_proxy: bool | None = False,
    ) -> None:
        self.core = core
        self.support = support
        self.eventlet = eventlet
        self.tree = tree
        self.static_proxy = static_proxy

    def trees(self) -> list[Path]:
        """The directories whose ``nova`` is overlaid: the given one, then those on ``sys.path`` now."""
        if self.tree is False:
            return []
        given = [] if self.tree is None else [self.tree]
        return given + [root for root in _on_path() if root not in given]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``fullname``, or None if the shim does not provide it.

        Raises:
            ModuleNotFoundError: it is an RPC module that the shim does not have.
            ImportError: it is a legacy module under the name of its file in the shim.
        """
        package, dot, rest = fullname.partition(".")
        if package in RENAMED:
            return _alias(fullname, RENAMED[package] + dot + rest)
        if package in _OF_TESTS:
            return _merged(fullname, [self.support])
        if _within(fullname, _COMMON_RPC):
            return _required(fullname, self._common_rpc(fullname))
        if _within(fullname, _RPC):
            return _required(fullname, _merged(fullname, [self.core]))
        if _within(fullname, "nova"):
            return self._nova(fullname, path)
        if _within(fullname, "eventlet"):
            # What is not a file may still come from a finder of its own, as eventlet.green.* does; nothing else
            # has a way into the package.
            return _merged(fullname, [self.eventlet])
        if fullname.startswith(f"{_SHIM}."):
            return _redirected(fullname)
        return None

    def _nova(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        trees = self.trees()
        spec = _merged(fullname, [self.core, *trees, self.support])
        if spec is None or spec.submodule_search_locations is not None or spec.origin is None:
            return spec
        # A plain module of a tree, where any finder finds the same one: theirs may do more with it, such as
        # pytest's, which rewrites asserts.
        directory = Path(spec.origin).parent
        in_tree = any(directory.is_relative_to(tree) for tree in trees)
        return None if in_tree and str(directory) in (path or ()) else spec

    def _has_static_proxy(self) -> bool:
        if self.static_proxy is None:
            found = next((era for root in self.trees() if (era := of_tree(root))), None)
            self.static_proxy = found in ("folsom", "grizzly")
        return self.static_proxy

    def _common_rpc(self, fullname: str) -> ModuleSpec | None:
        if fullname == _COMMON_RPC:
            own = self.core.joinpath(*_COMMON_RPC.split("."))
            spec = ModuleSpec(fullname, _MirrorLoader(_RPC, own), is_package=True)
            spec.submodule_search_locations = [str(own)]
            return spec
        if not (fullname == _PROXY and self._has_static_proxy()) and (spec_of_own := _merged(fullname, [self.core])):
            return spec_of_own
        name = _RPC + fullname.removeprefix(_COMMON_RPC)
        return _alias(fullname, name) if _merged(name, [self.core]) else None


class Fallback(MetaPathFinder):
    """Goes last on ``sys.meta_path``: what ``support`` has besides ``nova`` and nothing else gave (``oslo.config``)."""

    def __init__(self, support: Path) -> None:
        self.support = support

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``fullname`` below ``support``, or None."""
        return None if _within(fullname, "nova") else _merged(fullname, [self.support])


class Mirror(ModuleType):
    """A package with a name of its own whose attributes are those of ``original``, read and written.

    Only the names in ``own`` (its own submodules) and those with double underscores are not shared.
    """

    def __init__(self, name: str, original: ModuleType, own: Iterable[str] = ()) -> None:
        super().__init__(name, original.__doc__)
        vars(self)["__original__"] = original
        vars(self)["__own__"] = frozenset(own)

    def __getattr__(self, name: str) -> Any:
        if name in self.__own__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.__original__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_own(name):
            super().__setattr__(name, value)
        else:
            setattr(self.__original__, name, value)

    def __delattr__(self, name: str) -> None:
        if self._is_own(name):
            super().__delattr__(name)
        else:
            delattr(self.__original__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.__original__)} - {"__original__", "__own__"})

    def _is_own(self, name: str) -> bool:
        return name in self.__own__ or (name.startswith("__") and name.endswith("__"))


class _MirrorLoader(Loader):
    def __init__(self, original: str, own: Path) -> None:
        self._original = original
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        names = [module.name for module in pkgutil.iter_modules([str(self._own)])]
        return Mirror(spec.name, importlib.import_module(self._original), names)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _AliasLoader(Loader):
    """Puts a module that has another name under this one too."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # What stands in sys.modules after this is what the importer gets.
        sys.modules[module.__name__] = importlib.import_module(self._name)


def _within(fullname: str, package: str) -> bool:
    return fullname == package or fullname.startswith(f"{package}.")


def _alias(fullname: str, name: str) -> ModuleSpec:
    return ModuleSpec(fullname, _AliasLoader(name))


def _required(fullname: str, spec: ModuleSpec | None) -> ModuleSpec:
    if spec is None:
        raise ModuleNotFoundError(f"No module named {fullname!r} in the shim", name=fullname)
    return spec


def _redirected(fullname: str) -> ModuleSpec | None:
    if _within(fullname, f"{_SHIM}.modules"):
        raise ImportError("legacy modules load under their legacy names, such as nova.rpc", name=fullname)
    rest = fullname.removeprefix(f"{_SHIM}.")
    if _in(_PACKAGE.parent.parent, f"{_SHIM}.{rest.partition('.')[0]}"):
        return None
    try:
        found = importlib.util.find_spec(f"nova.{rest}")
    except ModuleNotFoundError:
        found = None
    return _alias(fullname, f"nova.{rest}") if found else None


def _merged(fullname: str, roots: Iterable[Path]) -> ModuleSpec | None:
    """The first module of that name below ``roots``; if it is a package, its parts below all of them.

    A directory without ``__init__.py`` only adds parts.
    """
    specs = [spec for root in roots if (spec := _in(root, fullname))]
    first = next((spec for spec in specs if spec.loader), None)
    if first and first.submodule_search_locations is None:
        return first
    parts = [part for spec in specs for part in spec.submodule_search_locations or ()]
    if not parts:
        return None
    if first is None:
        first = ModuleSpec(fullname, None, is_package=True)
    first.submodule_search_locations = parts
    return first


def _in(root: Path, fullname: str) -> ModuleSpec | None:
    """The module below ``root``; a spec without a loader is a directory without ``__init__.py``."""
    importer = pkgutil.get_importer(str(root.joinpath(*fullname.split(".")[:-1])))
    return importer.find_spec(fullname) if importer else None


def _on_path() -> Iterator[Path]:
    for entry in dict.fromkeys(sys.path):
        root = Path(entry).absolute()
        spec = _in(root, "nova")
        # No trees: a data directory (but a suite alone may have no __init__.py above it), a script nova.py, and the
        # directory above this file.
        if not (spec and spec.submodule_search_locations and (spec.loader or (root / "nova" / "tests").is_dir())):
            continue
        if (root / "nova").resolve() != _PACKAGE.resolve():
            yield root
