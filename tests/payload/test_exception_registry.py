from __future__ import annotations

import builtins

import pytest

from rpcmq import errors
from rpcmq.errors import CallTimeout, UsageError
from rpcmq.payload.exception_registry import (
    ExceptionRegistry,
    plain_args,
    plain_builtin_exceptions,
    wire_name,
)
from tests.payload.samples import InstanceError, TwoArgumentsError

NAME = "tests.payload.samples:InstanceError"


def test_defaults() -> None:
    registry = ExceptionRegistry()
    assert registry.get("builtins:ValueError") is ValueError
    assert registry.get("rpcmq.errors:CallTimeout") is CallTimeout
    assert registry.get("rpcmq.errors:RemoteError") is errors.RemoteError
    assert ValueError in registry
    assert InstanceError not in registry
    assert "ValueError" not in registry


@pytest.mark.parametrize(
    "cls", [StopIteration, StopAsyncIteration, SystemExit, KeyboardInterrupt, GeneratorExit, ExceptionGroup]
)
def test_not_among_the_defaults(cls: type[BaseException]) -> None:
    assert cls not in ExceptionRegistry()


def test_plain_builtins_are_exceptions_and_named_once() -> None:
    found = list(plain_builtin_exceptions())
    assert len(found) == len(set(found)) > 50
    assert all(getattr(builtins, cls.__name__) is cls for cls in found)


def test_without_defaults() -> None:
    registry = ExceptionRegistry([InstanceError], defaults=False)
    assert ValueError not in registry
    assert registry.get(NAME) is InstanceError


def test_register_as_decorator() -> None:
    registry = ExceptionRegistry()

    @registry.register
    class LocalError(Exception):
        pass

    assert LocalError in registry
    registry.register(LocalError)  # again is no error


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (int, "not a subclass of Exception"),
        (SystemExit, "not a subclass of Exception"),
        ("ValueError", "not a subclass of Exception"),
        (StopIteration, "end a loop there in silence"),
    ],
)
def test_what_cannot_be_registered(cls: type[Exception], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        ExceptionRegistry().register(cls)


def test_two_classes_of_one_name() -> None:
    other = type("InstanceError", (Exception,), {"__module__": "tests.payload.samples"})
    with pytest.raises(UsageError, match="another class is registered as"):
        ExceptionRegistry([InstanceError]).register(other)


def test_rebuild() -> None:
    made = ExceptionRegistry().rebuild("builtins:ValueError", ("a", 1))
    assert type(made) is ValueError
    assert made.args == ("a", 1)


def test_rebuild_does_not_format_the_message_twice() -> None:
    original = InstanceError(7)
    made = ExceptionRegistry([InstanceError]).rebuild(NAME, plain_args(original))
    assert type(made) is InstanceError
    assert str(made) == "instance 7 is gone"


def test_rebuild_of_an_os_error_keeps_its_class_and_file() -> None:
    original = FileNotFoundError(2, "gone", "/x")
    made = ExceptionRegistry().rebuild("builtins:OSError", plain_args(original))
    assert type(made) is FileNotFoundError
    assert str(made) == str(original)


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "builtins:int", "ValueError", "", "a:b:c"])
def test_what_is_not_registered_is_not_rebuilt(name: str) -> None:
    assert ExceptionRegistry().rebuild(name, ("true",)) is None


def test_constructor_that_refuses() -> None:
    registry = ExceptionRegistry([TwoArgumentsError])
    assert registry.rebuild(wire_name(TwoArgumentsError), ("one",)) is None


def test_constructor_that_makes_something_else() -> None:
    class OddError(Exception):
        def __new__(cls, *args: object) -> OddError:
            return ValueError()  # type: ignore[return-value]

    registry = ExceptionRegistry([OddError])
    assert registry.rebuild(wire_name(OddError), ()) is None
