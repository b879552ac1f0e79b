"""Legacy Nova on rpcmq: ``nova.rpc``, ``nova.openstack.common.rpc`` and their dependencies, for unmodified callers.

::

    import compat.nova

    compat.nova.install()  # before anything of nova or eventlet is imported

    from nova import rpc

Where a Nova tree is given, or is on the path, its RPC modules are replaced and what it lacks is added
(*overlay*); where there is none, the shim stands in for all of it. ``python -m compat.nova run -- ...`` runs
a program or a test suite so, without an edit; ``-p compat.nova.plugin`` does it within pytest.

Nothing else is loaded by importing this package.
"""

from __future__ import annotations

import builtins
import functools
import os
import signal
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from compat.nova.eras import ERAS, of_imports, of_tree

if TYPE_CHECKING:
    from compat.nova.finder import Fallback, Finder

__all__ = ["ERAS", "era", "install", "installed", "patch", "tree", "uninstall"]

_MODULES = Path(__file__).parent / "modules"
#: Top-level names that the installed shim owns.
_OURS = ("nova", "eventlet")


class _Installed(NamedTuple):
    finder: Finder
    fallback: Fallback
    era: str | None


_now: _Installed | None = None


def install(
    tree: str | os.PathLike[str] | Literal[False] | None = None, era: str | None = None, *, patched: bool = True
) -> None:
    """Switch the shim on for this process. A second time with the same arguments, or none, changes nothing.

    Args:
        tree: the directory that holds the ``nova`` package to overlay. None takes what is on ``sys.path``
            when modules are imported, and stands in where nothing is; False stands in whatever is there.
        era: one of :data:`ERAS`; None reads it off the tree or the imports.
        patched: make the standard library cooperative first, as legacy code expects; False is for tools that
            only look at modules.

    Raises:
        ValueError: there is no such era, or no ``nova`` in ``tree``.
        RuntimeError: ``nova`` or ``eventlet`` was imported before, or other arguments hold already.
    """
    global _now
    root = _checked(tree)
    if era is not None and era not in ERAS:
        raise ValueError(f"no era {era!r}; there are {', '.join(ERAS)}")
    if _now is not None:
        _check_unchanged(_now, root, era)
        return
    for name in _OURS:
        if module := sys.modules.get(name):
            raise RuntimeError(f"install() must come before {name} is imported; it was, from {_origin(module)}")
    if patched:
        patch()
    from compat.nova import python2
    from compat.nova.finder import Fallback, Finder

    python2.restore()
    support = _MODULES / "support"
    static_proxy = None if era is None else era in ("folsom", "grizzly")
    finder = Finder(_MODULES / "core", support, _MODULES / "eventlet", root, static_proxy)
    _now = _Installed(finder, Fallback(support), era)
    sys.meta_path.insert(0, _now.finder)
    sys.meta_path.append(_now.fallback)
    if not hasattr(builtins, "_"):
        vars(builtins)["_"] = _untranslated


def uninstall() -> None:
    """Switch it off again and forget the modules that came of it; for tests.

    What :func:`patch` did stays: it cannot be undone.
    """
    global _now
    if _now is None:
        return
    ours = (_now.finder, _now.fallback)
    # eventlet.green brings a finder of its own.
    sys.meta_path[:] = [each for each in sys.meta_path if each not in ours and not _is_legacy(type(each).__module__)]
    _now = None
    support = str(_MODULES / "support")
    for name, module in list(sys.modules.items()):
        redirected = name.startswith(f"{__name__}.") and getattr(module, "__name__", name) != name
        from_support = str(getattr(module, "__file__", None) or "").startswith(support)
        if _is_legacy(name) or redirected or from_support:
            del sys.modules[name]
            if redirected:
                vars(sys.modules[__name__]).pop(name.rpartition(".")[2], None)
    if getattr(builtins, "_", None) is _untranslated:
        del vars(builtins)["_"]


