from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gevent import subprocess

import rpcmq.payload
from rpcmq.errors import UsageError
from rpcmq.payload import ALL, Format, accept_mask, accept_names
from rpcmq.payload.format import format_name, known_mask

ROOT = Path(__file__).parents[2]


def test_numbers_are_those_of_the_wire() -> None:
    assert {member.label: int(member) for member in Format} == {"json": 1, "pickle": 2, "dill": 3}


def test_bits_leave_bit_zero_free() -> None:
    assert [member.bit for member in Format] == [2, 4, 8]
    assert ALL == 14


def test_names_to_mask_and_back() -> None:
    assert accept_mask(["json", Format.DILL]) == 10
    assert accept_names(10) == ("json", "dill")
    assert accept_mask([]) == 0
    assert accept_names(0) == ()


def test_bits_of_unknown_formats_are_left_out() -> None:
    assert accept_names(0xFF) == ("json", "pickle", "dill")


def test_the_mask_of_what_a_peer_names_has_json_and_nothing_unknown() -> None:
    assert known_mask(["dill", "xml", 7, None, "dill"]) == known_mask(["json", "dill"]) == 10
    assert known_mask("pickle") == known_mask(None) == 2


def test_names_for_output() -> None:
    assert [format_name(number) for number in (1, 2, 3, 7)] == ["json", "pickle", "dill", "format 7"]


def test_unknown_name_says_what_is_expected() -> None:
    with pytest.raises(UsageError, match="'yaml'; expected one of: json, pickle, dill"):
        accept_mask(["yaml"])
    with pytest.raises(UsageError, match="list of names"):
        accept_mask("json")


@pytest.mark.parametrize("name", rpcmq.payload.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(rpcmq.payload, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kodec'"):
        _ = rpcmq.payload.Kodec


def test_formats_load_nothing_that_decodes() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from rpcmq.payload.format import Format\n"
        "from rpcmq.payload import accept_mask\n"
        "assert accept_mask(['pickle']) == 4\n"
        "bad = {'pickle', '_pickle', 'dill', 'rpcmq.payload.codec'} & (set(sys.modules) - before)\n"
        "sys.exit(f'loaded: {bad}' if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
