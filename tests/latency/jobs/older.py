"""Cells as earlier versions wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["as_version_1"]


def as_version_1(directory: Path) -> None:
    """Rewrite the cells in ``directory`` as version 1 had them: without the ways, but with a sum that is no more."""
    for path in directory.glob("*.parquet"):
        table = pq.ParquetFile(path).read().drop_columns(["network_us", "reply_us"])
        place = table.schema.get_field_index("handlers") + 1
        # Any number: it is not to be read as anything else.
        column = pa.array([4711] * table.num_rows, pa.int64())
        pq.write_table(table.add_column(place, "handled_service_us", column), path, compression="zstd")
        # Spark's own, of the file that was.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    about = directory / "_cells.json"
    content = json.loads(about.read_bytes())
    assert content["version"] == 2
    about.write_text(json.dumps(content | {"version": 1}))
