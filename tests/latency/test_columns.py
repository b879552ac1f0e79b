"""Many records at once are the same rows as one by one; the schema is what the document says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.latency import schema
from rpcmq.latency.columns import ARROW, from_rows, table_of, to_rows
from rpcmq.latency.harvest import harvest
from rpcmq.log_format import LAYOUT, RECORD, Spool, SpoolError
from tests.latency.spools import Sent, blocks, head, many, packed, seal

DOCUMENT = Path(__file__).parents[2] / "docs" / "dispatch-log.md"

seconds = st.floats(-1e6, 1e6)
records = st.builds(
    Sent,
    seq=st.integers(1, 2**31),
    at=seconds,
    queued=seconds,
    served=st.floats(0, 4000),
    outcome=st.integers(0, 255),
    clock=st.none() | st.integers(0, 2**64 - 1),
)


def both(sent: list[Sent]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    data = head() + b"".join(blocks(sent)) + seal(len(sent))
    found = harvest(data, cut_off=False)
    columns = to_rows(table_of(found.head, found.names, found.records))
    return columns, schema.rows_of(found.head, list(Spool(data)))


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    columns, rows = both(many(1, 3000))
    assert columns == rows


@given(st.lists(records, min_size=1, max_size=5))
def test_whatever_the_clock_said(sent: list[Sent]) -> None:
    columns, rows = both(sent)
    assert columns == rows
    assert all(row["total_us"] >= row["queue_us"] >= 0 for row in columns)  # type: ignore[operator]


def test_rows_become_the_table_that_they_came_from() -> None:
    data = head() + b"".join(blocks(many(1, 200)))
    found = harvest(data, cut_off=True)
    table = table_of(found.head, found.names, found.records)

    assert from_rows(to_rows(table)).schema == table.schema == ARROW
    assert to_rows(from_rows(to_rows(table))) == to_rows(table)


def test_a_number_that_names_nothing_is_an_error() -> None:
    found = harvest(head() + b"".join(blocks(many(1, 3))), cut_off=True)
    with pytest.raises(SpoolError, match="which names nothing of its kind"):
        table_of(found.head, {}, found.records)


def test_a_packed_record_is_what_the_layout_says() -> None:
    last = LAYOUT[-1]
    assert last.offset + np.dtype(last.type).itemsize == RECORD.size == len(packed(Sent(1)))


def test_of_a_call_whose_end_nobody_saw_no_duration_is_known() -> None:
    row = schema.in_flight(both([Sent(1)])[0][0])
    assert row["outcome"] == "unknown"
    assert [name for name, value in row.items() if name.endswith("_us") and value is not None] == []


def test_the_document_has_the_schema() -> None:
    rows = [f"| `{c.name}` | {c.type} | {'yes' if c.nullable else ''} | {c.note} |" for c in schema.COLUMNS]
    assert "\n".join(rows) in DOCUMENT.read_text()


def test_time_is_text_for_readers() -> None:
    row = both([Sent(1, at=0.25)])[0][0]
    assert schema.as_json(row)["recv_at"] == "2023-11-14T22:13:20.250000Z"
