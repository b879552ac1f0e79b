"""``mox``: mocks that expect their calls."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.mocked import Base, Db, Load, outcome


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


def test_mocks_in_a_package_that_stands_for_another_are_undone(load: Load, m: Any):
    newer, older = load("nova.openstack.common.rpc"), load("nova.rpc")
    call = older.call
    m.StubOutWithMock(newer, "call")
    assert newer.call is not call
    m.UnsetStubs()
    assert newer.call is older.call is call
