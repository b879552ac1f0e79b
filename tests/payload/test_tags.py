"""Values that the reader of each tag refuses, and values that it accepts beyond those rpcmq writes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from rpcmq.payload.paths import at_index, at_key
from rpcmq.payload.tags import READERS, Malformed, Unencodable

OFFSET = dt.timezone(dt.timedelta(hours=5, minutes=30))


@pytest.mark.parametrize(
    ("tag", "content", "value"),
    [
        ("datetime", "2024-02-29T01:02:03Z", dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC)),
        ("datetime", "2024-02-29T01:02:03.5+05:30", dt.datetime(2024, 2, 29, 1, 2, 3, 500_000, OFFSET)),
        ("time", "01:02:03.004Z", dt.time(1, 2, 3, 4000, dt.UTC)),
        ("decimal", "+1.e5", Decimal("1e5")),
        ("decimal", "sNaN12", Decimal("sNaN12")),
        ("int", "0", 0),
        ("bytes", "", b""),
    ],
)
def test_accepted(tag: str, content: Any, value: Any) -> None:
    decoded = READERS[tag](content)
    assert type(decoded) is type(value)
    assert repr(decoded) == repr(value)


@pytest.mark.parametrize(
    ("tag", "contents"),
    [
        ("int", [1, None, "", "-", "-0", "00", "0x10", "FF", " 1", "1_0", "1\n", "٣", ["1"]]),
        ("float", [1.5, "1.5", "NaN", "Infinity", "+inf", "", None]),
        ("bytes", [1, "A", "AA", "AA=", "AA==\n", "A A=", "AA==AA==x", "é", "-_=="]),
        ("decimal", [1, "", "1_000", " 1", "0x1", "1e", "e5", ".", "٣", "inf", "1" + "e9" * 2, "nan"]),
        ("decimal", ["1e99999999999999999999"]),
        ("datetime", [1, "", "2024-02-30T00:00:00", "2024-02-29", "2024-02-29 01:02:03", "20240229T010203"]),
        ("datetime", ["2024-02-29T24:00:01", "2024-02-29T01:02", "2024-02-29T01:02:03+24:00", "2024-W01-1"]),
        ("datetime", ["2024-02-29T01:02:03.1234567", "2024-02-29T01:02:03z", "2024-02-29T01:02:03+0530"]),
        ("date", ["2024-02-30", "0000-01-01", "20240229", "2024-1-1", "2024-W01-1", None]),
        ("time", ["25:00:00", "01:02", "T01:02:03", "010203", 1]),
        ("timedelta", [1, [], [1, 2], [1, 2, 3, 4], [1.0, 2, 3], [True, 2, 3], ["1", 2, 3], [0, 86_400, 0]]),
        ("timedelta", [[0, -1, 0], [0, 0, 1_000_000], [10**10, 0, 0], [10**400, 0, 0]]),
        (
            "uuid",
            [
                1,
                "",
                "0" * 32,
                "{00000000-0000-0000-0000-000000000001}",
                "00000000-0000-0000-0000-00000000000A",
            ],
        ),
        ("tuple", [None, "ab", {}, 1]),
        ("set", [None, "ab", [1, 1], [1, 1.0], [[]], [{}]]),
        ("frozenset", [None, [1, True], [set()]]),
        ("dict", [None, {}, [1], [[1]], [[1, 2, 3]], [[1, 2], [1, 3]], [[[], 1]], ["ab"], [(1, 2)]]),
    ],
)
def test_refused(tag: str, contents: list[Any]) -> None:
    for content in contents:
        # These are what the decoder of typed JSON turns into PayloadRefused.
        with pytest.raises((Malformed, ValueError, TypeError, ArithmeticError)):
            print("accepted:", READERS[tag](content))


def test_path_grows_from_the_inside_out() -> None:
    refusal = Unencodable("why").inside(at_index, 2).inside(at_key, "disk").inside(at_key, "args")
    assert refusal.path() == "args['disk'][2]"
    assert Unencodable("why").path() == ""
