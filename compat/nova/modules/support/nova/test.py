"""``nova.test`` for suites without a Nova tree: the test base and the decorators of Cactus to Havana.

Works under any runner of unittest tests, pytest among them. Where eras differ: flags are set on the configuration
object that has them, gflags-style or cfg-style; services get the host and the binary that each era's ``nova.service``
takes; the matching of dictionaries, methods here, became matchers in Grizzly, where the methods were gone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
import unittest
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from unittest import SkipTest

import compat.nova
from compat.nova import options, transport

import mox
import stubout
from nova._settings import Settings, has
from nova._skips import skip_if, skip_if_fake, skip_test, skip_unless

__all__ = [
    "NoDBTestCase",
    "ReplaceModule",
    "SkipTest",
    "TestCase",
    "TestingException",
    "skip_if",
    "skip_if_fake",
    "skip_test",
    "skip_unless",
]

T = TypeVar("T", bound=Callable[..., Any])


class TestingException(Exception):
    """Raised by tests, for what they test to handle."""

    __test__ = False


# --- replacing --------------------------------------------------------------------------------------


class ReplaceModule:
    """Has a name imported as something else, as a ``with`` block or a fixture."""

    def __init__(self, name: str, new_value: Any) -> None:
        self.name = name
        self.new_value = new_value
        self._old: list[types.ModuleType | None] = []

    def setUp(self) -> None:
        """Replace it."""
        self._old.append(sys.modules.get(self.name))
        sys.modules[self.name] = self.new_value

    def cleanUp(self) -> None:
        """Put back what was there, or nothing."""
        old = self._old.pop()
        if old is None:
            sys.modules.pop(self.name, None)
        else:
            sys.modules[self.name] = old

    def __enter__(self) -> ReplaceModule:
        self.setUp()
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanUp()


# --- the test base ----------------------------------------------------------------------------------


class TestCase(unittest.TestCase):
    """A test with ``stubs``, ``mox``, ``flags`` and services, all of which end with it.

    What it does to the RPC modules ends too: pooled connections are closed, consumers of the fake backend
    dropped, and the backend is again the one that it was. The options of all tests, ``nova.tests.fake_flags``, are set
    before each.
    """

    __test__ = True

    #: Saved state of each configuration object; empty before set-up.
    _settings: dict[int, Settings] = {}  # noqa: RUF012 - replaced, not changed
    _over = True

    def setUp(self) -> None:
        """Make ``stubs`` and ``mox``, and note how things are."""
        super().setUp()
        _set_defaults_of_suite()
        self.mox = mox.Mox()
        self.stubs = stubout.StubOutForTesting()
        #: Stopped after the test: what consumers of the Cactus days were attached to, and what tests add.
        self.injected: list[Any] = []
        self._services: list[Any] = []
        for conf in options.configurations():
            self._note(conf)
        rpc = sys.modules.get("nova.rpc")
        self._backend = getattr(rpc, "_RPCIMPL", None)
        self._consumers = {topic: [*those] for topic, those in _fake_consumers().items()}
        self._over = False
        #: Stubs made by this base itself; a test may make new ``stubs`` of its own.
        self._patches = stubout.StubOutForTesting()
        self._keep_attached(rpc)
        self._renew_pools(rpc)
        # Also for a subclass whose setUp fails, or whose tearDown forgets its base's.
        self.addCleanup(self._end)

    def tearDown(self) -> None:
        """Put everything back, and see that each call that ``mox`` expects was made."""
        try:
            super().tearDown()
        finally:
            self._end()

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        try:
            self.mox.UnsetStubs()
            self.stubs.UnsetAll()
            self.stubs.SmartUnsetAll()
            self.mox.VerifyAll()
        finally:
            for service in reversed(self._services):
                _kill(service)
            for timer in self.injected:
                try:
                    timer.stop()
                except AssertionError:
                    pass  # stopped already, as eventlet's events say
            self._patches.UnsetAll()
            self._reset_rpc()
            self.reset_flags()

    def _reset_rpc(self) -> None:
        rpc: Any = sys.modules.get("nova.rpc")
        if rpc is None:
            return
        if getattr(rpc, "_RPCIMPL", None) is not None and hasattr(rpc, "cleanup"):
            rpc.cleanup()
        if getattr(rpc, "_RPCIMPL", None) is not self._backend:
            rpc._RPCIMPL = self._backend
        if compat.nova.era() in ("cactus", "diablo") and options.value("fake_rabbit"):
            transport.reset()
        consumers = _fake_consumers()
        consumers.clear()
        consumers.update(self._consumers)

    def _keep_attached(self, rpc: Any) -> None:
        """Have what is attached to the hub during the test stop with it."""
        consumer = getattr(rpc, "Consumer", None)
        if consumer is None or not hasattr(consumer, "attach_to_eventlet"):
            return
        attach = consumer.attach_to_eventlet

        @functools.wraps(attach)
        def kept(consumer: Any, *args: Any, **kwargs: Any) -> Any:
            attached = attach(consumer, *args, **kwargs)
            self.injected.append(attached)
            return attached

        self._patches.Set(consumer, "attach_to_eventlet", kept)

    def _renew_pools(self, rpc: Any) -> None:
        """Have a pool that is used in turn, whatever the tests before took out of theirs."""
        if not hasattr(rpc, "ConnectionPool"):
            return
        size = int(options.value("rpc_conn_pool_size"))
        for module in (rpc, rpc.amqp):
            self._patches.Set(module, "ConnectionPool", rpc.Pool(max_size=size))

    # flags

    def flags(self, **kw: Any) -> None:
        """Set options for this test; those of a section with ``group='section'``.

        Raises what the configuration object raises for an option that it does not know.
        """
        group = kw.pop("group", None)
        for name, value in kw.items():
            known = [conf for conf in options.configurations() if has(conf, name, group)]
            if not known:
                options.register()
                confs = options.configurations()
                known = [conf for conf in confs if has(conf, name, group)] or confs[:1]
            # Before any is set: two of them may be the same settings.
            for conf in known:
                self._note(conf)
            for conf in known:
                _set(conf, name, value, group)

    def _note(self, conf: Any) -> None:
        if not self._settings:
            # Some set flags before their base is set up.
            self._settings = {}
            self.addCleanup(self.reset_flags)
        if id(conf) not in self._settings:
            self._settings[id(conf)] = Settings(conf)

    def reset_flags(self) -> None:
        """Set all options as they were before the test."""
        for settings in self._settings.values():
            settings.restore()

    # services

    def start_service(self, name: str, host: str | None = None, **kwargs: Any) -> Any:
        """Start the service ``nova-<name>`` of ``nova.service``, on a host of its own if none is given.

        The keywords are those of ``Service.create``; gives the service, which is killed after the test.
        """
        service = importlib.import_module("nova.service").Service
        kwargs.setdefault("host", host or uuid.uuid4().hex)
        kwargs.setdefault("binary", f"nova-{name}")
        started = service.create(**kwargs)
        self._services.append(started)
        started.start()
        return started

    # what testtools gave

    def useFixture(self, fixture: Any) -> Any:
        """Set a fixture up for this test; gives it."""
        fixture.setUp()
        self.addCleanup(fixture.cleanUp)
        return fixture

    def assertThat(self, matchee: Any, matcher: Any, message: str = "") -> None:
        """Fail unless a matcher, with its ``match`` and a mismatch's ``describe``, accepts it."""
        mismatch = matcher.match(matchee)
        if mismatch is not None:
            self.fail(f"{message}: {mismatch.describe()}" if message else mismatch.describe())

    # dictionaries

    def assertDictMatch(
        self, d1: Mapping[Any, Any], d2: Mapping[Any, Any], approx_equal: bool = False, tolerance: float = 0.001
    ) -> None:
        """Fail unless both have the same keys and, for each, the same value, dictionaries within likewise.

        A value of 'DONTCARE' on either side matches any. With ``approx_equal``, numbers (also in text) may differ
        by ``tolerance``.
        """
        only1, only2 = set(d1) - set(d2), set(d2) - set(d1)
        if only1 or only2:
            self.fail(
                f"Keys in d1 and not d2: {sorted(map(repr, only1))}. Keys in d2 and not d1: {sorted(map(repr, only2))}"
            )
        for key in d1:
            value1, value2 = d1[key], d2[key]
            if isinstance(value1, Mapping) and isinstance(value2, Mapping):
                self.assertDictMatch(value1, value2, approx_equal, tolerance)
            elif not _alike(value1, value2, approx_equal, tolerance):
                self.fail(f"d1[{key!r}]={value1!r} != d2[{key!r}]={value2!r}: d1={d1!r} d2={d2!r}")

    def assertDictListMatch(
        self, L1: list[Any], L2: list[Any], approx_equal: bool = False, tolerance: float = 0.001
    ) -> None:
        """Fail unless the lists are of one length and their dictionaries match one by one."""
        if len(L1) != len(L2):
            self.fail(f"Length mismatch: len(L1)={len(L1)} != len(L2)={len(L2)}")
        for d1, d2 in zip(L1, L2, strict=True):
            self.assertDictMatch(d1, d2, approx_equal, tolerance)

    def assertSubDictMatch(self, sub_dict: Mapping[Any, Any], super_dict: Mapping[Any, Any]) -> None:
        """Fail unless each key of the first is in the second with the same value, dictionaries within likewise."""
        missing = set(sub_dict) - set(super_dict)
        if missing:
            self.fail(f"Keys only in sub_dict: {sorted(map(repr, missing))}")
        for key, value in sub_dict.items():
            if isinstance(value, Mapping) and isinstance(super_dict[key], Mapping):
                self.assertSubDictMatch(value, super_dict[key])
            else:
                self.assertEqual(value, super_dict[key], f"at key {key!r}")  # noqa: PT009

    # what unittest has under another name, or no more

    def assertNotRaises(self, exc_class: Any, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Fail if the function raises such an exception; gives what it returns."""
        try:
            return func(*args, **kwargs)
        except exc_class as error:
            self.fail(f"{func!r} raised {error!r}")

    def assertItemsEqual(self, expected: Any, actual: Any, msg: Any = None) -> None:
        """Fail unless both have the same items, in any order."""
        self.assertCountEqual(expected, actual, msg)  # noqa: PT009

    def assertDictContainsSubset(
        self, subset: Mapping[Any, Any], dictionary: Mapping[Any, Any], msg: Any = None
    ) -> None:
        """Fail unless the dictionary has all the items of the other."""
        self.assertEqual(dict(dictionary), {**dictionary, **subset}, msg)  # noqa: PT009

    assert_ = failUnless = unittest.TestCase.assertTrue
    failIf = unittest.TestCase.assertFalse
    assertEquals = failUnlessEqual = unittest.TestCase.assertEqual
    assertNotEquals = failIfEqual = unittest.TestCase.assertNotEqual
    assertAlmostEquals = unittest.TestCase.assertAlmostEqual
    assertRegexpMatches = unittest.TestCase.assertRegex
    assertNotRegexpMatches = unittest.TestCase.assertNotRegex
    assertRaisesRegexp = unittest.TestCase.assertRaisesRegex
    failUnlessRaises = unittest.TestCase.assertRaises


class NoDBTestCase(TestCase):
    """Havana's name for a test that needs no database: here none does."""

    USES_DB = False


@functools.cache
def _fake_flags() -> Any:
    """The module with the options of a tree's suite, or None."""
    name = "nova.tests.fake_flags"
    try:
        there = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return importlib.import_module(name) if there else None


def _set_defaults_of_suite() -> None:
    """To Diablo, importing that module sets them; after that each test does, since some reset all options."""
    set_defaults = getattr(_fake_flags(), "set_defaults", None)
    if set_defaults is not None:
        set_defaults(importlib.import_module("nova.flags").FLAGS)


def _fake_consumers() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = getattr(sys.modules.get("nova.rpc.impl_fake"), "CONSUMERS", {})
    return found


def _kill(service: Any) -> None:
    """Kill a service; one that can't be killed is stopped. Whatever comes of it, the test is over."""
    for end in ("kill", "stop"):
        try:
            getattr(service, end)()
        except Exception:
            continue  # the test's own result counts; a service of its own making may raise anything here
        return


def _set(conf: Any, name: str, value: Any, group: str | None) -> None:
    if not hasattr(conf, "set_override"):
        # gflags takes any name; ours must be one that it knows.
        getattr(conf, name)
        setattr(conf, name, value)
    elif group is None:
        conf.set_override(name, value)
    else:
        conf.set_override(name, value, group)


def _alike(value1: Any, value2: Any, approx_equal: bool, tolerance: float) -> bool:
    if "DONTCARE" in (value1 if isinstance(value1, str) else "", value2 if isinstance(value2, str) else ""):
        return True
    if approx_equal:
        try:
            return abs(float(value1) - float(value2)) <= tolerance
        except (TypeError, ValueError):
            pass  # no numbers: compared as they are
    return bool(value1 == value2)
