from __future__ import annotations

import builtins
import datetime as dt
import decimal
import fractions
import http
import ipaddress
import pathlib
import pickle
import re
import sys
import time
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest

from rpcmq.errors import PayloadRefused
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST
from rpcmq.payload.safe_pickle import RestrictedLoader
from tests.payload.samples import kind

loads = RestrictedLoader().loads
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2024, 2, 29, 12, 30, 15, 123456),
        dt.datetime(2024, 10, 27, 2, 30, fold=1),
        dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        dt.datetime(2024, 2, 29, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30), "NST")),
        dt.datetime(2024, 2, 29, tzinfo=BERLIN),
        dt.date(2024, 2, 29),
        dt.time(12, 30, tzinfo=BERLIN),
        dt.timedelta(days=-1, microseconds=1),
        uuid.UUID(int=7),
        uuid.UUID("30135e9c-e5f7-11f1-a5c4-02fc00000001"),
        decimal.Decimal("-1.50"),
        decimal.Decimal("Infinity"),
        fractions.Fraction(1, 3),
        1 + 2j,
        OrderedDict([("b", 1), ("a", [2])]),
        deque([1, 2, 3]),
        deque([1, 2, 3], maxlen=3),
        Counter("hello"),
        defaultdict(None, a=1),
        defaultdict(list, {"a": [1], "b": []}),
        defaultdict(int, {"a": 1}),
        {"n": defaultdict(dict), "m": defaultdict(set)},
        http.HTTPStatus.NOT_FOUND,
        time.struct_time(range(9)),
        ipaddress.ip_network("192.0.2.0/24"),
        ipaddress.ip_network("192.0.2.1/32"),
        ipaddress.ip_network("2001:db8::/64"),
        pathlib.Path("/var/lib"),
        ipaddress.ip_address("192.0.2.1"),
        ipaddress.ip_address("2001:db8::1"),
        ipaddress.ip_address("fe80::1%eth0"),
        ipaddress.ip_interface("192.0.2.1/24"),
        ipaddress.ip_interface("2001:db8::1/64"),
        pathlib.PurePosixPath("/var/lib"),
        pathlib.PureWindowsPath("C:\\x"),
        pytest.param({frozenset({1, 2}): {(4, b"5")}, None: bytearray(b"6")}, id="nested"),
    ],
    ids=repr,
)
def test_values_of_the_standard_library(value: Any) -> None:
    loaded = loads(pickle.dumps(value, 5))
    assert type(loaded) is type(value)
    assert loaded == value
    assert repr(loaded) == repr(value)


def test_paths_as_python_3_13_pickles_them() -> None:
    data = pickle.dumps(pathlib.PurePosixPath("/var"), 5)
    if sys.version_info < (3, 13):
        # The names are counted: pathlib has 7 characters, pathlib._local 14.
        data = data.replace(b"\x8c\x07pathlib", b"\x8c\x0epathlib._local")
        size = int.from_bytes(data[3:11], "little") + 7
        data = data[:3] + size.to_bytes(8, "little") + data[11:]
    assert b"_local" in data or sys.version_info >= (3, 14)
    assert loads(data) == pathlib.PurePosixPath("/var")


@pytest.mark.parametrize(
    "value",
    [
        ValueError("bad"),
        KeyError("k"),
        FileNotFoundError(2, "gone", "/x"),
        UnicodeDecodeError("u", b"x", 0, 1, "y"),
    ],
    ids=repr,
)
def test_builtin_exceptions_as_values(value: Exception) -> None:
    value.__dict__["extra"] = [1]
    loaded: Any = loads(pickle.dumps(value, 5))
    assert kind(loaded) is type(value)
    assert (str(loaded), loaded.args, loaded.extra) == (str(value), value.args, [1])


