"""pytest plugin: a legacy suite under the shim. ``pytest -p compat.nova.plugin [--nova-tree DIR] [--nova-era NAME]``.

* The shim is installed before any conftest or test is loaded. In a configuration file: ``nova_tree``, ``nova_era``.
* What a test does to the shim's flags and to the choice of the backend, and consumers that it left, of the fake backend
  or the router, end with the test.
* An exception whose class is called ``SkipTest`` skips the test, wherever the class comes from.
* ``setup`` and ``teardown`` of packages and modules run as nose ran them, and test cases whose names begin with an
  underscore, as those of which others are made, do not run themselves.
* The greenlets and threads that the tests left are ended with the session, so that the process ends too.

A ``conftest.py`` that names this plugin in ``pytest_plugins`` comes before it, and must not import ``nova`` itself.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import unittest
from collections.abc import Generator, Iterator, MutableSet
from contextlib import ExitStack
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import pytest
from _pytest.unittest import TestCaseFunction
from gevent import getcurrent, killall
from gevent.greenlet import Greenlet

import compat.nova

# Suites import what they test when they are collected, and some block in time.sleep().
compat.nova.patch()

#: Seconds for what tests left running to end.
_LEFT_SECONDS = 5.0
_SETUP_MODULE = ("setup", "setUp")
_TEARDOWN_MODULE = ("teardown", "tearDown")
_SETUP_PACKAGE = ("setup_package", "setupPackage", "setUpPackage", *_SETUP_MODULE)
_TEARDOWN_PACKAGE = ("teardown_package", "teardownPackage", "tearDownPackage", *_TEARDOWN_MODULE)

_packages = pytest.StashKey[dict[str, ExitStack]]()


# --- the shim itself ----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """The same two settings as arguments and in the configuration file."""
    group = parser.getgroup("nova", "legacy Nova on rpcmq")
    group.addoption("--nova-tree", metavar="DIR", help="directory that holds the nova package to overlay")
    group.addoption("--nova-era", choices=compat.nova.ERAS, help="era of the suite (default: read off tree or imports)")
    parser.addini("nova_tree", "directory that holds the nova package to overlay, relative to this file")
    parser.addini("nova_era", "era of the suite")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest."""
    _install(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Install the shim if a conftest named this plugin, which is later than the early hook."""
    _install(config, config.option)
    config.stash[_packages] = {}


def pytest_report_header(config: pytest.Config) -> str:
    """Report the era and the tree in pytest's header."""
    tree = compat.nova.tree()
    return f"nova: {compat.nova.era()}, {f'overlay of {tree}' if tree else 'stand-in'}"


def _install(config: pytest.Config, options: argparse.Namespace) -> None:
    tree = getattr(options, "nova_tree", None)
    if not tree and (ini := config.getini("nova_tree")):
        tree = (config.inipath.parent if config.inipath else config.rootpath) / ini
    era = getattr(options, "nova_era", None) or config.getini("nova_era") or None
    try:
        compat.nova.install(tree or None, era)
    except (ValueError, RuntimeError) as error:
        raise pytest.UsageError(str(error)) from None


# --- between tests ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _nova_state() -> Iterator[None]:
    """Undoes what a test does to the shim; what its module or class set up before it stays."""
    overrides = {id(entry): entry.override for state in _flags() for entry in _entries(state)}
    consumers = {topic: [*those] for topic, those in _consumers().items()}
    backend = _backend()
    consuming = _consuming()
    yield
    for state in _flags():
        for entry in _entries(state):
            # An option that the test registered is not overridden.
            entry.override = overrides.get(id(entry), type(entry).override)
        state.cache.clear()
    _consumers().clear()
    _consumers().update(consumers)
    for connection in _consuming() - consuming:
        connection.reset()
    if _backend() is not backend:
        vars(sys.modules["nova.rpc"])["_RPCIMPL"] = backend


def _flags() -> list[Any]:
    """Snapshot the values of the shim's configuration objects; a tree's own objects are its suite's concern."""
    from compat.nova import options

    states = [getattr(conf, "_state", None) for conf in options.configurations()]
    return [state for state in states if hasattr(state, "groups")]


def _entries(state: Any) -> list[Any]:
    return [entry for entries in state.groups.values() for entry in entries.values()]


def _consumers() -> dict[str, list[Any]]:
    """The table of the fake backend."""
    found: dict[str, list[Any]] = getattr(sys.modules.get("nova.rpc.impl_fake"), "CONSUMERS", {})
    return found


def _consuming() -> set[Any]:
    """The connections that consume from the router."""
    connections = getattr(sys.modules.get("nova.rpc.connection"), "connections", ())
    return {each for each in connections if each.consuming}


def _backend() -> Any:
    """The module that ``nova.rpc`` took and keeps, or None."""
    return getattr(sys.modules.get("nova.rpc"), "_RPCIMPL", None)


# --- as nose did --------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: object, name: str, obj: object) -> list[pytest.Item] | None:
    """A test case whose name begins with an underscore is only a base of others."""
    private = isinstance(obj, type) and issubclass(obj, unittest.TestCase) and obj.__name__.startswith("_")
    return [] if private else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test base may delete all that its tests left on themselves, also what pytest keeps there and then misses."""
    try:
        return (yield)
    except AttributeError as error:
        # Whatever the test itself raised is in its result, and not raised here.
        *_, (innermost, _line) = traceback.walk_tb(error.__traceback__)
        if not isinstance(item, TestCaseFunction) or innermost.f_code is not TestCaseFunction.runtest.__code__:
            raise
        return None


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A ``SkipTest`` that is not unittest's skips as well."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, unittest.SkipTest | pytest.skip.Exception):
        return
    if any(cls.__name__ == "SkipTest" for cls in type(error).__mro__):
        skipped = pytest.CallInfo.from_call(lambda: pytest.skip(str(error)), call.when)
        call.excinfo = skipped.excinfo


@pytest.fixture(autouse=True, scope="module")
def _nose_setup(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs ``setup`` of each package around a test module once in the session, and that of the module."""
    module = request.node.obj
    done = request.config.stash[_packages]
    names = module.__name__.split(".")
    for depth in range(1, len(names)):
        name = ".".join(names[:depth])
        if name not in done and (package := sys.modules.get(name)):
            done[name] = ExitStack()
            _call_first(package, _SETUP_PACKAGE)
            done[name].callback(_call_first, package, _TEARDOWN_PACKAGE)
    _call_first(module, _SETUP_MODULE)
    yield
    _call_first(module, _TEARDOWN_MODULE)


def _call_first(module: ModuleType, names: tuple[str, ...]) -> None:
    function = next((f for name in names if isinstance(f := getattr(module, name, None), FunctionType)), None)
    if function is not None:
        # Nose gave the module to a function that takes an argument.
        function(*[module][: function.__code__.co_argcount])


# --- the end ------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Ends what the tests left running."""
    spawned: MutableSet[Any] = WeakSet()
    Greenlet.add_spawn_callback(spawned.add)
    try:
        return (yield)
    finally:
        Greenlet.remove_spawn_callback(spawned.add)
        for stack in reversed(session.config.stash[_packages].values()):
            stack.close()
        if _backend() is not None:
            sys.modules["nova.rpc"].cleanup()
        killall([left for left in spawned if left is not getcurrent() and not _is_ours(left)], timeout=_LEFT_SECONDS)


def _is_ours(greenlet: Any) -> bool:
    """Return whether the greenlet belongs to rpcmq, and so ends with the process."""
    home = str(getattr(getattr(greenlet, "_run", None), "__module__", ""))
    return home.partition(".")[0] == "rpcmq" or home.startswith("compat.nova.")
