"""Exceptions of one's own arrive as themselves, whatever their constructor takes; where they cannot, it is said why."""

from __future__ import annotations

import json
import pickle
import sys
import traceback
import zlib
from decimal import Decimal, InvalidOperation
from typing import Any

import pytest
from gevent.subprocess import CalledProcessError

import rpcmq
from rpcmq.errors import RemoteError, UsageError
from rpcmq.payload import DEFAULT_ALLOW_LIST, Codec, ExceptionRegistry, allow_list
from tests import payload as module_without_exceptions
from tests.payload import own_classes
from tests.payload.own_classes import (
    AppError,
    DiskError,
    OpaqueError,
    PlaceError,
    QuotaError,
    SlottedError,
    StopError,
)

MODULE = "tests.payload.own_classes"


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_list, "_ALLOWED", allow_list._Allowed())


def noted(error: BaseException) -> BaseException:
    error.add_note("seen twice")
    return error


def arrives(error: BaseException, **options: Any) -> Any:
    codec = Codec(**options)
    return codec.decode_exception(*codec.encode_exception(error, "node-7"))


ERRORS: list[Any] = [
    AppError("a", 1),
    QuotaError(resource="disks", limit=7),
    PlaceError("h", "full", code=9),
    SlottedError("h"),
    DiskError("/dev/sda"),
    noted(QuotaError(resource="disks", limit=7)),
]


def check(error: Any, back: Any) -> None:
    assert type(back) is type(error)
    assert (back.args, str(back), repr(back)) == (error.args, str(error), repr(error))
    for name in ("resource", "limit", "host", "code", "disk", "errno", "filename", "__notes__"):
        assert getattr(back, name, None) == getattr(error, name, None)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize(
    "how", ["class", "base", "module", "allow class", "allow base", "allow module", "entry", "entries"]
)
def test_an_exception_arrives_as_itself(error: Any, how: str) -> None:
    base = DiskError if isinstance(error, DiskError) else AppError
    options: dict[str, Any] = {}
    if how in ("class", "base", "module"):
        registered: Any = {"class": type(error), "base": base, "module": own_classes}[how]
        options = {"exceptions": ExceptionRegistry([registered])}
    elif how == "entry":
        options = {"allow": DEFAULT_ALLOW_LIST.allowing(f"{MODULE}:{base.__name__}")}
    elif how == "entries":
        options = {"allow": DEFAULT_ALLOW_LIST.allowing(f"{MODULE}:*")}
    else:
        rpcmq.allow({"allow class": type(error), "allow base": base, "allow module": own_classes}[how])
    back = arrives(error, **options)
    check(error, back)
    assert back.remote_host == "node-7" and isinstance(back.__cause__, RemoteError)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_exception_as_a_value_arrives_as_itself(error: Any) -> None:
    rpcmq.allow(own_classes)
    codec = Codec(exceptions=ExceptionRegistry([own_classes]))
    # Python itself does not pickle what an exception has in __slots__.
    if not isinstance(error, SlottedError):
        check(error, codec.decode(2, pickle.dumps(error, 5)))
    typed = Codec(exceptions=codec.exceptions)._json
    check(error, typed.decode(typed.encode(error)))


def test_the_constructor_of_another_language_s_record_is_called() -> None:
    codec = Codec(exceptions=ExceptionRegistry([own_classes]))
    record = {"type": f"{MODULE}:PlaceError", "args": ["h", "full"]}
    back: Any = codec.decode_exception(1, json.dumps(record).encode())
    assert type(back) is PlaceError and (back.host, back.code) == ("h", 5)


def test_exceptions_of_the_standard_library_that_were_registered() -> None:
    failures: list[Any] = []
    causes: tuple[tuple[Any, Any], ...] = (
        (json.loads, "{"),
        (bytes.decode, b"\xff"),
        (zlib.decompress, b"x"),
        (Decimal, "x"),
    )
    for function, argument in causes:
        try:
            function(argument)
        except Exception as raised:
            failures.append(raised)
    failures.append(CalledProcessError(3, ["ls"]))
    registry = ExceptionRegistry([json.JSONDecodeError, zlib.error, InvalidOperation, CalledProcessError])
    for failure in failures:
        back = arrives(failure, exceptions=registry)
        assert (type(back), str(back)) == (type(failure), str(failure))
    assert (back.returncode, back.cmd) == (3, ["ls"])


def reason(error: BaseException, **options: Any) -> str:
    back = arrives(error, **options)
    assert type(back) is RemoteError
    assert back.reason in "".join(traceback.format_exception(back))
    return str(back.reason)


def test_who_does_not_know_a_class_is_told_what_to_write() -> None:
    text = reason(QuotaError(resource="disks", limit=7))
    assert text.startswith(f"{MODULE}.QuotaError arrives as RemoteError: this process does not know it; ")
    assert "write rpcmq.allow(QuotaError) here, in the process that calls" in text
    assert f"RPCMQ_ALLOW={MODULE}:QuotaError" in text


def test_what_cannot_be_carried_is_named() -> None:
    text = reason(OpaqueError("a", "b"), exceptions=ExceptionRegistry([AppError]))
    assert "it cannot be made of its arguments: TypeError" in text
    assert "of its attributes lock cannot be carried" in text
    assert "keep plain values in its attributes, or let its constructor take its args" in text


def test_what_would_steer_the_caller_says_so() -> None:
    rpcmq.allow(own_classes)
    assert "it would steer that" in reason(SystemExit(1))
    assert type(arrives(StopError(1))) is RemoteError
    with pytest.raises(UsageError, match="defines no exception itself"):
        ExceptionRegistry([module_without_exceptions])


def test_what_no_line_can_let_in_is_told_without_one() -> None:
    class LocalError(Exception):
        pass

    assert "groups of exceptions are not carried" in reason(ExceptionGroup("g", [ValueError(1)]))
    assert "it is defined in a function" in reason(LocalError("x"))
    assert "rpcmq.allow" not in reason(LocalError("x"))


def test_no_name_from_the_wire_is_imported_or_walked() -> None:
    rpcmq.allow(own_classes)
    codec = Codec(allow=DEFAULT_ALLOW_LIST.allowing(f"{MODULE}:*"), exceptions=ExceptionRegistry([own_classes]))
    for name in (
        f"{MODULE}:zipfile.BadZipFile",
        f"{MODULE}:Imported",
        "zipfile:BadZipFile",
        "antigravity:X",
        f"{MODULE}:Host",
    ):
        back = codec.decode_exception(1, json.dumps({"type": name, "args": [], "attributes": {}}).encode())
        assert type(back) is RemoteError
    assert "antigravity" not in sys.modules


def test_a_class_that_derives_from_a_registered_one_is_not_let_in_by_pickles() -> None:
    codec = Codec(allow=DEFAULT_ALLOW_LIST.allowing(f"{MODULE}:AppError"))
    with pytest.raises(rpcmq.errors.PayloadRefused):
        codec.decode(2, pickle.dumps(PlaceError("h", "full"), 5))


def test_attributes_do_not_replace_what_python_looks_at() -> None:
    rpcmq.allow(own_classes)
    attributes = {"__class__": 1, "with_traceback": 1, "args": 1, "__cause__": 1, "host": "h", "__dict__": {}}
    record = {"type": f"{MODULE}:SlottedError", "args": ["x"], "attributes": attributes}
    back: Any = Codec().decode_exception(1, json.dumps(record).encode())
    assert (type(back), back.args, back.host) == (SlottedError, ("x",), "h")
    assert callable(back.with_traceback)
