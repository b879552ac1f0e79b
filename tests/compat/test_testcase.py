"""``nova.test``: the base class of old suites, and such a suite as it is run."""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from tests.compat.mocked import Db, Load, outcome

ROOT = Path(__file__).parents[2]


@pytest.fixture
def test(load: Load) -> Any:
    return load("nova.test")


def test_the_surface(test: Any):
    names = "TestCase NoDBTestCase TestingException skip_test skip_if skip_unless skip_if_fake ReplaceModule SkipTest"
    assert [name for name in names.split() if not hasattr(test, name)] == []
    methods = (
        "flags reset_flags start_service useFixture assertThat assertDictMatch assertDictListMatch assertSubDictMatch "
        "assertItemsEqual assertEquals assertNotEquals assert_ assertDictContainsSubset assertRaisesRegexp "
        "assertRegexpMatches assertAlmostEquals failUnless failIf assertNotRaises"
    )
    assert [name for name in methods.split() if not hasattr(test.TestCase, name)] == []


def run(test: Any, body: Callable[[Any], Any], **methods: Any) -> tuple[list[str], list[str], list[str]]:
    return outcome(type("Case", (test.TestCase,), {"test_it": body, **methods})("test_it"))


def test_stubs_and_mocks_end_with_the_test(test: Any):
    def body(self: Any) -> None:
        self.stubs.Set(Db, "limit", 6)
        self.stubs.SmartSet(Db, "get", lambda *_: "stub")
        self.mox.StubOutWithMock(Db, "put")
        Db().put("ctxt", "key")
        self.mox.ReplayAll()
        Db().put("ctxt", "key")

    before = dict(vars(Db))
    assert run(test, body) == ([], [], [])
    assert dict(vars(Db)) == before


def test_a_call_that_mox_misses_fails_the_test_and_all_is_put_back(test: Any):
    def body(self: Any) -> None:
        self.mox.StubOutWithMock(Db, "put")
        Db().put("ctxt", "key")
        self.mox.ReplayAll()

    before = Db.put
    failures, errors, _ = run(test, body)
    assert "put('ctxt', 'key')" in failures[0] and errors == []
    assert Db.put is before


def test_a_subclass_may_forget_its_bases_teardown(test: Any):
    assert run(test, lambda self: self.stubs.Set(Db, "limit", 6), tearDown=lambda self: None) == ([], [], [])
    assert Db.limit == 5


@pytest.mark.parametrize(
    ("decorate", "reason"),
    [
        (lambda test: test.skip_test("why"), ["why"]),
        (lambda test: test.skip_if(True, "why"), ["why"]),
        (lambda test: test.skip_if(False, "why"), []),
        (lambda test: test.skip_unless(False, "why"), ["why"]),
        (lambda test: test.skip_unless(True, "why"), []),
    ],
)
def test_skips(test: Any, decorate: Callable[[Any], Any], reason: list[str]):
    ran: list[int] = []
    decorated = decorate(test)(lambda self: ran.append(1))
    assert run(test, decorated) == ([], [], reason)
    assert ran == ([] if reason else [1])
    case = decorate(test)(type("Case", (test.TestCase,), {"test_it": lambda self: None}))
    assert outcome(case("test_it"))[2] == reason


def test_skip_if_fake(test: Any, load: Load):
    flags = load("nova.flags")
    flags.DEFINE_bool("fake_tests", False, "as in Nova's runner")
    body = test.skip_if_fake(lambda self: None)
    assert run(test, body)[2] == []
    flags.FLAGS.fake_tests = True
    assert run(test, body)[2] == ["Test cannot be run in fake mode"]


def test_nose_skips_too(test: Any, load: Load):
    skip = load("nose.plugins.skip").SkipTest

    def body(self: Any) -> None:
        raise skip("no libvirt")

    assert run(test, body)[2] == ["no libvirt"]
    assert load("nose").SkipTest is skip is test.SkipTest


def test_a_testing_exception_is_no_test(test: Any):
    assert issubclass(test.TestingException, Exception) and test.TestingException.__test__ is False


# flags


