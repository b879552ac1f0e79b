"""``stubout``: attributes replaced for the time of a test."""

from __future__ import annotations

import types
from typing import Any

import pytest

from tests.compat.mocked import Base, Load


@pytest.fixture
def stubs(load: Load) -> Any:
    return load("stubout").StubOutForTesting()


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


def test_what_is_not_there_cannot_be_stubbed(stubs: Any):
    for replace in (stubs.Set, stubs.SmartSet):
        with pytest.raises(AttributeError):
            replace(Base, "nonsense", 1)
