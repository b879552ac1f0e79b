"""``nova.test``, ``mox`` and ``stubout``: what an old suite leans on."""

from __future__ import annotations

import importlib
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

import compat.nova

ROOT = Path(__file__).parents[2]
Load = Callable[[str], Any]


@pytest.fixture
def load() -> Iterator[Load]:
    """Imports legacy modules under the stand-in, for one test."""
    if compat.nova.installed():
        compat.nova.uninstall()
    compat.nova.install(tree=False, era="essex", patched=False)
    yield importlib.import_module
    compat.nova.uninstall()


@pytest.fixture
def mox(load: Load) -> Any:
    return load("mox")


@pytest.fixture
def stubs(load: Load) -> Any:
    return load("stubout").StubOutForTesting()


# --- stubout --------------------------------------------------------------------------------------


class Base:
    value = 1

    def method(self) -> str:
        return "base"

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def cls(cls) -> str:
        return cls.__name__


class Derived(Base):
    pass


def test_set_replaces_and_unset_all_puts_back_the_first(stubs: Any):
    module = types.ModuleType("module")
    vars(module)["name"] = "original"
    stubs.Set(module, "name", "first")
    stubs.Set(module, "name", "second")
    assert module.name == "second"
    stubs.UnsetAll()
    stubs.UnsetAll()
    assert module.name == "original"


@pytest.mark.parametrize("name", ["method", "static", "cls", "value"])
@pytest.mark.parametrize("owner", [Base, Derived])
def test_attributes_of_classes_come_back_as_they_were(stubs: Any, owner: type[Base], name: str):
    before = dict(vars(owner))
    stubs.Set(owner, name, lambda *_: "stub")
    assert vars(owner)[name] is not before.get(name)
    stubs.UnsetAll()
    assert dict(vars(owner)) == before
    stubs.SmartSet(owner, name, lambda *_: "stub")
    assert "stub" in (getattr(owner(), name)() for _ in "x")
    stubs.SmartUnsetAll()
    assert dict(vars(owner)) == before
    assert (Derived().method(), Derived.static(), Derived.cls()) == ("base", "static", "Derived")


def test_an_instance_is_stubbed_alone(stubs: Any):
    one, other = Base(), Base()
    stubs.Set(one, "method", lambda: "stub")
    assert (one.method(), other.method()) == ("stub", "base")
    stubs.UnsetAll()
    assert vars(one) == {}


@pytest.mark.parametrize("replace", ["Set", "SmartSet"])
def test_what_keeps_its_attributes_elsewhere_has_them_back(load: Load, stubs: Any, replace: str):
    newer, older = load("nova.openstack.common.rpc"), load("nova.rpc")
    flags = load("nova.flags").FLAGS
    flags.register_opt(load("nova.openstack.common.cfg").StrOpt("stubbed", default="as it was"))
    call = older.call
    getattr(stubs, replace)(newer, "call", lambda *args: "stub")
    getattr(stubs, replace)(flags, "stubbed", "stub") if replace == "Set" else None
    assert older.call() == newer.call() == "stub"
    stubs.UnsetAll()
    stubs.SmartUnsetAll()
    assert newer.call is older.call is call
    assert flags.stubbed == "as it was"


def test_mocks_in_a_package_that_stands_for_another_are_undone(load: Load, m: Any):
    newer, older = load("nova.openstack.common.rpc"), load("nova.rpc")
    call = older.call
    m.StubOutWithMock(newer, "call")
    assert newer.call is not call
    m.UnsetStubs()
    assert newer.call is older.call is call


def test_what_is_not_there_cannot_be_stubbed(stubs: Any):
    for replace in (stubs.Set, stubs.SmartSet):
        with pytest.raises(AttributeError):
            replace(Base, "nonsense", 1)


# --- mox ------------------------------------------------------------------------------------------


class Db:
    limit = 5

    def get(self, ctxt: Any, key: str, default: Any = None) -> Any: ...

    def put(self, ctxt: Any, key: str) -> Any: ...

    def __getitem__(self, key: str) -> Any: ...


@pytest.fixture
def m(mox: Any) -> Any:
    return mox.Mox()


def test_calls_are_expected_in_order_with_their_results(m: Any, mox: Any):
    db = m.CreateMock(Db)
    db.get("ctxt", "a").AndReturn(1)
    db.get("ctxt", "b", default=2).AndRaise(KeyError("b"))
    db.put("ctxt", mox.IgnoreArg())
    m.ReplayAll()
    assert db.get("ctxt", "a") == 1
    with pytest.raises(mox.ExpectedMethodCallsError, match=r"get\('ctxt', 'b', default=2\)"):
        m.VerifyAll()
    with pytest.raises(KeyError, match="b"):
        db.get("ctxt", "b", default=2)
    assert db.put("ctxt", object()) is None
    m.VerifyAll()


