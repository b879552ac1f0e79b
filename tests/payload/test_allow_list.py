from __future__ import annotations

import collections
import os
from typing import Any

import pytest

from rpcmq.errors import PayloadRefused, UsageError
from rpcmq.payload.allow_list import AllowList, allow
from rpcmq.payload.never_allowed import is_never_allowed
from rpcmq.payload.stand_in import stand_in
from tests.payload import samples

INSTANCE = "tests.payload.samples:Instance"


def find(allow: AllowList, entry: str) -> Any:
    module, _, qualname = entry.partition(":")
    return allow.find(module, qualname)


def test_nothing_is_allowed_unless_listed() -> None:
    with pytest.raises(PayloadRefused, match="not on this process's allow-list"):
        find(AllowList(), INSTANCE)


def test_refusal_names_the_global_and_how_to_allow_it() -> None:
    with pytest.raises(PayloadRefused) as caught:
        find(AllowList(), INSTANCE)
    assert f"allow=['{INSTANCE}']" in str(caught.value)
    assert f"RPCMQ_ALLOW={INSTANCE}" in str(caught.value)


def test_refusal_of_main_says_that_each_process_has_its_own() -> None:
    with pytest.raises(PayloadRefused, match="move it to a module"):
        find(AllowList(), "__main__:Thing")


def test_refusal_of_what_runs_code_offers_no_way_to_allow_it() -> None:
    with pytest.raises(PayloadRefused, match="can never be allowed") as caught:
        find(AllowList(), "os:system")
    assert "RPCMQ_ALLOW" not in str(caught.value)


def test_refusal_is_short_whatever_the_pickle_names() -> None:
    with pytest.raises(PayloadRefused) as caught:
        find(AllowList(), "x" * 10_000 + ":" + "y" * 10_000)
    assert len(str(caught.value)) < 2000


def test_exact_pairs_only() -> None:
    allow = AllowList(["tests.payload.samples:Outer"])
    find(allow, "tests.payload.samples:Outer")
    for entry in ("tests.payload.samples:Outer.Inner", "tests.payload:samples.Outer", "samples:Outer"):
        with pytest.raises(PayloadRefused, match="not on this"):
            find(allow, entry)


def test_dotted_qualname_where_listed() -> None:
    allow = AllowList(["tests.payload.samples:Outer.Inner"])
    assert find(allow, "tests.payload.samples:Outer.Inner")() == samples.Outer.Inner()


def test_stand_in_constructs_the_class() -> None:
    made = find(AllowList([INSTANCE]), INSTANCE)("vm", flavor=2)
    assert type(made) is samples.Instance
    assert made == samples.Instance("vm", 2)


def test_stand_in_makes_without_a_call() -> None:
    held = find(AllowList([INSTANCE]), INSTANCE)
    assert type(held.__new__(held)) is samples.Instance


def test_stand_in_cannot_be_changed() -> None:
    held = find(AllowList([INSTANCE]), INSTANCE)
    with pytest.raises(PayloadRefused, match="sets attribute 'save'"):
        held.save = 1
    with pytest.raises(PayloadRefused, match="deletes attribute '_build'"):
        del held._build
    assert not hasattr(samples.Instance, "save")


def test_stand_in_says_what_it_is() -> None:
    assert repr(find(AllowList([INSTANCE]), INSTANCE)) == f"<stand-in for {INSTANCE}>"


def test_stand_in_without_new() -> None:
    held: Any = stand_in("m:f", lambda: 1)
    assert held() == 1
    with pytest.raises(PayloadRefused, match="makes a m:f without calling it"):
        held.__new__(held)


def test_immutable_class_is_handed_over_as_it_is() -> None:
    assert find(AllowList(["collections:defaultdict"]), "collections:defaultdict") is collections.defaultdict


def test_function_is_called_through_a_stand_in() -> None:
    held = find(AllowList(["tests.payload.samples:join"]), "tests.payload.samples:join")
    assert held is not samples.join
    assert held("a", "b") == "a-b"


def test_neither_class_nor_function() -> None:
    with pytest.raises(PayloadRefused, match="neither a class nor a function"):
        find(AllowList(["tests.payload.samples:CONSTANT"]), "tests.payload.samples:CONSTANT")


