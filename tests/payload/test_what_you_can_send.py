"""The tables of docs/what-you-can-send.md, row by row."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path, PurePosixPath, PureWindowsPath
from threading import Lock
from time import struct_time
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

import rpcmq
from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload import Codec, Format, allow_list
from tests.payload import own_classes
from tests.payload.own_classes import Bag, Flavor, Frozen, Host, State

PAGE = (Path(__file__).parents[2] / "docs" / "what-you-can-send.md").read_text()
_NAMED = (
    *(Counter, OrderedDict, defaultdict, deque, date, datetime, time, timedelta, Decimal, Fraction, HTTPStatus, UUID),
    *(ip_address, ip_interface, ip_network, Path, PurePosixPath, PureWindowsPath, struct_time, ZoneInfo),
    *(Bag, Flavor, Frozen, Host, State),
)
NAMES = {each.__name__: each for each in _NAMED} | {
    "UTC": UTC, "Lock": Lock, "rpcmq": rpcmq, "own_classes": own_classes, "re": re,
}  # fmt: skip


def rows(title: str) -> list[list[str]]:
    """The rows of the table in the section ``title``."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def values(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


WITHOUT = [(text, row) for row in rows("Without a line of configuration") for text in values(row[0])]
WITH = [(text, row) for row in rows("With one line") for text in values(row[0])]
NEVER = [(text, row) for row in rows("What does not travel") for text in values(row[0])]


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_list, "_ALLOWED", allow_list._Allowed())


def value_of(text: str) -> Any:
    if text.startswith("numpy"):
        return eval(text, {"numpy": pytest.importorskip("numpy")})
    return eval(text, dict(NAMES))


def through(value: Any, format: Format) -> Any:
    number, payload = Codec(prefer=format).encode(value)
    assert number == format
    return Codec().decode(number, payload)


def check_same(left: Any, right: Any) -> None:
    assert type(left) is type(right) and repr(left) == repr(right)


def check_json(value: Any, promised: str) -> None:
    if promised == "itself":
        check_same(through(value, Format.JSON), value)
        return
    with pytest.raises(PayloadError, match="as typed JSON") as raised:
        through(value, Format.JSON)
    assert promised.startswith("refused")
    hint = values(promised)
    wanted = hint[0].removesuffix("()") if hint else ""
    assert wanted.strip(".") in str(raised.value)


def test_the_tables_are_found() -> None:
    assert (len(WITHOUT), len(WITH), len(NEVER)) > (35, 6, 10)


@pytest.mark.parametrize(("text", "row"), WITHOUT, ids=[text for text, _ in WITHOUT])
def test_without_a_line(text: str, row: list[str]) -> None:
    value = value_of(text)
    assert row[1] == "itself"
    check_same(through(value, Format.PICKLE), value)
    check_json(value, row[2])


@pytest.mark.parametrize(("text", "row"), WITH, ids=[text for text, _ in WITH])
def test_with_one_line(text: str, row: list[str]) -> None:
    value = value_of(text)
    (line,) = values(row[1])
    with pytest.raises(PayloadRefused, match=r"write rpcmq\.allow") as raised:
        through(value, Format.PICKLE)
    assert row[1] == f"`{line}`" and (line in str(raised.value) or line == "rpcmq.allow(own_classes)")
    eval(line, dict(NAMES))
    check_same(through(value, Format.PICKLE), value)
    check_json(value, row[2])


@pytest.mark.parametrize(("text", "row"), NEVER, ids=[text for text, _ in NEVER])
def test_what_does_not_travel(text: str, row: list[str]) -> None:
    with pytest.raises((PayloadError, PayloadRefused)):
        through(value_of(text), Format.PICKLE)
    if not text.startswith(("ImportError", "SyntaxError")):
        with pytest.raises(PayloadError):
            through(value_of(text), Format.JSON)


def test_the_lines_of_python_are_those_of_the_software() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    for name in re.findall(r"rpcmq\.(\w+)", code):
        assert hasattr(rpcmq, name)
    compile(code, "what-you-can-send.md", "exec")
