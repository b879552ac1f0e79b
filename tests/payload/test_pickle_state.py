"""State that a pickle sets on objects, and copies that it causes: within the size of their own pickles."""

from __future__ import annotations

import collections
import decimal
import enum
import gc
import http
import ipaddress
import pathlib
import pickle
import tracemalloc
import uuid
import weakref
from typing import Any

import pytest

from rpcmq.errors import PayloadRefused
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST
from rpcmq.payload.safe_pickle import RestrictedLoader
from tests.payload.hostile import call, name, pickled, text

_ONE = b"K\x01"


class State(enum.Enum):
    ACTIVE = "active"
    GONE = "gone"


class Mode(enum.IntFlag):
    READ = 1
    WRITE = 2


class Point:
    """Its instances pickle as a dict of attributes."""

    def __init__(self, x: int) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)


class Counted:
    """Its instances pickle by a method of their own."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __getstate__(self) -> object:
        return {"n": len(self.seen)}

    def __setstate__(self, state: object) -> None:
        self.seen = [state]


class Picky:
    """Names in its error what it cannot use, as a look-up in a dict does."""

    def __init__(self, choice: object) -> None:
        raise KeyError(choice)


loads = RestrictedLoader(DEFAULT_ALLOW_LIST.allowing(f"{__name__}:*")).loads


def dict_of(*items: bytes) -> bytes:
    return b"}(" + b"".join(items) + b"u"


def shared_twice(levels: int) -> bytes:
    """Pushes a list that holds another one twice, and that the next one; its text would have 2 ** levels parts."""
    body = b"]\x94"
    for level in range(levels):
        body += b"]\x94(" + b"h%c" % level * 2 + b"e"
    return b"(" + body + b"1h%c" % levels


_UUID = name("uuid", "UUID") + b")\x81"


@pytest.mark.parametrize(
    "member",
    [
        name(__name__, "State") + b"h\x14\x85R",
        name(__name__, "State") + b"h\x14\x85\x81",
        _UUID + dict_of(text("int"), _ONE, text("is_safe"), b"h\x14") + b"b",
    ],
    ids=["enum", "enum by NEWOBJ", "UUID's is_safe"],
)
def test_a_value_that_is_no_member_of_an_enum_is_not_printed(member: bytes) -> None:
    with pytest.raises(PayloadRefused, match=r"by a value that is none|without calling it|no such object pickles to"):
        loads(pickled(shared_twice(20), b"0", member))


def test_what_a_constructor_names_in_its_error_is_printed_in_bounds() -> None:
    data = pickled(shared_twice(25), b"0", name(__name__, "Picky") + b"h\x19\x85R")
    tracemalloc.start()
    try:
        with pytest.raises(PayloadRefused, match="KeyError"):
            loads(data)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Written out it has 32 million parts, of more than two bytes each.
    assert used < 1 << 20


def test_a_uuid_does_not_hold_a_tuple_of_uuids() -> None:
    # A key that would take 2 ** 20 steps to hash.
    body = name("uuid", "UUID") + b"\x94h\x00)\x81" + dict_of(text("int"), _ONE) + b"b\x94"
    for level in range(1, 20):
        body += b"h\x00)\x81" + dict_of(text("int"), b"h%c" % level * 2 + b"\x86") + b"b\x94"
    with pytest.raises(PayloadRefused, match="uuid:UUID that no such object pickles to"):
        loads(pickled(b"(", body, b"1}h\x14Ns"))


@pytest.mark.parametrize(
    "state",
    [
        text("int"), dict_of(text("int"), text("7")), dict_of(text("int"), b"J\xff\xff\xff\xff"), dict_of(),
        dict_of(text("x"), _ONE),
    ],
    ids=["no dict", "text", "negative", "empty", "more"],
)  # fmt: skip
def test_a_uuid_is_a_number_of_128_bits(state: bytes) -> None:
    with pytest.raises(PayloadRefused):
        loads(pickled(_UUID, state, b"b"))


def test_members_of_enums_are_not_changed() -> None:
    state = dict_of(text("_value_"), text("x"), text("phrase"), text("OK\r\nSet-Cookie: a=b")) + b"b"
    for member in (call("http", "HTTPStatus", b"M\x94\x01"), call(__name__, "State", text("active"))):
        with pytest.raises(PayloadRefused, match="no such object pickles to"):
            loads(pickled(member, state))
    assert (http.HTTPStatus.NOT_FOUND.value, http.HTTPStatus.NOT_FOUND.phrase) == (404, "Not Found")
    assert State.ACTIVE.value == "active"


@pytest.mark.parametrize(
    "value",
    [
        pathlib.PurePosixPath("/srv/x"), pathlib.Path("/srv/x"), ipaddress.ip_address("10.0.0.1"),
        ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("10.0.0.1/8"), collections.deque([1]),
        collections.defaultdict(list),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("name", ["_str", "_ip", "network_address", "default_factory", "__class__"])
def test_what_a_constructor_has_checked_is_not_changed(value: object, name: str) -> None:
    # A path that is below /srv, and opens /etc/passwd.
    made = pickle.dumps(value, 5)[2:-1]
    for state in (b"N" + dict_of(text(name), text("/etc/passwd")) + b"\x86", dict_of(text(name), _ONE)):
        with pytest.raises(PayloadRefused, match="no such object pickles to"):
            loads(pickled(made, state, b"b"))


def test_what_a_pickle_gets_for_a_class_is_not_changed() -> None:
    error = name("builtins", "ValueError")
    for entry in (("decimal", "Decimal"), ("collections", "Counter"), ("uuid", "UUID"), (__name__, "Point")):
        for state in (b"(" + error + b")}Nt", dict_of(text("x"), _ONE)):
            with pytest.raises(PayloadRefused, match="no such object pickles to"):
                loads(pickled(name(*entry), state, b"b"))


def test_numpy_sets_no_state_of_a_senders_choice() -> None:
    numpy = pytest.importorskip("numpy")
    load = RestrictedLoader(DEFAULT_ALLOW_LIST.allowing("numpy")).loads
    made = pickle.dumps(numpy.arange(3), 5)[2:-1]
    with pytest.raises(PayloadRefused, match="numpy:ndarray that no such object pickles to"):
        load(pickled(made, b"(K\x01K\x01\x85NNNtb"))


def test_a_dtype_whose_parts_are_shared_is_counted_with_all_its_fields() -> None:
    numpy = pytest.importorskip("numpy")
    load = RestrictedLoader(DEFAULT_ALLOW_LIST.allowing("numpy")).loads
    dtype: Any = numpy.dtype("i1")
    for _ in range(4):
        dtype = numpy.dtype([(str(n), dtype) for n in range(5)])
    assert load(pickle.dumps(numpy.zeros(1, dtype), 5)).dtype == dtype
    for _ in range(2):
        dtype = numpy.dtype([(str(n), dtype) for n in range(5)])
    with pytest.raises(PayloadRefused, match="so many fields"):
        load(pickle.dumps(numpy.zeros(0, dtype), 5))


def test_exceptions_keep_their_attributes_and_nothing_that_python_looks_at() -> None:
    error = ValueError("x")
    error.__dict__["n"] = 1
    error.add_note("more")
    loaded = loads(pickle.dumps(error, 5))
    assert (loaded.args, loaded.n, loaded.__notes__) == (("x",), 1, ["more"])
    for attribute in ("__cause__", "__traceback__", "__class__", "__dict__"):
        with pytest.raises(PayloadRefused):
            loads(pickled(call("builtins", "ValueError"), dict_of(text(attribute), b"N"), b"b"))


def test_objects_of_ones_own_classes_get_their_state() -> None:
    slotted = Slotted()
    slotted.x = [1]  # type: ignore[attr-defined]
    point, slotted, counted, member = loads(pickle.dumps([Point(7), slotted, Counted(), State.GONE], 5))
    assert (point.x, slotted.x, counted.seen, member) == (7, [1], [{"n": 0}], State.GONE)
    ordered = collections.OrderedDict(a=1)
    ordered.note = "x"  # type: ignore[attr-defined]
    assert loads(pickle.dumps(ordered, 5)).note == "x"
    for slot in ("__class__", "__dict__"):
        with pytest.raises(PayloadRefused):
            loads(pickled(name(__name__, "Point"), b")\x81N", dict_of(text(slot), b"}"), b"\x86b"))


def test_states_are_set_in_pickles_of_any_size() -> None:
    values = [{"id": uuid.UUID(int=n), "at": Point(n), "text": "x" * (n % 400)} for n in range(5000)]
    loaded = loads(pickle.dumps(values, 5))
    assert [(each["id"], each["at"].x, each["text"]) for each in loaded] == [
        (each["id"], n, each["text"]) for n, each in enumerate(values)
    ]


def test_combinations_of_flags_are_not_kept_without_end() -> None:
    assert loads(pickle.dumps(Mode.READ | Mode.WRITE, 5)) == Mode.READ | Mode.WRITE
    assert loads(pickle.dumps(Mode(1 << 40), 5)) == 1 << 40
    with pytest.raises(PayloadRefused, match="combination"):
        loads(pickled(call(__name__, "Mode", pickle.dumps(1 << 5000, 5)[2:-1])))


@pytest.mark.parametrize(
    ("made", "argument"),
    [
        (name("collections", "Counter"), dict_of(*(b"M" + n.to_bytes(2, "little") + b"N" for n in range(5000)))),
        (name("decimal", "Decimal"), b"X" + (20_000).to_bytes(4, "little") + b"9" * 20_000),
        (name("pathlib", "PurePosixPath"), b"X" + (20_000).to_bytes(4, "little") + b"a/" * 10_000),
    ],
    ids=["Counter", "Decimal", "Path"],
)
def test_one_large_part_is_not_copied_into_thousands_of_objects(made: bytes, argument: bytes) -> None:
    with pytest.raises(PayloadRefused, match="the same large part copied"):
        loads(pickled(made, b"\x94", argument, b"\x94](" + b"h\x00h\x01\x85R" * 2000 + b"e"))


def test_one_large_state_is_not_set_thousands_of_times() -> None:
    state = dict_of(*(text(f"a{n}") + b"N" for n in range(2000)))
    with pytest.raises(PayloadRefused, match="the same large state set"):
        loads(pickled(call("builtins", "ValueError"), b"\x94", state, b"\x940", b"h\x01b" * 2000))


def test_many_small_values_that_are_alike_are_loaded() -> None:
    values = [
        [decimal.Decimal(n) / 7 for n in range(2000)],
        [pathlib.PurePosixPath(f"/var/lib/nova/instances/with-a-long-name/{n}/disk") for n in range(2000)],
        [collections.Counter("hello world") for _ in range(500)],
    ]
    assert loads(pickle.dumps(values, 5)) == values


def test_what_was_loaded_is_freed_without_the_garbage_collector() -> None:
    point = Point(1)
    data = pickle.dumps([point, decimal.Decimal("1.5"), pathlib.PurePosixPath("/a"), uuid.UUID(int=1)], 5)
    gc.disable()
    try:
        loaded = weakref.ref(loads(data)[0])
        assert loaded() is None
    finally:
        gc.enable()