@pytest.mark.parametrize(
    "value",
    [
        range(3),
        {"factory": list, "d": OrderedDict()},
        defaultdict(uuid.uuid4),
        StopIteration(1),
        ImportError("x", name="antigravity"),
        SyntaxError("x", ("f", 1, 1, "text", 1, 10**15)),
        SystemExit(0),
        KeyboardInterrupt(),
        ExceptionGroup("g", [ValueError()]),
        int,
        len,
        print,
        uuid.UUID(int=1).__str__,
        slice(1, 2),
        type(None),
    ],
    ids=lambda value: re.sub(r" at 0x[0-9a-f]+", "", repr(value)),
)
def test_left_out_on_purpose(value: Any) -> None:
    with pytest.raises(PayloadRefused, match=r"not on this process|can never be|cannot be allowed|builtins:getattr"):
        loads(pickle.dumps(value, 5))


def test_a_uuid_made_by_the_sender_is_safe_to_use() -> None:
    value = uuid.uuid4()
    loaded = loads(pickle.dumps([value, value], 5))
    assert loaded[0] is loaded[1]
    assert hash(loaded[0]) == hash(value)


def test_no_listed_class_can_be_changed() -> None:
    for entry in DEFAULT_ALLOW_LIST.names:
        module, _, qualname = entry.partition(":")
        held: Any = DEFAULT_ALLOW_LIST.find(module, qualname)
        assert issubclass(kind(held), type), entry
        with pytest.raises((TypeError, PayloadRefused)):
            held.anything = 1


def test_no_listed_builtin_is_a_function() -> None:
    listed = [name.partition(":")[2] for name in DEFAULT_ALLOW_LIST.names if name.startswith("builtins:")]
    assert "ValueError" in listed
    for name in listed:
        assert name == "complex" or issubclass(getattr(builtins, name), Exception)


def test_getattr_is_not_on_the_list() -> None:
    assert "builtins:getattr" not in DEFAULT_ALLOW_LIST
    held: Any = DEFAULT_ALLOW_LIST.find("builtins", "getattr")
    assert held is not getattr
    zone = DEFAULT_ALLOW_LIST.find("zoneinfo", "ZoneInfo")
    assert held(zone, "_unpickle")("UTC", 1) is zoneinfo.ZoneInfo("UTC")
    for args in [
        (zone, "clear_cache"),
        (zone, "__init__"),
        (str, "_unpickle"),
        (zone,),
        (),
        (zone, "_unpickle", 1),
    ]:
        with pytest.raises(PayloadRefused, match="builtins:getattr"):
            held(*args)


@pytest.mark.parametrize(
    ("entry", "args"),
    [
        ("decimal:Decimal", (10**100,)),
        ("decimal:Decimal", ()),
        ("decimal:Decimal", ("1", None)),
        ("fractions:Fraction", ("1e1000000000",)),
        ("fractions:Fraction", (1,)),
        ("fractions:Fraction", (1 << 70_000, 1)),
        ("fractions:Fraction", (True, 1)),
        ("builtins:complex", (" " * 100 + "1",)),
        ("builtins:complex", (1, 1)),
        ("collections:OrderedDict", ([(1, 2)],)),
        ("collections:deque", ([1],)),
        ("collections:deque", ((), "x")),
        ("collections:deque", ((), 1, 1)),
        ("collections:Counter", ("hello",)),
        ("collections:Counter", ()),
        ("ipaddress:IPv4Address", (True,)),
        ("ipaddress:IPv4Address", ("192.0.2.1", 1)),
        ("ipaddress:IPv6Interface", (b"x" * 16,)),
        ("pathlib:PurePosixPath", (1,)),
        ("zoneinfo:ZoneInfo", ("UTC",)),
        ("zoneinfo:ZoneInfo", ("../../etc/passwd", 1)),
        ("zoneinfo:ZoneInfo", ("/etc/passwd", 1)),
        ("zoneinfo:ZoneInfo", ("x" * 200, 1)),
        ("zoneinfo:ZoneInfo", (1, 1)),
    ],
)
def test_constructors_take_only_what_their_pickles_bring(entry: str, args: tuple[Any, ...]) -> None:
    module, _, qualname = entry.partition(":")
    held: Any = DEFAULT_ALLOW_LIST.find(module, qualname)
    with pytest.raises(PayloadRefused, match=entry):
        held(*args)
