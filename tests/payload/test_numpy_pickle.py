"""Arrays and scalars of numpy with one entry, and no way into numpy's memory."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.errors import PayloadRefused
from rpcmq.payload import Codec
from rpcmq.payload.allow_entries import NUMPY_ARRAYS
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST
from rpcmq.payload.numpy_pickle import numpy_globals

numpy = pytest.importorskip("numpy")
codec = Codec(allow=DEFAULT_ALLOW_LIST.allowing("numpy"))

ARRAYS = [
    numpy.arange(3.0),
    numpy.arange(6).reshape(2, 3),
    numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    numpy.arange(24).reshape(2, 3, 4)[:, ::2, 1:],
    numpy.arange(10, dtype=">i4")[::3],
    numpy.array(5),
    numpy.array([]),
    numpy.empty((0, 3), "f4"),
    numpy.array(["a", "bcd"]),
    numpy.array([b"a", b"bcd"]),
    numpy.array([True, False]),
    numpy.array([1 + 2j]),
    numpy.arange(3, dtype=">i4"),
    numpy.arange(3, dtype="f2"),
    numpy.array(["2024-02-29", "NaT"], "M8[s]"),
    numpy.array([1, 2], "m8[25us]"),
    numpy.array([(1, 2.0)], [("a", "<i4"), ("b", ">f8")]),
    numpy.array([(1, [1.0, 2.0])], numpy.dtype([("a", "u1"), ("b", "f8", (2,))], align=True)),
    numpy.array([((1, 2), 3)], [("p", [("x", "i2"), ("y", "i2")]), ("z", "i8")]),
    numpy.frombuffer(b"123", "u1"),
]
SCALARS = [
    numpy.float64(1.5), numpy.int8(-1), numpy.bool_(True), numpy.str_("x"), numpy.bytes_(b"x"), numpy.complex64(1j),
    numpy.datetime64("2024-02-29"), numpy.timedelta64(7, "ms"), numpy.float32("nan"), numpy.datetime64("NaT", "ns"),
    numpy.array([(1, 2.0)], [("a", "<i4"), ("b", ">f8")])[0],
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{a.shape}")
def test_arrays(array: Any) -> None:
    for value in (array, array.T):
        loaded = codec.decode(*codec.encode({"a": [value]}))["a"][0]
        assert isinstance(loaded, numpy.ndarray)
        # numpy itself swaps the bytes of some that it loads.
        wanted = pickle.loads(pickle.dumps(value, 5))
        assert (loaded.dtype, loaded.shape, loaded.tobytes()) == (wanted.dtype, value.shape, wanted.tobytes())
        again = codec.decode(*codec.encode(loaded))
        assert (again.dtype, again.tobytes()) == (wanted.dtype, wanted.tobytes())
        if loaded.dtype.kind in "if":
            assert (loaded + loaded == value * 2).all() and type(loaded + 1) is type(value + 1)


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars(scalar: Any) -> None:
    loaded = codec.decode(*codec.encode(scalar))
    assert type(loaded) is type(scalar)
    assert (loaded.dtype, loaded.tobytes()) == (scalar.dtype, scalar.tobytes())


def test_names_of_numpy_1() -> None:
    data = pickle.dumps(numpy.arange(3), 5)
    old = data.replace(b"\x8c\x13numpy._core.numeric", b"\x8c\x12numpy.core.numeric")
    old = old[:3] + (int.from_bytes(old[3:11], "little") - 1).to_bytes(8, "little") + old[11:]
    assert b"numpy.core" in old
    assert codec.decode(2, old).tolist() == [0, 1, 2]


def test_without_the_entry_the_refusal_names_it() -> None:
    with pytest.raises(PayloadRefused, match=r'write rpcmq.allow\("numpy"\) in this process.*RPCMQ_ALLOW=numpy'):
        Codec().decode(*codec.encode(numpy.arange(3)))


def test_what_else_numpy_has_is_not_said_to_come_in_with_the_entry() -> None:
    for refusing in (codec, Codec()):
        with pytest.raises(
            PayloadRefused, match=r"only arrays and scalars are carried: send such, or \.tolist"
        ) as caught:
            refusing.decode(*codec.encode(numpy.ma.masked_array([1, 2], mask=[0, 1])))
        assert "rpcmq.allow" not in str(caught.value)


class Holds:
    def __init__(self, value: Any) -> None:
        self.value = value


FLOATS = numpy.arange(3.0)


@pytest.mark.parametrize(
    "value",
    [
        numpy.dtype("f8"), [numpy.dtype("i4")], {"kind": FLOATS.dtype}, {FLOATS.dtype: 1}, Holds(FLOATS.dtype),
        (FLOATS, FLOATS.dtype), numpy.dtype([("a", "i4")]), numpy.dtype("M8[s]"), defaultdict(list, a=numpy.dtype("b")),
    ],
    ids=["f8", "list", "dict", "key", "object", "shared with its array", "fields", "time", "defaultdict"],
)  # fmt: skip
def test_a_dtype_on_its_own_is_refused_wherever_it_is(value: Any) -> None:
    allowing = Codec(allow=codec.allow.allowing(f"{__name__}:Holds"))
    with pytest.raises(PayloadRefused, match=r"a dtype of numpy on its own, which is not carried; send its \.str"):
        allowing.decode(*allowing.encode(value))
    # And says nothing of the next one.
    assert allowing.decode(*allowing.encode([FLOATS, FLOATS]))[1].tolist() == [0, 1, 2]


def test_a_refused_pickle_says_nothing_of_the_next_one() -> None:
    with pytest.raises(PayloadRefused, match="builtins:object") as kept:
        codec.decode(*codec.encode([numpy.dtype("f8"), numpy.array([object])]))
    assert codec.decode(*codec.encode(FLOATS)).tolist() == [0, 1, 2]
    assert kept.tb is not None


def test_the_names_of_arrays_are_those_that_are_read() -> None:
    assert {name for _, name in numpy_globals()} == NUMPY_ARRAYS


@pytest.mark.parametrize(
    "value",
    [numpy.array([object]), numpy.array([1, "a", None], object), numpy.zeros(1, [("a", object)])],
    ids=["class", "plain", "field"],
)
def test_objects_are_refused(value: Any) -> None:
    with pytest.raises(PayloadRefused):
        codec.decode(*codec.encode(value))


class Calls:
    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self.parts


def record(fields: Any, flags: int = 16) -> Calls:
    return Calls(numpy.dtype, "V8", False, True, state=(3, "|", None, ("a",), fields, 8, 1, flags))


def dtype(kind: str = "f8", state: Any = (3, "<", None, None, None, -1, -1, 0)) -> Calls:
    return Calls(numpy.dtype, kind, False, True, state=state)


FROMBUFFER = numpy._core.numeric._frombuffer
SCALAR = numpy._core.multiarray.scalar
RECONSTRUCT = numpy._core.multiarray._reconstruct
EIGHT = b"12345678"


@pytest.mark.parametrize(
    "value",
    [
        Calls(FROMBUFFER, bytearray(EIGHT), dtype("O8"), (1,), "C"),
        Calls(FROMBUFFER, bytearray(EIGHT), dtype("f8"), (1 << 40,), "C"),
        Calls(FROMBUFFER, bytearray(EIGHT), dtype("f8"), (-1,), "C"),
        Calls(FROMBUFFER, bytearray(EIGHT), dtype("f8"), (1,), "A"),
        Calls(FROMBUFFER, bytearray(EIGHT), "f8", (1,), "C"),
        Calls(FROMBUFFER, bytearray(EIGHT), dtype("f8", (3, "<", None, None, None, 1 << 40)), (1,), "C"),
        Calls(
            FROMBUFFER, bytearray(8), dtype("V8", (3, "|", None, ("a",), {"a": (dtype("O8"), 0)}, 8, 1, 27)), (1,), "C"
        ),
        Calls(
            FROMBUFFER, bytearray(8), dtype("V8", (3, "|", None, ("a",), {"a": (dtype("f8"), 4)}, 8, 1, 16)), (1,), "C"
        ),
        Calls(
            FROMBUFFER, bytearray(8), dtype("V8", (3, "|", None, ("a",), {"b": (dtype("f8"), 0)}, 8, 1, 16)), (1,), "C"
        ),
        Calls(
            FROMBUFFER,
            bytearray(8),
            dtype("M8", (4, "<", None, None, None, -1, -1, 0, ({}, (b"x", 1, 1, 1)))),
            (1,),
            "C",
        ),
        Calls(SCALAR, dtype("O8"), EIGHT),
        Calls(SCALAR, dtype("f8"), b"1"),
        Calls(SCALAR, dtype("f8"), ["x"]),
        Calls(RECONSTRUCT, numpy.ndarray, (1 << 40,), b"b"),
        Calls(RECONSTRUCT, dict, (0,), b"b"),
        Calls(RECONSTRUCT, numpy.ndarray, (0,), b"b", state=(1, (1,), dtype("O8"), False, [object])),
        Calls(RECONSTRUCT, numpy.ndarray, (0,), b"b", state=(1, (1 << 40,), dtype("f8"), False, EIGHT)),
        Calls(numpy.ndarray, (1 << 40,)),
        Calls(numpy.dtype, "f8"),
        numpy.ma.masked_array([1]),
        Calls(numpy.load, "/etc/passwd"),
        Calls(numpy.fromfile, "/etc/passwd"),
    ],
    ids=range(22),
)
def test_what_no_array_pickles_to_is_refused(value: Any) -> None:
    with pytest.raises(PayloadRefused):
        codec.decode(2, pickle.dumps(value, 5))


sizes = st.integers()
units = st.tuples(st.none(), st.tuples(st.binary(max_size=3), sizes, sizes, sizes))
states = st.tuples(
    *(sizes, st.sampled_from("<>|=!"), st.none(), st.none(), st.none(), sizes, sizes, st.integers(0, 255), units)
)
kinds = st.sampled_from(["f8", "i4", "O8", "V8", "M8", "U2", "S0", "b1", "?", "x", "f999999999"])
shapes = st.lists(st.integers(-1, 4), max_size=3).map(tuple)


@given(kinds, states, st.binary(max_size=16), shapes, st.booleans(), st.booleans())
def test_any_dtype_state_and_shape(kind: str, state: Any, data: bytes, shape: Any, short: bool, scalar: bool) -> None:
    described = dtype(kind, state[:8] if short else state)
    value = Calls(SCALAR, described, data) if scalar else Calls(FROMBUFFER, data, described, shape, "C")
    try:
        loaded = codec.decode(2, pickle.dumps(value, 5))
    except PayloadRefused:
        return
    assert not loaded.dtype.hasobject and loaded.nbytes == len(data)
