"""One line allows a class, or a module of one's own; a refusal says which process has to write it."""

from __future__ import annotations

import ipaddress
import os
import pickle
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

import rpcmq
from rpcmq.errors import ConfigError, PayloadRefused, UsageError
from rpcmq.payload import DEFAULT_ALLOW_LIST, AllowList, Codec, allow_list
from rpcmq.payload.audit import Audit
from rpcmq.payload.trust import Rule
from tests.payload import own_classes
from tests.payload.own_classes import Bag, Flavor, Frozen, Host, Level, Members, Rights, State

MODULE = "tests.payload.own_classes"
VALUES = [
    State.ACTIVE,
    Rights.READ | Rights.WRITE,
    Level.LOW,
    Flavor("small", 1),
    Host("a", flavors=[Flavor("small", 1)]),
    Host.Address("192.0.2.1"),
    Frozen("x"),
    Bag([1, 2]),
    Members([1, 2]),
    defaultdict(Bag, a=Bag([1])),
]


OTHERS = """Imported ZipFile zipfile.ZipFile run function Alias ordered pathlib.Path Host.__init__ Host.__class__
    Host.__dict__ Host.Address.__new__ nothing enum.Enum __builtins__ Host."""


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_list, "_ALLOWED", allow_list._Allowed())


def carried(value: Any, codec: Codec | None = None) -> Any:
    return (codec or Codec()).decode(2, pickle.dumps(value, 5))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_module_that_is_allowed_with_one_line(value: Any) -> None:
    before = Codec()
    with pytest.raises(PayloadRefused):
        carried(value, before)
    assert rpcmq.allow(own_classes) is own_classes
    for codec in (before, Codec(), Codec(allow=DEFAULT_ALLOW_LIST.allowing("a:B"))):
        loaded = carried(value, codec)
        assert loaded == value and type(loaded) is type(value)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_an_entry_for_a_module(value: Any) -> None:
    loaded = carried(value, Codec(allow=DEFAULT_ALLOW_LIST.allowing(f"{MODULE}:*")))
    assert loaded == value and type(loaded) is type(value)


@pytest.mark.parametrize("allow", [AllowList([f"{MODULE}:*"]), DEFAULT_ALLOW_LIST])
@pytest.mark.parametrize(
    "name",
    [
        "Imported",
        "ZipFile",
        "zipfile.ZipFile",
        "run",
        "function",
        "Alias",
        "ordered",
        "pathlib.Path",
        "Host.__init__",
        "Host.__class__",
        "Host.__dict__",
        "Host.Address.__new__",
        "nothing",
        "enum.Enum",
        "__builtins__",
        "Host.",
        "*",
    ],
)
def test_of_a_module_only_its_own_classes_under_their_own_names(allow: AllowList, name: str) -> None:
    rpcmq.allow(own_classes)
    with pytest.raises(PayloadRefused, match="not on this process's allow-list"):
        allow.find(MODULE, name)


def test_a_class_by_a_decorator_or_by_its_entry() -> None:
    assert rpcmq.allow(State) is State
    assert carried(State.ACTIVE) is State.ACTIVE
    with pytest.raises(PayloadRefused):
        carried(Frozen("x"))
    rpcmq.allow(f"{MODULE}:Frozen")
    assert carried(Frozen("x")) == Frozen("x")


def test_a_module_that_gets_a_class_later() -> None:
    rpcmq.allow(own_classes)
    own_classes.Later = type("Later", (), {"__module__": MODULE})  # type: ignore[attr-defined]
    try:
        assert type(carried(own_classes.Later())) is own_classes.Later  # type: ignore[attr-defined]
    finally:
        del own_classes.Later  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "what", [os, subprocess, 7, None, len, "os:system", "os:*", subprocess.Popen, type, "nonsense"]
)
def test_what_cannot_be_allowed(what: Any) -> None:
    with pytest.raises(UsageError):
        rpcmq.allow(what)


def test_a_class_within_a_function_cannot_be_found_by_name() -> None:
    class Local:
        pass

    with pytest.raises(UsageError, match="defined inside a function"):
        rpcmq.allow(Local)


