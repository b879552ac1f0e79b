"""Pickles without a global, which are loaded without the restricted unpickler, come to the same as through it."""

from __future__ import annotations

import copyreg
import pickle
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rpcmq.errors import PayloadRefused
from rpcmq.payload import safe_pickle
from rpcmq.payload.pickle_scan import check
from rpcmq.payload.safe_pickle import RestrictedLoader, dumps
from tests.payload import hostile, samples
from tests.payload.samples import VALUES, same
from tests.payload.test_safe_pickle import ALLOW, OPCODES, SEEDS

loader = RestrictedLoader(ALLOW)

#: Globals that Python's own unpickler was asked for: the restricted one does not ask it.
_found: list[str] = []


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event == "pickle.find_class":
        _found.append(".".join(map(str, args)))


sys.addaudithook(_note)


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was loaded without the restricted unpickler."""
    loaded: list[bytes] = []

    def loads(data: bytes) -> Any:
        loaded.append(data)
        return pickle.loads(data)

    monkeypatch.setattr(safe_pickle, "_loads", loads)
    return loaded


def outcome(load: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return load(data)
    except PayloadRefused:
        return PayloadRefused


def through_the_list(data: bytes) -> Any:
    """The full check: scanned, then loaded by the restricted unpickler, whatever is in it."""
    try:
        return loader._loaded(loader._unpickler, check(data))
    except Exception as error:
        raise PayloadRefused(str(error)) from error


def same_as_through_the_list(data: bytes) -> None:
    """Nothing is loaded that the full check refuses, nor as another value; and no global is looked up."""
    _found.clear()
    mine = outcome(loader.loads, data)
    assert _found == []
    if 0x93 in data and mine is not PayloadRefused:
        return  # loaded by the restricted unpickler, or with a defaultdict's factories
    theirs = outcome(through_the_list, data)
    if mine is PayloadRefused or theirs is PayloadRefused:
        assert mine is theirs
    else:
        # Not compared where they hold themselves, or one another again and again.
        assert type(mine) is type(theirs)
        if b"h" not in data and b"j" not in data:
            assert same(mine, theirs)


@pytest.mark.parametrize(
    "value",
    [
        None, 17, -1, 1 << 70, 1.5, "text", "x" * 300, b"bytes", b"x" * 70_000, bytearray(b"x"), [1, [2]], (1, 2, 3, 4),
        {"method": "reboot", "args": {"id": 17, "hard": True}}, {1, 2}, frozenset({1}), list(range(100)), [1000] * 2000,
    ],
    ids=lambda value: f"{type(value).__name__} {str(value)[:12]}",
)  # fmt: skip
def test_built_in_values_need_no_list(value: Any, plainly: list[bytes]) -> None:
    data = dumps(value)
    assert same(loader.loads(data), value)
    assert plainly == [data]


@pytest.mark.parametrize(
    "value", [uuid.UUID(int=1), samples.Instance("vm"), [ValueError(1)], {"at": samples.Point(1, 2)}]
)
def test_a_value_with_a_class_goes_through_the_list(value: Any, plainly: list[bytes]) -> None:
    loader.loads(dumps(value))
    assert plainly == []


def test_the_byte_of_a_global_within_a_text_goes_through_the_list(plainly: list[bytes]) -> None:
    value = {"text": "an en dash \N{EN DASH} has it", "number": 0x93}
    assert loader.loads(dumps(value)) == value
    assert plainly == []


def test_a_state_without_an_object_of_a_class_goes_through_the_list(plainly: list[bytes]) -> None:
    with pytest.raises(PayloadRefused):
        loader.loads(hostile.pickled(b"]}", hostile.text("x"), b"Nsb"))
    assert plainly == []


def test_the_extension_cache_stays_shut(plainly: list[bytes]) -> None:
    copyreg.add_extension("os", "system", 241)
    try:
        data = hostile.pickled(b"\x82\xf1")
        pickle.loads(data)  # fills the cache of the process
        with pytest.raises(PayloadRefused, match="opcode 0x82"):
            loader.loads(data)
    finally:
        copyreg.remove_extension("os", "system", 241)
    assert plainly == []


@pytest.mark.parametrize("name", [*hostile.RUNS_CODE, *hostile.ABUSES])
def test_hostile_pickles_come_to_the_same(name: str) -> None:
    same_as_through_the_list(hostile.RUNS_CODE.get(name) or hostile.ABUSES.get(name, b""))


@pytest.mark.fuzz
@given(VALUES, st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_values_of_all_protocols_come_to_the_same(value: Any, protocol: int) -> None:
    same_as_through_the_list(pickle.dumps(value, protocol))


_PLAIN_SEEDS = [
    pickle.dumps(value, protocol)
    for protocol in range(6)
    for value in (
        {"ctx": {"user": "admin", "roles": ["a", "b"]}, "msg": {"method": "m", "args": {"id": 17}}},
        [1, 1.5, 1 << 80, "y" * 300, b"z" * 300, bytearray(b"x"), {1, 2}, frozenset({3}), (1, 2), (1, 2, 3, 4)],
    )
]


_INSERTED = st.binary(max_size=2) | st.sampled_from([b"b", b"R", b"\x81", b"\x82\x01", b"cos\nsystem\n"])


@pytest.mark.fuzz
@example(hostile.pickled(b"K\x01"), [(4, b"b", 0)])
@given(
    st.sampled_from(SEEDS + _PLAIN_SEEDS),
    st.lists(st.tuples(st.integers(0, 2000), _INSERTED, st.integers(0, 2)), min_size=1, max_size=4),
)
def test_damaged_pickles_come_to_the_same(seed: bytes, damages: list[tuple[int, bytes, int]]) -> None:
    damaged = bytearray(seed)
    for at, inserted, removed in damages:
        position = at % (len(damaged) + 1)
        damaged[position : position + removed] = inserted
    same_as_through_the_list(bytes(damaged))


@pytest.mark.fuzz
@given(st.lists(OPCODES, max_size=40))
def test_any_sequence_of_opcodes_comes_to_the_same(opcodes: list[bytes]) -> None:
    same_as_through_the_list(hostile.pickled(*opcodes))


@pytest.mark.fuzz
@given(st.lists(OPCODES.filter(lambda opcode: b"\x93" not in opcode), max_size=40))
def test_any_sequence_of_opcodes_without_a_global_comes_to_the_same(opcodes: list[bytes]) -> None:
    same_as_through_the_list(hostile.pickled(*opcodes))