def test_flags_in_the_manner_of_gflags(test: Any, load: Load):
    flags = load("nova.flags")
    flags.DEFINE_integer("answer", 42, "of everything")
    flags.DEFINE_string("name", "n$answer", "is made of another")

    def body(self: Any) -> None:
        self.flags(answer=7, rpc_response_timeout=1)
        flags.FLAGS.name = "set directly"
        assert (flags.FLAGS.answer, flags.FLAGS.rpc_response_timeout) == (7, 1)

    assert run(test, body) == ([], [], [])
    assert (flags.FLAGS.answer, flags.FLAGS.name, flags.FLAGS.rpc_response_timeout) == (42, "n42", 60)


@pytest.mark.parametrize("module", ["nova.openstack.common.cfg", "oslo.config.cfg"])
def test_flags_in_the_manner_of_cfg(test: Any, load: Load, module: str):
    cfg = load(module)
    cfg.CONF.register_opts([cfg.IntOpt("answer", default=42), cfg.StrOpt("before", default="x")])
    cfg.CONF.register_opt(cfg.StrOpt("host", default="here"), group="matchmaker_redis2")
    cfg.CONF.set_override("before", "the test")

    def body(self: Any) -> None:
        self.flags(answer=7, before="changed")
        self.flags(host="there", group="matchmaker_redis2")
        assert (cfg.CONF.answer, cfg.CONF.before, cfg.CONF.matchmaker_redis2.host) == (7, "changed", "there")

    assert run(test, body) == ([], [], [])
    assert (cfg.CONF.answer, cfg.CONF.before, cfg.CONF.matchmaker_redis2.host) == (42, "the test", "here")


def test_flags_can_be_reset_within_a_test(test: Any, load: Load):
    FLAGS = load("nova.flags").FLAGS

    def body(self: Any) -> None:
        self.flags(rpc_response_timeout=1)
        self.reset_flags()
        assert FLAGS.rpc_response_timeout == 60

    assert run(test, body) == ([], [], [])


def test_flags_may_be_set_before_the_base_is_set_up(test: Any, load: Load):
    flags = load("nova.flags").FLAGS

    class Early(test.TestCase):  # type: ignore[misc]
        def setUp(self) -> None:
            self.flags(rpc_response_timeout=7)
            super().setUp()

        def runTest(self) -> None:
            assert flags.rpc_response_timeout == 7

    class NeverSetUp(Early):
        def setUp(self) -> None:
            self.flags(rpc_response_timeout=7)

    for case in (Early, NeverSetUp):
        result = unittest.TestResult()
        case().run(result)
        assert (result.errors, result.failures, flags.rpc_response_timeout) == ([], [], 60)


def test_an_unknown_flag_is_an_error(test: Any):
    _, errors, _ = run(test, lambda self: self.flags(nonsense=1))
    assert len(errors) == 1 and "nonsense" in errors[0]


class Gflags:
    """As much of a tree's own FLAGS of 2011 as matters."""

    def __init__(self) -> None:
        object.__setattr__(self, "values", {"answer": 42, "other": [1]})

    def __getattr__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self, "values")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.values[name] = value

    def FlagValuesDict(self) -> dict[str, Any]:
        return dict(self.values)


class Cfg:
    """As much of a tree's own CONF of Essex to Havana as matters."""

    def __init__(self) -> None:
        self._opts: dict[str, dict[str, Any]] = {"answer": {"opt": 42}, "old": {"opt": 1, "override": 2}}
        self._groups: dict[str, Any] = {}
        self._ConfigOpts__cache: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        opts = vars(self).get("_opts", {})
        if name not in opts:
            raise AttributeError(name)
        cache = vars(self)["_ConfigOpts__cache"]
        return cache.setdefault(name, opts[name].get("override", opts[name]["opt"]))

    def set_override(self, name: str, value: Any) -> None:
        self._opts[name]["override"] = value
        self._ConfigOpts__cache.clear()


@pytest.mark.parametrize("kind", [Gflags, Cfg])
def test_flags_of_a_trees_own_object(test: Any, kind: type[Any], monkeypatch: pytest.MonkeyPatch):
    conf = kind()
    monkeypatch.setattr(test.options, "configurations", lambda: [conf])
    monkeypatch.setattr(test.options, "register", lambda: None)

    def body(self: Any) -> None:
        self.flags(answer=7)
        assert conf.answer == 7
        if kind is Gflags:
            conf.other = "set directly"
        else:
            self.flags(old=9)
            assert conf.old == 9

    assert run(test, body) == ([], [], [])
    assert conf.answer == 42
    assert conf.other == [1] if kind is Gflags else conf.old == 2
    assert len(run(test, lambda self: self.flags(nonsense=1))[1]) == 1