@pytest.mark.parametrize(
    "wrong", [lambda db: db.get("ctxt", "b"), lambda db: db.put("ctxt", "a"), lambda db: db.get("ctxt", key="a")]
)
def test_another_call_fails_at_once(m: Any, mox: Any, wrong: Callable[[Any], Any]):
    db = m.CreateMock(Db)
    db.get("ctxt", "a")
    m.ReplayAll()
    with pytest.raises(mox.UnexpectedMethodCallError, match=r"Expected: Db\.get"):
        wrong(db)


def test_one_call_too_many_fails(m: Any, mox: Any):
    db = m.CreateMockAnything()
    m.ReplayAll()
    with pytest.raises(mox.UnexpectedMethodCallError, match="nothing"):
        db.whatever()
    assert issubclass(mox.Error, AssertionError)


def test_a_mock_has_what_it_mocks_and_no_more(m: Any, mox: Any):
    db = m.CreateMock(Db, {"extra": "more"})
    with pytest.raises(mox.UnknownMethodCallError):
        db.nonsense()
    with pytest.raises(mox.UnknownMethodCallError):
        db.nonsense = 1
    with pytest.raises(AttributeError):
        db.get("too few")
    with pytest.raises(AttributeError):
        db.get(1, 2, 3, 4)
    with pytest.raises(TypeError):
        db["key"] = "cannot be set"
    with pytest.raises(TypeError):
        m.CreateMock(7)()
    assert (db.limit, db.extra, isinstance(db, Db)) == (5, "more", True)


def test_items(m: Any):
    db = m.CreateMock(Db)
    db["key"].AndReturn("value")
    anything = m.CreateMockAnything()
    anything.__iter__().AndReturn(iter([1, 2]))
    anything.__contains__("x").AndReturn(True)
    m.ReplayAll()
    assert db["key"] == "value"
    assert list(anything) == [1, 2]
    assert "x" in anything
    m.VerifyAll()


def test_in_any_order(m: Any, mox: Any):
    db = m.CreateMockAnything()
    db.first()
    for key in "ab":
        db.get(key).InAnyOrder().AndReturn(key.upper())
    db.last()
    m.ReplayAll()
    db.first()
    assert [db.get("b"), db.get("a")] == ["B", "A"]
    with pytest.raises(mox.UnexpectedMethodCallError):
        db.get("a")
    db.last()
    m.VerifyAll()


def test_what_comes_after_a_group_waits_for_it(m: Any, mox: Any):
    db = m.CreateMockAnything()
    db.get("a").InAnyOrder()
    db.get("b").InAnyOrder()
    db.last()
    m.ReplayAll()
    db.get("b")
    with pytest.raises(mox.UnexpectedMethodCallError):
        db.last()
    with pytest.raises(mox.ExpectedMethodCallsError):
        m.VerifyAll()


def test_multiple_times(m: Any, mox: Any):
    db = m.CreateMockAnything()
    db.get("a").MultipleTimes().AndReturn(1)
    db.last()
    m.ReplayAll()
    with pytest.raises(mox.UnexpectedMethodCallError):
        db.last()
    assert [db.get("a") for _ in range(3)] == [1, 1, 1]
    db.last()
    m.VerifyAll()


def test_groups_of_other_names_follow_each_other(m: Any, mox: Any):
    db = m.CreateMockAnything()
    db.get("a").InAnyOrder("one")
    db.get("b").InAnyOrder("two")
    m.ReplayAll()
    with pytest.raises(mox.UnexpectedMethodCallError):
        db.get("b")


def test_side_effects(m: Any):
    seen: list[Any] = []
    db = m.CreateMockAnything()
    db.get("a").WithSideEffects(seen.append).AndReturn(1)
    db.get("b").WithSideEffects(lambda key: key * 2)
    m.ReplayAll()
    assert (db.get("a"), seen, db.get("b")) == (1, ["a"], "bb")


def test_stubbing_out_with_mocks(m: Any, mox: Any):
    module = types.ModuleType("module")
    vars(module).update(function=lambda a, b=1: (a, b), Db=Db)
    original = module.function
    m.StubOutWithMock(module, "function")
    module.function(1, b=2).AndReturn("mocked")
    with pytest.raises(TypeError, match="UnsetStubs"):
        m.StubOutWithMock(module, "function")
    with pytest.raises(AttributeError):
        module.function(1, 2, 3)
    m.ReplayAll()
    assert module.function(1, b=2) == "mocked"
    m.VerifyAll()
    m.UnsetStubs()
    assert module.function is original


