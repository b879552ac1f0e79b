"""From lists of buckets to how often each occurs: for engines that collect lists sooner than they count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rpcmq.latency.jobs.bounds import LAST_OF_BUCKET
from rpcmq.latency.jobs.cells import DISTRIBUTIONS

__all__ = ["counted"]

_BUCKET = pa.struct([("b", pa.int16()), ("c", pa.int64())])
#: More than there are buckets, of which the first has the index -1.
_SPAN = len(LAST_OF_BUCKET) + 1
#: Values that are counted at a time: some hundred bytes of memory are needed for each.
_AT_A_TIME = 1 << 21


def counted(collected: pa.Table) -> pa.Table:
    """Cells, of a table whose distributions have, in place of ``buckets``, the list of each record's bucket."""
    for name in DISTRIBUTIONS:
        place = collected.schema.get_field_index(name)
        chunks = [_distribution(chunk) for chunk in collected[name].chunks]
        kind = pa.struct([*list(collected.schema.field(name).type)[:-1], ("buckets", pa.list_(_BUCKET))])
        collected = collected.set_column(place, name, pa.chunked_array(chunks, kind))
    return collected


def _distribution(collected: pa.StructArray) -> pa.StructArray:
    *numbers, lists = (collected.field(place) for place in range(collected.type.num_fields))
    fields = [*list(collected.type)[:-1], pa.field("buckets", pa.list_(_BUCKET))]
    return pa.StructArray.from_arrays([*numbers, _counted(lists)], fields=fields)


def _counted(lists: pa.ListArray) -> pa.ListArray:
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False)
    values = lists.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes)
    found = []
    row = begin = 0
    while row < len(sizes):
        # One list at least, however long.
        after = max(row + 1, int(np.searchsorted(ends, begin + _AT_A_TIME, "right")))
        end = int(ends[after - 1])
        found.append(_counts(np.repeat(np.arange(row, after), sizes[row:after]), values[begin:end]))
        row, begin = after, end
    rows, indexes, counts = (
        (np.concatenate(each) for each in zip(*found, strict=True)) if found else [np.empty(0, int)] * 3
    )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(sizes)))]).astype(np.int32)
    buckets = pa.StructArray.from_arrays([indexes.astype(np.int16), counts], fields=list(_BUCKET))
    return pa.ListArray.from_arrays(offsets, buckets)


def _counts(rows: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Row, index and count of each bucket, in the order of both."""
    keys = rows * _SPAN + values + 1
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    rows, indexes = np.divmod(keys[first], _SPAN)
    return rows, indexes - 1, np.diff(first, append=len(keys))