# services and rpc


class Service:
    """A stand-in for a tree's ``nova.service.Service``, which notes what happens to it."""

    log: list[str] = []  # noqa: RUF012

    def __init__(self, host: str, binary: str, **more: Any) -> None:
        self.host = host
        self.binary = binary
        self.more = more

    @classmethod
    def create(cls, host: str, binary: str, **more: Any) -> Service:
        return cls(host, binary, **more)

    def start(self) -> None:
        self.log.append(f"start {self.binary}")

    def kill(self) -> None:
        self.log.append(f"kill {self.binary}")
        if self.binary == "nova-broken":
            raise KeyError("no database")

    def stop(self) -> None:
        self.log.append(f"stop {self.binary}")


def test_services_are_started_and_killed_after_the_test(test: Any, monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("nova.service")
    vars(module)["Service"] = Service
    monkeypatch.setitem(sys.modules, "nova.service", module)
    Service.log.clear()

    def body(self: Any) -> None:
        one = self.start_service("compute", "node-7", topic="compute")
        two = self.start_service("broken")
        assert (one.host, one.binary, one.more) == ("node-7", "nova-compute", {"topic": "compute"})
        assert two.host and two.host != self.start_service("compute").host
        Service.log.append("test")

    assert run(test, body) == ([], [], [])
    assert Service.log == [
        "start nova-compute",
        "start nova-broken",
        "start nova-compute",
        "test",
        "kill nova-compute",
        "kill nova-broken",
        "stop nova-broken",
        "kill nova-compute",
    ]


def test_injected_timers_are_stopped(test: Any):
    stopped: list[str] = []

    class Timer:
        def __init__(self, name: str) -> None:
            self.name = name

        def stop(self) -> None:
            stopped.append(self.name)
            assert self.name != "done already"

    body: Callable[[Any], Any] = lambda self: self.injected.extend([Timer("done already"), Timer("running")])  # noqa: E731
    assert run(test, body) == ([], [], [])
    assert stopped == ["done already", "running"]


def test_the_state_of_rpc_ends_with_the_test(test: Any, monkeypatch: pytest.MonkeyPatch):
    attached: list[str] = []

    class Attached:
        def stop(self) -> None:
            attached.append("stopped")

    class Consumer:
        def attach_to_eventlet(self) -> Attached:
            return Attached()

    rpc, fake = types.ModuleType("nova.rpc"), types.ModuleType("nova.rpc.impl_fake")
    cleanups: list[str] = []
    vars(rpc).update(_RPCIMPL=None, cleanup=lambda: cleanups.append("cleanup"), Consumer=Consumer)
    vars(fake)["CONSUMERS"] = {"kept": ["suite's"]}
    monkeypatch.setitem(sys.modules, "nova.rpc", rpc)
    monkeypatch.setitem(sys.modules, "nova.rpc.impl_fake", fake)
    original = Consumer.attach_to_eventlet

    def body(self: Any) -> None:
        vars(rpc)["_RPCIMPL"] = fake
        fake.CONSUMERS["topic"] = ["test's"]
        fake.CONSUMERS["kept"].append("test's")
        Consumer().attach_to_eventlet()

    assert run(test, body) == ([], [], [])
    assert vars(rpc)["_RPCIMPL"] is None and cleanups == ["cleanup"]
    assert fake.CONSUMERS == {"kept": ["suite's"]}
    assert attached == ["stopped"] and Consumer.attach_to_eventlet is original


def test_replace_module(test: Any):
    for before in (None, types.ModuleType("libvirt")):
        if before is not None:
            sys.modules["libvirt"] = before
        with test.ReplaceModule("libvirt", "fake"):
            assert str(sys.modules["libvirt"]) == "fake"
        assert sys.modules.pop("libvirt", None) is before

    def body(self: Any) -> None:
        self.useFixture(test.ReplaceModule("libvirt", "fake"))
        assert str(sys.modules["libvirt"]) == "fake"

    assert run(test, body) == ([], [], [])
    assert "libvirt" not in sys.modules


# assertions


@pytest.fixture
def case(test: Any) -> Any:
    return test.TestCase("assertTrue")


def test_assert_dict_match(case: Any):
    case.assertDictMatch({"a": 1, "b": {"c": "DONTCARE"}}, {"a": 1, "b": {"c": 3}})
    case.assertDictMatch({"a": "1.0004"}, {"a": 1}, approx_equal=True)
    case.assertDictMatch({"a": "x"}, {"a": "x"}, approx_equal=True)
    for one, two in [({"a": 1}, {}), ({}, {"a": 1}), ({"a": 1}, {"a": 2}), ({"a": {"b": 1}}, {"a": {"b": 2}})]:
        with pytest.raises(AssertionError):
            case.assertDictMatch(one, two)
    with pytest.raises(AssertionError):
        case.assertDictMatch({"a": 1.1}, {"a": 1}, approx_equal=True)
    case.assertDictMatch({"a": 1.1}, {"a": 1}, approx_equal=True, tolerance=0.2)


def test_assert_dict_list_match(case: Any):
    case.assertDictListMatch([{"a": 1}], [{"a": "DONTCARE"}])
    for one, two in [([{}], []), ([{"a": 1}], [{"a": 2}])]:
        with pytest.raises(AssertionError):
            case.assertDictListMatch(one, two)


def test_assert_sub_dict_match(case: Any):
    case.assertSubDictMatch({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3})
    for sub in ({"x": 1}, {"d": 4}, {"a": {"b": 2}}):
        with pytest.raises(AssertionError):
            case.assertSubDictMatch(sub, {"a": {"b": 1, "c": 2}, "d": 3})


def test_other_assertions(case: Any):
    case.assertItemsEqual([2, 1], [1, 2])
    case.assertDictContainsSubset({"a": 1}, {"a": 1, "b": 2})  # noqa: PT009
    assert case.assertNotRaises(KeyError, int, "3") == 3
    for wrong in (
        lambda: case.assertItemsEqual([1], [1, 1]),
        lambda: case.assertDictContainsSubset({"a": 2}, {"a": 1}),  # noqa: PT009
        lambda: case.assertNotRaises(ValueError, int, "x"),
        lambda: case.assertThat(1, types.SimpleNamespace(match=lambda _: types.SimpleNamespace(describe=str))),
    ):
        with pytest.raises(AssertionError):
            wrong()
    case.assertThat(1, types.SimpleNamespace(match=lambda _: None))


# --- a suite of the time, as it is run --------------------------------------------------------------

SUITE = """
import eventlet
import mox
import unittest
from nose.plugins.skip import SkipTest
from nova import context, flags, rpc, test

FLAGS = flags.FLAGS

class Receiver(object):
    def __init__(self):
        self.got = []
    def echo(self, context, value):
        self.got.append(value)
        return value

class RpcTestCase(test.TestCase):
    def setUp(self):
        super(RpcTestCase, self).setUp()
        self.flags(rpc_backend='nova.rpc.impl_fake')
        self.receiver = Receiver()
        self.conn = rpc.create_connection(True)
        self.conn.create_consumer('test', self.receiver, False)
        self.conn.consume_in_thread()
        self.context = context.get_admin_context()

    def test_call(self):
        self.assertEqual(rpc.call(self.context, 'test', {'method': 'echo', 'args': {'value': 42}}), 42)

    def test_no_consumer_is_left_of_the_other_test(self):
        from nova.rpc import impl_fake
        self.assertEqual([len(those) for those in impl_fake.CONSUMERS.values()], [1])

    def test_mocked(self):
        self.mox.StubOutWithMock(rpc, 'cast')
        rpc.cast(mox.IgnoreArg(), 'test', mox.ContainsKeyValue('method', 'run'))
        self.mox.ReplayAll()
        rpc.cast(self.context, 'test', {'method': 'run', 'args': {}})

    def test_green(self):
        thread = eventlet.spawn(rpc.call, self.context, 'test', {'method': 'echo', 'args': {'value': 1}})
        self.assertEqual(thread.wait(), 1)

    @test.skip_test('not now')
    def test_skipped(self):
        raise AssertionError

    def test_skipped_by_nose(self):
        raise SkipTest('not today')
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["pytest", "-q", "-p", "no:cacheprovider", "test_old.py"], "4 passed, 2 skipped"),
        (["-m", "unittest", "test_old"], "OK (skipped=2)"),
    ],
)
def test_an_old_suite_runs_without_an_edit(tmp_path: Path, command: list[str], expected: str):
    (tmp_path / "test_old.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "compat.nova", "run", "--", *command],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and expected in done.stdout, done.stdout