def test_stubbing_out_a_method(m: Any):
    db = Db()
    m.StubOutWithMock(db, "get")
    m.StubOutWithMock(Db, "put")
    db.get("ctxt", "key").AndReturn("instance")
    db.put("ctxt", "key").AndReturn("class")
    m.ReplayAll()
    assert (db.get("ctxt", "key"), db.put("ctxt", "key")) == ("instance", "class")
    m.VerifyAll()
    m.UnsetStubs()
    assert db.get("ctxt", "key") is None and vars(db) == {}


def test_stubbing_out_a_class(m: Any, mox: Any):
    module = types.ModuleType("module")
    vars(module)["Db"] = Db
    m.StubOutClassWithMocks(module, "Db")
    one = module.Db()
    one.get("ctxt", "key").AndReturn("from the mock")
    m.ReplayAll()
    with pytest.raises(mox.ExpectedMockCreationError):
        m.VerifyAll()
    made = module.Db()
    assert made is one and made.get("ctxt", "key") == "from the mock"
    with pytest.raises(mox.UnexpectedMockCreationError):
        module.Db()
    m.VerifyAll()
    m.UnsetStubs()
    assert module.Db is Db


def test_reset_forgets(m: Any):
    db = m.CreateMockAnything()
    db.get()
    m.ReplayAll()
    m.ResetAll()
    db.put()
    m.ReplayAll()
    db.put()
    m.VerifyAll()


COMPARATORS = [
    ("IgnoreArg()", [None, 1, "x"], []),
    ("IsA(str)", ["x"], [1, None]),
    ("IsA((int, str))", ["x", 1], [None]),
    ("StrContains('ab')", ["xabx"], ["ba", 1]),
    ("Regex('^a.c$')", ["abc"], ["abcd", 1]),
    ("In('k')", [{"k": 1}, ["k"], "xkx"], [{}, [], 1]),
    ("Not(In('k'))", [{}], [{"k": 1}]),
    ("And(In('a'), In('b'))", ["ab"], ["a"]),
    ("Or(In('a'), In('b'))", ["a", "b"], ["c"]),
    ("Func(lambda v: v > 1)", [2], [1]),
    ("Is(None)", [None], [0]),
    ("IsAlmost(1.5, 2)", [1.501], [1.6, "x"]),
    ("ContainsKeyValue('k', 1)", [{"k": 1, "l": 2}], [{"k": 2}, {}, None]),
    ("ContainsAttributeValue('limit', 5)", [Db()], [Base()]),
    ("SameElementsAs([1, 2, 2])", [[2, 1, 2], (1, 2, 2)], [[1, 2], [1, 1, 2], 5]),
    ("SameElementsAs([[1], [2]])", [[[2], [1]]], [[[1]], [[1], [2], [3]]]),
]


@pytest.mark.parametrize(("text", "accepted", "refused"), COMPARATORS, ids=[row[0] for row in COMPARATORS])
def test_comparators(mox: Any, text: str, accepted: list[Any], refused: list[Any]):
    comparator = eval(f"mox.{text}", {"mox": mox, "In": mox.In})
    assert [value for value in accepted if comparator != value] == []
    assert [value for value in refused if comparator == value] == []
    assert [value for value in accepted if value == comparator] == accepted


def test_a_value_is_remembered(m: Any, mox: Any):
    value = mox.Value()
    db = m.CreateMockAnything()
    db.put(mox.Remember(value))
    db.get(value)
    m.ReplayAll()
    db.put("the id")
    with pytest.raises(mox.UnexpectedMethodCallError):
        db.get("another id")
    db.get("the id")


def test_mox_by_its_later_name(load: Load):
    assert load("mox3.mox") is load("mox") and load("mox3").stubout is load("stubout")


def outcome(case: unittest.TestCase) -> tuple[list[str], list[str], list[str]]:
    """Run one test; the last lines of its failures and errors, and the reasons of its skips."""
    result = unittest.TestResult()
    case.run(result)

    def last(found: list[tuple[unittest.TestCase, str]]) -> list[str]:
        return [text.strip().rpartition("\n")[2] for _, text in found]

    return last(result.failures), last(result.errors), [reason for _, reason in result.skipped]


def test_mox_test_base(mox: Any):
    class Test(mox.MoxTestBase):  # type: ignore[misc]
        def test_good(self) -> None:
            self.mox.StubOutWithMock(Db, "put")
            self.mox.ReplayAll()

        def test_bad(self) -> None:
            self.mox.CreateMockAnything().never()
            self.mox.ReplayAll()

    before = Db.put
    assert outcome(Test("test_good")) == ([], [], [])
    assert Db.put is before
    failures, errors, _ = outcome(Test("test_bad"))
    assert "never()" in failures[0] and errors == []


# --- nova.test ------------------------------------------------------------------------------------


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