def patch() -> None:
    """Make the standard library cooperative (``gevent.monkey.patch_all``)."""
    from gevent import monkey

    with warnings.catch_warnings():
        # An earlier import of ssl is worth a warning, not an error.
        warnings.simplefilter("default", monkey.MonkeyPatchWarning)
        monkey.patch_all()
    _replace_local()
    _defer_signals()


def _replace_local() -> None:
    """Have ``threading.local`` be one that trees may derive their ``WeakLocal`` from."""
    import _thread
    import _threading_local
    import threading

    from compat.nova.greenlet_local import local

    for module, name in ((threading, "local"), (_threading_local, "local"), (_thread, "_local")):
        setattr(module, name, local)


#: Signals that notify services. Others, such as SIGALRM, are meant to interrupt running code.
_DEFERRED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def _defer_signals() -> None:
    """Run handlers of signals in a green thread of their own.

    Services raise from them, and would otherwise do so in the middle of whatever is running: in the hub, or in
    the handler of somebody's call. Whatever a handler raises, the main green thread gets, as it did with eventlet.
    """
    import gevent

    set_handler = signal.signal
    if hasattr(set_handler, "deferring"):
        return

    @functools.wraps(set_handler)
    def deferring(signum: int, handler: Any) -> Any:
        if signum not in _DEFERRED or not callable(handler) or handler is signal.default_int_handler:
            return set_handler(signum, handler)

        def run(number: int) -> None:
            try:
                handler(number, None)
            except BaseException as error:
                gevent.get_hub().handle_system_error(type(error), error)

        @functools.wraps(handler)
        def soon(number: int, frame: Any) -> None:
            gevent.get_hub().loop.run_callback_threadsafe(gevent.spawn, run, number)

        return set_handler(signum, soon)

    vars(deferring)["deferring"] = True
    signal.signal = deferring  # type: ignore[assignment]


def installed() -> bool:
    """Return whether the shim is on in this process."""
    return _now is not None


def tree() -> Path | None:
    """The directory whose ``nova`` is overlaid; None where the shim stands in alone."""
    trees = _now.finder.trees() if _now is not None else []
    return trees[0] if trees else None


def era() -> str:
    """The era in force, one of :data:`ERAS`: the given one, the tree's, or what the imports so far tell.

    While nothing of Folsom or later was imported, a program without a tree counts as Essex.
    """
    # Asked several times for each message, and all that it can depend on grows.
    if len(sys.modules) == _seen.modules and len(sys.path) == _seen.path and _now is _seen.installed:
        return _seen.era
    return _detect_era()


class _Seen:
    """Cache of the detected era, with the state it depends on."""

    __slots__ = ("era", "installed", "modules", "path")

    def __init__(self) -> None:
        self.era = ""
        self.installed: _Installed | None = None
        self.modules = self.path = -1


_seen = _Seen()


def _detect_era() -> str:
    trees = _now.finder.trees() if _now is not None else []
    found = _now.era if _now is not None else None
    found = found or next((era for root in trees if (era := of_tree(root))), None) or of_imports(sys.modules)
    _seen.era, _seen.installed = found, _now
    _seen.modules, _seen.path = len(sys.modules), len(sys.path)
    return found


def _checked(tree: str | os.PathLike[str] | Literal[False] | None) -> Path | Literal[False] | None:
    if tree is None or tree is False:
        return tree
    root = Path(tree).absolute()
    if not (root / "nova").is_dir():
        raise ValueError(f"no directory 'nova' in {root}; tree is the directory that holds it")
    return root


def _check_unchanged(now: _Installed, root: Path | Literal[False] | None, era: str | None) -> None:
    if root is not None and root != now.finder.tree:
        raise RuntimeError(f"the shim is installed with tree={now.finder.tree}; it cannot become {root}")
    if era is not None and era != now.era:
        raise RuntimeError(f"the shim is installed with era={now.era}; it cannot become {era}")


def _is_legacy(name: str) -> bool:
    from compat.nova.finder import RENAMED

    return name.partition(".")[0] in (*_OURS, *RENAMED)


def _origin(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or "an unknown place")


def _untranslated(text: str) -> str:
    """``builtins._`` where no translation is installed."""
    return text