def test_a_list_that_is_complete_in_itself_stays_so() -> None:
    rpcmq.allow(own_classes)
    for codec in (
        Codec(allow=AllowList()),
        Rule(allow=(f"{MODULE}:Frozen",), only=True).codec(Codec()),
        Codec(allow=DEFAULT_ALLOW_LIST.restricted_to()),
    ):
        with pytest.raises(PayloadRefused):
            carried(State.ACTIVE, codec)
    assert carried(Frozen("x"), Rule(allow=(f"{MODULE}:*",), only=True).codec(Codec())) == Frozen("x")


def test_an_entry_that_stands_for_nothing_is_found_at_start() -> None:
    with pytest.raises(UsageError, match="defines no class itself"):
        AllowList(["tests.payload:*"]).load_all()
    with pytest.raises(UsageError, match="cannot be imported here"):
        AllowList(["no_such_module:*"]).load_all()
    AllowList([f"{MODULE}:*", "numpy"]).load_all()


def test_the_refusal_says_which_process_and_which_line() -> None:
    with pytest.raises(PayloadRefused) as raised:
        carried(State.ACTIVE)
    text = str(raised.value)
    assert "write rpcmq.allow(State) in this process" in text and f"pid {os.getpid()}" in text
    assert f"allow=['{MODULE}:State']" in text and f"RPCMQ_ALLOW={MODULE}:State" in text


def test_the_setting_takes_modules() -> None:
    from rpcmq.config import load_client_config

    read = load_client_config({"RPCMQ_ALLOW": f"{MODULE}:*, numpy, m:C.D"}, {})
    assert read.allow == (f"{MODULE}:*", "numpy", "m:C.D")
    for wrong in ("models", "a.*:b", "models:*x", "numpy:"):
        with pytest.raises(ConfigError):
            load_client_config({"RPCMQ_ALLOW": wrong}, {})


def test_an_audit_notes_the_entry_that_is_needed(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    rpcmq.allow(own_classes)
    audit = Audit(tmp_path / "audit.toml")
    codec = audit.codec("", "compute", Codec(allow=DEFAULT_ALLOW_LIST.allowing("numpy")))
    carried([State.ACTIVE, numpy.arange(3), defaultdict(list), Host("x")], codec)
    audit.write()
    text = (tmp_path / "audit.toml").read_text()
    for entry in (f"{MODULE}:State", f"{MODULE}:Host", "numpy", "collections:defaultdict"):
        assert f'    "{entry}",\n' in text
    assert "builtins" not in text and "multiarray" not in text


# --- hostile pickles -----------------------------------------------------------------------------


class Reduces:
    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize(
    "value",
    [
        Reduces(State, ("Made", "A B")),
        Reduces(Bag, (ipaddress.ip_network("0.0.0.0/0"),)),
        Reduces(defaultdict, (list, {"a": 1})),
        Reduces(defaultdict, (7,)),
        Reduces(defaultdict, (print,)),
        Reduces(defaultdict, (zipfile.ZipFile,)),
        [defaultdict(list), Reduces(list, ("ab",))],
        [defaultdict(list), Reduces(bytes, (1 << 60,))],
    ],
    ids=range(8),
)
def test_what_no_such_value_pickles_to_is_refused(value: Any) -> None:
    rpcmq.allow(own_classes)
    with pytest.raises(PayloadRefused):
        carried(value)


def test_an_object_made_without_a_call_is_not_made_of_what_hardly_ends() -> None:
    rpcmq.allow(own_classes)
    data = pickle.dumps(Reduces(Members, (ipaddress.ip_network("0.0.0.0/0"),)), 5)
    at = data.rindex(pickle.REDUCE)
    with pytest.raises(PayloadRefused, match="hardly ends"):
        Codec().decode(2, data[:at] + pickle.NEWOBJ + data[at + 1 :])


SCRIPT = """
import sys, pickle, enum
import rpcmq
from rpcmq.payload import Codec

@rpcmq.allow
class Color(enum.Enum):
    RED = 1

@rpcmq.allow
class AppError(Exception):
    def __init__(self, *, code):
        super().__init__("app")
        self.code = code

codec = Codec()
assert codec.decode(*codec.encode([Color.RED])) == [Color.RED]
back = codec.decode_exception(*codec.encode_exception(AppError(code=7)))
assert type(back) is AppError and back.code == 7, repr(back)
print("fine", Color.__module__)
"""


def test_classes_of_the_main_program(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "fine __main__\n", ended.stderr