def test_allowing_extends_a_copy() -> None:
    first = AllowList(["a:B"])
    second = first.allowing("c:D", "e:F")
    assert first.names == ("a:B",)
    assert second.names == ("a:B", "c:D", "e:F")
    assert "c:D" in second
    assert "c:D" not in first
    assert 7 not in second
    assert second == AllowList(["e:F", "c:D", "a:B"])
    assert hash(second) == hash(AllowList(["e:F", "c:D", "a:B"]))
    assert second != first
    assert first != "a:B"
    assert repr(first) == "AllowList(['a:B'])"


def test_each_name_is_imported_once() -> None:
    allow = AllowList([INSTANCE])
    assert find(allow, INSTANCE) is find(allow, INSTANCE)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("os.path", "not of the form 'module:qualname'"),
        ("", "not of the form"),
        ("a:", "not of the form"),
        (":B", "not of the form"),
        ("a:B:C", "not of the form"),
        ("a.*:B", "not of the form"),
        ("a:B.*", "not of the form"),
        ("*:*", "not of the form"),
        ("pathlib:*", "module of your own"),
        ("os.path:*", "module of your own"),
        ("dill:*", "module of your own"),
        ("builtins:*", "module of your own"),
        ("numpy:*x", "not of the form"),
        ("a :B", "not of the form"),
        ("a..b:C", "not of the form"),
        ("a:f.<locals>.C", "defined inside a function"),
        (7, "not a string"),
        ("os:system", "run code of its choice"),
        ("os.path:join", "run code of its choice"),
        ("builtins:getattr", "run code of its choice"),
        ("builtins:type", "run code of its choice"),
        ("builtins:type.__call__", "run code of its choice"),
        ("functools:partial", "run code of its choice"),
        ("operator:attrgetter", "run code of its choice"),
        ("subprocess:Popen", "run code of its choice"),
        ("importlib:import_module", "run code of its choice"),
        ("dill._dill:_create_function", "run code of its choice"),
    ],
)
def test_wrong_entry_is_refused_when_the_list_is_made(entry: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        AllowList([entry])
    with pytest.raises(UsageError, match=expected):
        AllowList().allowing(entry)


def test_a_string_is_no_list_of_entries() -> None:
    with pytest.raises(UsageError, match="not the string"):
        AllowList("a:B")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("no_such_module:Thing", "cannot be imported here: ModuleNotFoundError"),
        ("tests.payload.samples:NoSuchClass", "cannot be imported here: AttributeError"),
        ("tests.payload.samples:CONSTANT", "neither a class nor a function"),
    ],
)
def test_load_all_finds_wrong_entries_at_start(entry: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        AllowList([INSTANCE, entry]).load_all()


def test_load_all_of_a_good_list() -> None:
    AllowList([INSTANCE, "tests.payload.samples:Outer.Inner"]).load_all()


def test_never_allowed() -> None:
    assert is_never_allowed("builtins", "eval")
    assert is_never_allowed("posix", "system")
    assert not is_never_allowed("builtins", "ValueError")
    assert not is_never_allowed("osprofiler.profiler", "Thing")


@pytest.mark.parametrize("entry", ["builtins:print", "builtins:len", "builtins:object"])
def test_what_carries_no_value_is_neither_allowed_nor_advised(entry: str) -> None:
    reason = "cannot be allowed: (functions are not sent as values|an object.. has nothing to send)"
    with pytest.raises(UsageError, match=reason):
        AllowList([entry])
    with pytest.raises(UsageError, match=reason):
        allow(entry)
    with pytest.raises(PayloadRefused, match=reason) as caught:
        AllowList().find(*entry.split(":"))
    assert "RPCMQ_ALLOW" not in str(caught.value)
    assert "rpcmq.allow" not in str(caught.value)


def test_allow_takes_no_function_and_object_is_no_value() -> None:
    with pytest.raises(UsageError, match="functions are not sent as values"):
        allow(print)
    with pytest.raises(UsageError, match=r"an object.. has nothing to send"):
        allow(object)


def test_a_function_is_refused_as_such_and_as_what_rebuilds_objects_it_can_be_listed() -> None:
    module, name = os.path.join.__module__, os.path.join.__name__
    with pytest.raises(PayloadRefused, match=r"names the function 'posixpath:join'.* functions are not sent") as caught:
        AllowList().find(module, name)
    assert "rpcmq.allow(" not in str(caught.value)
    assert "RPCMQ_ALLOW=posixpath:join" in str(caught.value)
    AllowList(["posixpath:join"]).load_all()
