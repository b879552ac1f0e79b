"""The rows of a page, beside those that SQLite reads."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from struct import error as StructError

import apsw
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.store.salvage.cells import Page, Value

_PAGE = 4096
_VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=50),
    st.binary(max_size=200), st.integers(3000, 20_000).map(bytes),
)  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), _VALUES, _VALUES), max_size=8, unique_by=lambda row: row[0])
)
@settings(max_examples=50, deadline=None)
def test_rows_are_those_that_sqlite_has_written(rows: list[tuple[int, Value, Value]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        with closing(apsw.Connection(str(path))) as connection:
            connection.pragma("page_size", _PAGE)
            connection.execute("CREATE TABLE t (key INTEGER PRIMARY KEY, a, b)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            root = connection.execute("SELECT rootpage FROM sqlite_schema").get
        raw = path.read_bytes()
    page = lambda number: raw[(number - 1) * _PAGE :][:_PAGE]  # noqa: E731
    waiting, found = [root], dict[int, tuple[Value, ...]]()
    while waiting:
        number = waiting.pop()
        each = Page(page(number), number, _PAGE, page)
        waiting += [child.number for child in each.children()]
        found |= {row.key: row.values[1:] for row in each.rows() if row}
    assert found == {key: tuple(values) for key, *values in rows}


@given(st.sampled_from([2, 5, 10, 13]), st.binary(max_size=200), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_whatever_is_in_a_page_is_read_or_is_no_page(kind: int, begin: bytes, random: object) -> None:
    raw = (bytes([kind]) + begin).ljust(_PAGE, b"\x81")
    try:
        page = Page(raw, 2, _PAGE, lambda number: raw)
        list(page.children())
    except (ValueError, IndexError, StructError):
        return
    assert all(row is None or isinstance(row.values, tuple) for row in page.rows())
