"""The format of nodes' files: what is written is read, and whatever else is there is refused or damaged, and left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.nodes.keeper import Keeper
from rpcmq.server.node_file_format import DamagedNodeFile, RefusedNodeFile, content_of, load

#: Bytes of the rows.
_MOST = 1 << 20

names = st.text(st.characters(codec="utf-8"), max_size=20)
rows = st.dictionaries(names, st.dictionaries(names, st.integers() | names, max_size=3), max_size=5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes") / "tap.state"


@given(rows=rows)
def test_rows_that_are_written_are_read(path: Path, rows: dict[str, dict[str, object]]) -> None:
    kept, read = Keeper(_MOST), Keeper(_MOST)
    for name, row in rows.items():
        kept.keep(name, row)
    path.write_bytes(content_of("tap", kept.encoded.values()))
    load(str(path), "tap", _MOST, read)
    assert read.rows == rows and read.size_bytes == kept.size_bytes


def test_a_file_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    keeper = Keeper(_MOST)
    load(str(tmp_path / "nowhere" / "tap.state"), "tap", _MOST, keeper)
    assert keeper.rows == {}


_BEGIN = [
    b"",
    b"rpcmq-node-file 1 tap ",
    b"rpcmq-node-file 99 tap ",
    content_of("tap", [json.dumps(["a", {}]).encode()]),
]


@given(begin=st.sampled_from(_BEGIN), rest=st.binary(min_size=1, max_size=200))
def test_any_other_content_is_damaged_or_refused_and_left_as_it_is(path: Path, begin: bytes, rest: bytes) -> None:
    path.write_bytes(begin + rest)
    with pytest.raises((DamagedNodeFile, RefusedNodeFile)):
        load(str(path), "tap", _MOST, Keeper(_MOST))
    assert path.read_bytes() == begin + rest


@given(lines=st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line), min_size=1, max_size=3))
def test_a_whole_file_of_lines_that_are_no_rows_is_damaged(path: Path, lines: list[bytes]) -> None:
    path.write_bytes(content_of("tap", [b"7", *lines]))
    with pytest.raises(DamagedNodeFile):
        load(str(path), "tap", _MOST, Keeper(_MOST))
