from __future__ import annotations

import pickle
import threading
from collections import OrderedDict, deque
from typing import Any

import pytest

from rpcmq.payload.bounded_text import short_repr
from rpcmq.payload.paths import ROOT, as_key, at_index, at_key, describe, find_unpicklable
from tests.payload.samples import Instance


def find(value: Any) -> tuple[str, object]:
    try:
        pickle.dumps(value, 5)
    except Exception as error:
        path, culprit, _ = find_unpicklable(value, error, lambda part: pickle.dumps(part, 5))
        return path, culprit
    raise AssertionError("was pickled")


class ReprFails:
    def __repr__(self) -> str:
        raise RuntimeError


def test_paths_read_as_expressions() -> None:
    assert at_key(ROOT, "args") == "args"
    assert at_key(ROOT, "not an identifier") == "['not an identifier']"
    assert at_key(ROOT, 7) == "[7]"
    assert at_key("args", "disk") == "args['disk']"
    assert at_index("args", 2) == "args[2]"
    assert as_key("args", (1, 2)) == "args, key (1, 2)"
    assert describe(ROOT) == "the message"


def test_brief_is_bounded_and_survives_a_broken_repr() -> None:
    assert len(short_repr("x" * 1000)) == 80
    assert short_repr(ReprFails()) == "<ReprFails: repr() raised RuntimeError>"


def test_deep_inside_a_message() -> None:
    lock = threading.Lock()
    message = {"method": "m", "args": {"disk": [1, 2, Instance(lock)]}}  # type: ignore[arg-type]
    assert find(message) == ("args['disk'][2].name", lock)


@pytest.mark.parametrize("container", [list, tuple, deque])
def test_in_a_sequence(container: Any) -> None:
    lock = threading.Lock()
    assert find(container([1, [lock]])) == ("[1][0]", lock)


def test_the_message_itself() -> None:
    lock = threading.Lock()
    assert find(lock) == ("", lock)


def test_key_and_member() -> None:
    function = lambda: 0  # noqa: E731
    path, culprit = find({"a": {function: 1}})
    assert path.startswith("a, key <function")
    assert culprit is function
    path, culprit = find([{function}])
    assert path.startswith("[0], member <function")
    assert culprit is function


def test_subclass_of_a_container() -> None:
    lock = threading.Lock()
    assert find(OrderedDict(a=[lock])) == ("a[0]", lock)


def test_class_that_is_not_importable() -> None:
    class Local:
        pass

    assert find({"args": [Local()]}) == ("args[0].__class__", Local)
    assert find(Local()) == ("class of the message", Local)


def test_slots_and_constructor_arguments() -> None:
    lock = threading.Lock()

    error = ValueError("x", lock)
    assert find([error]) == ("[0], constructor argument 1", lock)


class Slots:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


class RefusesToReduce:
    def __init__(self) -> None:
        self.handle = threading.Lock()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("holds a handle")


class ReducesToName:
    def __reduce__(self) -> str:
        return "NOWHERE"


class ReduceLies:
    def __reduce__(self) -> Any:
        return 7


def test_slots() -> None:
    value = Slots()
    assert find({"a": value}) == ("a.lock", value.lock)


def test_object_that_refuses_to_be_reduced() -> None:
    value = RefusesToReduce()
    assert find([value]) == ("[0].handle", value.handle)


@pytest.mark.parametrize("kind", [ReducesToName, ReduceLies])
def test_object_with_an_odd_reduction(kind: Any) -> None:
    value = kind()
    assert find([value]) == ("[0]", value)


def test_cycle_ends() -> None:
    lock = threading.Lock()
    ring: list[Any] = []
    ring.append(ring)
    ring.append({"ring": ring, "lock": lock})
    assert find(ring) == ("[1]['lock']", lock)


def test_ends_at_a_bounded_depth() -> None:
    value: Any = threading.Lock()
    for _ in range(150):
        value = [value]
    path, _ = find(value)
    assert path == "[0]" * 100
