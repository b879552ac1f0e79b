"""The local engine's queries as SQL, equivalent to ``transforms`` to the last bucket."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rpcmq.latency.analysis.series import DIMENSIONS
from rpcmq.latency.jobs.bounds import LAST_OF_BUCKET, NEAR_IS_EXACT, PER_OCTAVE
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, SUMS
from rpcmq.latency.jobs.engine import Level
from rpcmq.latency.schema import COLUMNS, UNKNOWN

__all__ = [
    "EMPTY_CELLS",
    "EMPTY_LOG",
    "SECOND",
    "bucket",
    "cells",
    "condition",
    "encoded",
    "literal",
    "name",
    "of_cells",
    "of_records",
    "records_of_windows",
    "window_of",
    "without_kinds",
]

#: The second in which a record of the log came.
SECOND = "floor(epoch_us(recv_at) / 1000000)::BIGINT"
_TYPES = {"string": "VARCHAR", "int16": "SMALLINT", "int64": "BIGINT", "timestamp": "TIMESTAMPTZ"}
_BUCKETS = "STRUCT(b SMALLINT, c BIGINT)[]"
#: The way to another router and back, of the time at the server; 0 if not known.
_BETWEEN = (
    "coalesce(CASE WHEN service_us IS NOT NULL THEN least(greatest(between_us, 0), greatest(service_us, 0)) END, 0)"
)
_DISTRIBUTION = f'STRUCT(zeros BIGINT, sum BIGINT, "min" BIGINT, "max" BIGINT, buckets {_BUCKETS})'


def literal(value: str | float | None) -> str:
    """``value`` as SQL writes it."""
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def name(column: str) -> str:
    """A column as SQL writes it."""
    return f'"{column}"'


def _nothing(columns: Mapping[str, str]) -> str:
    return f"SELECT {', '.join(f'NULL::{kind} AS {name(each)}' for each, kind in columns.items())} WHERE false"


#: No rows, with all columns.
EMPTY_LOG = _nothing({each.name: _TYPES[each.type] for each in COLUMNS})
EMPTY_CELLS = _nothing(
    {"window": "BIGINT"}
    | dict.fromkeys(DIMENSIONS, "VARCHAR")
    | dict.fromkeys(SUMS, "BIGINT")
    | dict.fromkeys(DISTRIBUTIONS, _DISTRIBUTION)
)


def condition(terms: Iterable[str]) -> str:
    """All of ``terms`` together."""
    return " AND ".join(f"({term})" for term in terms) or "true"


def without_kinds(kinds: Collection[str]) -> list[str]:
    """The terms that leave out records of these ``kinds``."""
    return [f"kind::VARCHAR NOT IN ({', '.join(map(literal, kinds))})"] if kinds else []


def bucket(us: str) -> str:
    """Index of the bucket of an integer, as ``transforms.bucket`` finds it; null for zero, below, and null."""
    near = f"greatest(ceil(log2({us}) * {PER_OCTAVE})::INTEGER - 1, -1)"
    # Arrays begin at 1 here, and the first bucket has the index -1.
    last = f"[{', '.join(map(str, LAST_OF_BUCKET))}]::BIGINT[]"
    exact = f"{near} + ({us} > ({last})[{near} + 2])::INTEGER - ({us} <= ({last})[{near} + 1])::INTEGER"
    return f"CASE WHEN {us} <= 0 THEN NULL WHEN {us} < {NEAR_IS_EXACT} THEN {near} ELSE {exact} END::SMALLINT"


def encoded(records: str, wanted: str, types: Mapping[str, str]) -> str:
    """A select of the wanted of ``records``, with names as numbers and what cells are made of.

    Args:
        types: dimension -> the enumeration of its values.
    """
    known = f"outcome <> {literal(UNKNOWN)}"
    spare = "greatest(service_us - handler_us, 0)"
    has_reply = "reply_us IS NOT NULL AND handler_us IS NOT NULL AND service_us IS NOT NULL"
    inner = [
        f"{SECOND} AS second",
        *(f"{name(each)}::{types[each]} AS {name(each)}" for each in DIMENSIONS),
        *(f"CASE WHEN {known} THEN {_duration(each)} END AS {name(each)}" for each in DISTRIBUTIONS),
        f"CASE WHEN {known} THEN {_BETWEEN} END AS crossing",
        f"CASE WHEN {known} THEN handler_us END AS handler",
        f"CASE WHEN {known} AND {has_reply} THEN least(greatest(reply_us, 0), {spare}) END AS reply",
        "req_bytes",
        "rep_bytes",
    ]
    outer = [f"{bucket(name(each))} AS {_bucket_of(each)}" for each in DISTRIBUTIONS]
    # Two clocks tell them, so the method may seem to have taken longer than all that was at the server.
    outer.append("CASE WHEN reply IS NOT NULL THEN greatest(service - handler, 0) - reply END AS network")
    return f"SELECT *, {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM {records} WHERE {wanted})"


def _duration(measure: str) -> str:
    # greatest() passes over nulls.
    us = f"{measure}_us"
    less = f" - {_BETWEEN}" if measure == "service" else ""
    return f"CASE WHEN {us} IS NOT NULL THEN greatest({us}, 0){less} END"


def _bucket_of(measure: str) -> str:
    return f"{measure}_bucket"


def cells(records: str, window_seconds: int, wanted: str) -> str:
    """The cells of the wanted of ``records``, a table of ``encoded``, as ``counting.counted`` takes them."""
    return _of_records(records, window_of("second", window_seconds), DIMENSIONS, wanted)


def records_of_windows(records: str, window_seconds: int) -> str:
    """The start of each window of ``records``, a table of ``encoded``, in order, and the number of records in it."""
    return f"SELECT {window_of('second', window_seconds)} AS begin, count(*) FROM {records} GROUP BY ALL ORDER BY begin"


def of_records(records: str, level: Level) -> str:
    """A rollup of a table of ``encoded``, as ``counting.counted`` takes it."""
    window = None if level.window_seconds is None else window_of("second", level.window_seconds)
    return _of_measures(_of_records(records, window, _kept(level), _only(level)), level, "[]::SMALLINT[]")


def _of_records(records: str, window: str | None, by: Sequence[str], wanted: str) -> str:
    columns = [
        *_keys(window, by),
        "count(*) AS records",
        "coalesce(sum(handler), 0)::BIGINT AS handler_us",
        "count(handler) AS handlers",
        "coalesce(sum(network), 0)::BIGINT AS network_us",
        "coalesce(sum(reply), 0)::BIGINT AS reply_us",
        "sum(req_bytes)::BIGINT AS request_bytes",
        "sum(rep_bytes)::BIGINT AS reply_bytes",
        "coalesce(sum(crossing), 0)::BIGINT AS between_us",
        *map(_distribution, DISTRIBUTIONS),
    ]
    return f"SELECT {', '.join(columns)} FROM {records} WHERE {wanted} GROUP BY ALL"


def _distribution(measure: str) -> str:
    us, bucket = name(measure), _bucket_of(measure)
    # To count them here takes ten times as long: ``counting`` does.
    listed = f"coalesce(list({bucket}) FILTER ({bucket} IS NOT NULL), []::SMALLINT[])"
    return (
        f"{{'zeros': count(*) FILTER ({us} = 0), 'sum': coalesce(sum({us}), 0)::BIGINT, 'min': min({us}),"
        f" 'max': max({us}), 'buckets': {listed}}} AS {us}"
    )


def of_cells(stored: str, level: Level) -> str:
    """A rollup of ``stored`` cells, again with their columns."""
    window = None if level.window_seconds is None else window_of(name("window"), level.window_seconds)
    names = [name(each) for each in (*(() if window is None else ("window",)), *_kept(level))]
    keys = _keys(window, _kept(level))
    chosen = f"FROM {stored} WHERE {_only(level)}"
    numbers = [f"{name(d)}.{part} AS {d}_{part}" for d in DISTRIBUTIONS for part in ("zeros", "sum", "min", "max")]
    # Each cell once for its sums, and once for each bucket of each distribution.
    rows = [f"SELECT {', '.join([*keys, *SUMS, *numbers])}, NULL::TINYINT AS n {chosen}"]
    for n, each in enumerate(DISTRIBUTIONS):
        if each not in level.measures:
            continue
        rows.append(f"SELECT {', '.join(keys)}, {n} AS n, unnest({name(each)}.buckets, recursive := true) {chosen}")
    added = [f"sum({each}) AS {each}" for each in (*SUMS, *_numbers("zeros", "sum"))]
    added += [f"{end}({each}) AS {each}" for end in ("min", "max") for each in _numbers(end)]
    parts = (
        f"SELECT {', '.join([*names, 'n', 'b', *added])}, sum(c)::BIGINT AS c"
        f" FROM ({' UNION ALL BY NAME '.join(rows)}) GROUP BY ALL"
    )
    columns = [
        *names,
        *(f"coalesce(sum({each}), 0)::BIGINT AS {each}" for each in SUMS),
        *map(_gathered, DISTRIBUTIONS),
    ]
    return _of_measures(f"SELECT {', '.join(columns)} FROM ({parts}) GROUP BY ALL", level, f"[]::{_BUCKETS}")


def _of_measures(rolled: str, level: Level, no_buckets: str) -> str:
    """``rolled`` with nothing in place of durations that the level is not of; DuckDB computes none of what goes."""
    nothing = (
        f"{{'zeros': 0::BIGINT, 'sum': 0::BIGINT, 'min': NULL::BIGINT, 'max': NULL::BIGINT, 'buckets': {no_buckets}}}"
    )
    empty = [f"{nothing} AS {name(each)}" for each in DISTRIBUTIONS if each not in level.measures]
    return f"SELECT * REPLACE ({', '.join(empty)}) FROM ({rolled})" if empty else rolled


def _numbers(*parts: str) -> list[str]:
    return [f"{each}_{part}" for each in DISTRIBUTIONS for part in parts]


def _gathered(measure: str) -> str:
    buckets = f"list({{'b': b, 'c': c}} ORDER BY b) FILTER (n = {DISTRIBUTIONS.index(measure)})"
    return (
        f"{{'zeros': coalesce(sum({measure}_zeros), 0)::BIGINT, 'sum': coalesce(sum({measure}_sum), 0)::BIGINT,"
        f" 'min': min({measure}_min), 'max': max({measure}_max), 'buckets': coalesce({buckets}, []::{_BUCKETS})}}"
        f" AS {name(measure)}"
    )


def _kept(level: Level) -> list[str]:
    return list(dict.fromkeys((*level.by, "outcome")))


def _keys(window: str | None, by: Iterable[str]) -> list[str]:
    columns = [name(each) for each in by]
    return columns if window is None else [f"{window} AS {name('window')}", *columns]


def window_of(time: str, seconds: int) -> str:
    """The begin of the window in which ``time`` is, both seconds."""
    return f"floor({time} / {seconds})::BIGINT * {seconds}"


def _only(level: Level) -> str:
    if level.only is None:
        return "true"
    if not level.only.values:
        return "false"
    columns = ", ".join(f"{name(each)}::VARCHAR" for each in level.only.columns)
    values = (f"({', '.join(map(literal, value))})" for value in level.only.values)
    return f"({columns}) IN ({', '.join(values)})"
