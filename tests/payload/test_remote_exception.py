from __future__ import annotations

import traceback
from typing import Any

import pytest

from rpcmq.errors import CallTimeout, NestedCallError, RemoteError
from rpcmq.payload.exception_registry import ExceptionRegistry
from rpcmq.payload.remote_exception import (
    MAX_TEXT,
    MAX_TRACEBACK,
    add_hop,
    brief_record,
    describe_exception,
    rebuild_exception,
    undecodable,
)
from tests.payload.samples import InstanceError, TwoArgumentsError, kind

REGISTRY = ExceptionRegistry([InstanceError, TwoArgumentsError])


def plain(value: Any) -> bool:
    return type(value) in (int, str, list, dict, type(None))


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


def carried(exc: BaseException, registry: ExceptionRegistry = REGISTRY) -> Any:
    return rebuild_exception(describe_exception(raised(exc), "node-7", plain), registry.get)


def test_registered_class_comes_back_as_itself() -> None:
    back = carried(InstanceError(7))
    assert kind(back) is InstanceError
    assert (str(back), back.args, back.instance_id) == ("instance 7 is gone", ("instance 7 is gone",), 7)
    assert back.remote_host == "node-7"
    assert "raise exc" in back.remote_traceback
    assert back.remote_causes == ()


def test_printed_traceback_shows_the_remote_one() -> None:
    for error in (carried(InstanceError(7)), carried(InstanceError(7), ExceptionRegistry())):
        printed = "".join(traceback.format_exception(raised(error)))
        assert "Remote traceback (on node-7):" in printed
        assert "test_remote_exception.py" in printed.partition("Remote traceback")[2]
        assert "instance 7 is gone (on node-7)" in printed


def test_other_class_comes_back_as_remote_error() -> None:
    back = carried(InstanceError(7), ExceptionRegistry())
    assert kind(back) is RemoteError
    assert back.exc_type == "tests.payload.samples.InstanceError"
    assert back.value == "instance 7 is gone"
    assert back.host == back.remote_host == "node-7"
    assert back.remote_args == ("instance 7 is gone",)
    assert "InstanceError: instance 7 is gone" in back.traceback
    assert back.remote_traceback == back.traceback


def test_builtin_types_are_shown_without_their_module() -> None:
    assert carried(SystemExit(3)).exc_type == "SystemExit"


@pytest.mark.parametrize("exc", [StopIteration(1), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_what_steers_control_flow_is_never_raised_here(exc: BaseException) -> None:
    assert type(carried(exc)) is RemoteError


def test_the_end_of_a_call_comes_back_as_that_of_a_nested_call() -> None:
    back = carried(CallTimeout("queued 60.0 s", {"topic": "compute"}))
    assert kind(back) is NestedCallError
    assert (back.exc_type, back.value) == ("rpcmq.errors.CallTimeout", "queued 60.0 s")
    assert back.details == {"topic": "compute"}


@pytest.mark.parametrize(
    "hops",
    [7, [7], [[]], [["a", "b", "c", "d", 7, {}]], [["a", "b", "c", "d", "e", []]], [["a"] * 5 + [{"k": []}]] * 99],
)
def test_hops_of_any_shape_are_survived(hops: Any) -> None:
    back: Any = rebuild_exception({"type": "rpcmq.errors:LinkLost", "text": "t", "hops": hops}, REGISTRY.get)
    assert kind(back) is NestedCallError
    assert len(back.remote_hops) <= 16 and all(not hop.details for hop in back.remote_hops)
    assert str(back).startswith("rpcmq.errors.LinkLost: t")


def test_a_chain_of_many_hops_is_bounded_and_keeps_its_ends() -> None:
    error = carried(CallTimeout("first", {"topic": "last"}))
    for n in range(30):
        add_hop(error, f"topic{n}", "run")
        error = carried(error)
    assert len(error.remote_hops) == 8
    assert (error.remote_hops[0].topic, error.remote_hops[-1].topic) == ("topic29", "last")


def test_os_error_keeps_class_and_file() -> None:
    back = carried(OSError(2, "No such file or directory", "/x"))
    assert kind(back) is FileNotFoundError
    assert back.filename == "/x"


def test_two_hops() -> None:
    first = carried(InstanceError(7), ExceptionRegistry())
    back = carried(first)
    assert kind(back) is RemoteError
    assert back.exc_type == "tests.payload.samples.InstanceError"
    assert back.value == "instance 7 is gone"
    assert "Remote traceback (on node-7)" in back.remote_traceback


def test_notes_and_causes() -> None:
    error = InstanceError(7)
    error.add_note("seen twice")
    error.__cause__ = KeyError("k")
    error.__cause__.__context__ = OSError("disk")
    back = carried(error)
    assert back.__notes__ == ["seen twice"]
    assert back.remote_causes == (("builtins:KeyError", "'k'"), ("builtins:OSError", "disk"))


def test_causes_are_bounded_and_end_in_a_cycle() -> None:
    first, second = ValueError(1), ValueError(2)
    first.__cause__, second.__cause__ = second, first
    assert len(describe_exception(first, "", plain)["causes"]) == 1
    error: BaseException = ValueError(0)
    for n in range(100):
        outer = ValueError(n)
        outer.__context__ = error
        error = outer
    assert len(describe_exception(error, "", plain)["causes"]) == 8


def test_suppressed_context_is_no_cause() -> None:
    error = ValueError(1)
    error.__context__ = KeyError()
    error.__cause__ = None
    assert describe_exception(error, "", plain)["causes"] == []


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class UnprintableArgument:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_str_and_repr_that_raise() -> None:
    record = describe_exception(raised(UnprintableError(UnprintableArgument())), "h", plain)
    assert record["text"] == "(str() of the exception raised RuntimeError)"
    assert record["args"] == ["<UnprintableArgument: repr() raised RuntimeError>"]
    assert "UnprintableError" in record["traceback"]
    assert brief_record(UnprintableError(), "h")["text"] == record["text"]


def test_traceback_that_cannot_be_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traceback, "format_exception", lambda exc: 1 / 0)
    record = describe_exception(ValueError(), "h", plain)
    assert record["traceback"] == "(the traceback cannot be formatted: ZeroDivisionError)\n"


def test_sizes_are_bounded() -> None:
    error = ValueError("x" * 900_000, *range(1000))
    error.__dict__.update({f"a{n}": n for n in range(1000)})
    record = describe_exception(error, "h", lambda value: plain(value) and len(repr(value)) < 100)
    assert len(record["text"]) == MAX_TEXT
    assert "... (cut) ..." in record["text"]
    assert len(record["traceback"]) <= MAX_TRACEBACK
    assert len(record["args"]) == len(record["attributes"]) == 32
    assert len(record["args"][0]) == 1000
    assert len(str(brief_record(error, "h" * 1000))) < 700


def test_attributes_that_cannot_be_carried_are_left_out() -> None:
    error = ValueError()
    error.__dict__.update(good=1, bad=object())
    assert describe_exception(error, "h", plain)["attributes"] == {"good": 1}


class NoDictError(Exception):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("hands off")


def test_class_that_refuses_attributes_gives_remote_error() -> None:
    registry = ExceptionRegistry([NoDictError])
    back = rebuild_exception({"type": "tests.payload.test_remote_exception:NoDictError"}, registry.get)
    assert isinstance(back, RemoteError | NoDictError)
    name = f"{NoDictError.__module__}:NoDictError"
    assert type(rebuild_exception({"type": name, "text": "t"}, registry.get)) is RemoteError


@pytest.mark.parametrize("record", [None, 7, "text", [], {}, {"type": 7}, {"text": "x"}, b"x"])
def test_what_is_no_record(record: object) -> None:
    back = rebuild_exception(record, REGISTRY.get)
    assert kind(back) is RemoteError
    assert "cannot be decoded" in str(back)


def test_record_with_only_its_type() -> None:
    back: Any = rebuild_exception({"type": "go/errors.Timeout"}, REGISTRY.get)
    assert kind(back) is RemoteError
    assert back.exc_type == "go/errors.Timeout"
    assert back.remote_traceback == back.remote_host == ""


def test_record_with_members_of_wrong_types() -> None:
    record = {
        "type": "builtins:ValueError",
        "text": 7,
        "args": {"a": 1},
        "attributes": ["x"],
        "traceback": None,
        "host": b"h",
        "causes": [1, [], ["a"], ["a", 2], "ab", ["a", "b"]],
    }
    back: Any = rebuild_exception(record, REGISTRY.get)
    assert kind(back) is ValueError
    assert back.args == ()
    assert back.remote_causes == (("a", "b"),)
    back = rebuild_exception(record | {"attributes": {1: 2, "good": 3}}, REGISTRY.get)
    assert back.good == 3


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "builtins:int", "subprocess:Popen", "eval", ""])
def test_a_name_from_the_wire_is_never_called(name: str) -> None:
    back = rebuild_exception({"type": name, "args": ["exit 1"]}, REGISTRY.get)
    assert kind(back) is RemoteError


def test_attributes_cannot_replace_the_marks() -> None:
    record = {"type": "builtins:ValueError", "host": "real", "attributes": {"remote_host": "forged"}}
    assert vars(rebuild_exception(record, REGISTRY.get))["remote_host"] == "real"


def test_undecodable() -> None:
    error: Any = undecodable("it was torn")
    assert "cannot be decoded: it was torn" in str(error)
    assert (error.remote_traceback, error.remote_host, error.remote_causes) == ("", "", ())
