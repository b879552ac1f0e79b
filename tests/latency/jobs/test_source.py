"""The records of a log for Spark: each good one once; all else by name, with a reason and a count."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpcmq.errors import UsageError
from rpcmq.latency import schema
from rpcmq.latency.analysis.account import Life, Verdict
from rpcmq.latency.jobs.gate import inspect
from rpcmq.latency.jobs.source import SCHEMA, SparkLog
from rpcmq.latency.manifest import ManifestDamaged, read
from rpcmq.latency.parquet import Parquet
from rpcmq.latency.retention import Limits
from rpcmq.latency.selection import Selection
from rpcmq.latency.ship import Shipper
from rpcmq.latency.sinks import JsonLines
from tests.latency.logs import NOW, rows, ship
from tests.latency.spools import BOOT, Sent, blocks, head, many, spooled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3600
START = BOOT // 1000
#: Records of a segment that is spoilt.
SPOILT = 30


def grown(directory: Path, segment: int, records: int) -> Path:
    """One segment more; its path."""
    path = spooled(directory, many(segment * 1000, records), segment=segment)
    ship(directory)
    return directory / "ready" / path.with_suffix(".parquet").name


def seqs(records: DataFrame) -> Counter[int]:
    return Counter(row["seq"] for row in records.select("seq").collect())


def seqs_of(*paths: Path) -> Counter[int]:
    return Counter(seq for path in paths for seq in pq.read_table(path)["seq"].to_pylist())


# --- files that cannot be trusted ---------------------------------------------------------------


def spoil(path: Path, how: str) -> None:
    """Make of a segment what cannot be trusted."""
    content = bytearray(path.read_bytes())
    match how:
        case "truncated":
            path.write_bytes(content[:-200])
        case "zero bytes":
            path.write_bytes(b"")
        case "random bytes":
            path.write_bytes(bytes(n * 7919 % 251 for n in range(len(content))))
        case "flipped byte":
            content[len(content) // 3] ^= 1
            path.write_bytes(content)
        case "gone":
            path.unlink()
        case "a directory":
            path.unlink()
            path.mkdir()
        case "a pipe":
            path.unlink()
            os.mkfifo(path)
        case "an endless device":
            path.unlink()
            path.symlink_to("/dev/zero")
        case "an endless file":
            os.truncate(path, 1 << 40)
        case _:
            write_another(path, how)


def write_another(path: Path, how: str) -> None:
    """Put another table in the segment's place, of which the manifest says that it is right."""
    table = pq.read_table(path)
    metadata = {b"rpcmq:schema": str(schema.VERSION).encode()}
    match how:
        case "later version":
            metadata = {b"rpcmq:schema": b"2"}
        case "other Parquet":
            metadata = {}
        case "wrong type":
            place = table.schema.get_field_index("total_us")
            table = table.set_column(place, "total_us", table["total_us"].cast(pa.string()))
        case "missing column":
            table = table.drop_columns(["service_us"])
        case "another count":
            table = table.slice(1)
    pq.write_table(table.replace_schema_metadata(metadata), path)
    manifest = path.parents[1] / "manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if line["file"]["path"] == f"ready/{path.name}":
            line["file"] |= {"bytes": path.stat().st_size, "crc32": zlib.crc32(path.read_bytes())}
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))


#: Kind of damage -> reason and text.
WRONG = {
    "truncated": ("truncated", r"has \d+ of \d+ bytes"),
    "zero bytes": ("truncated", r"has 0 of \d+ bytes"),
    "random bytes": ("corrupt", "is not what the shipper wrote: its checksum is another"),
    "flipped byte": ("corrupt", "is not what the shipper wrote: its checksum is another"),
    "gone": ("missing", "is in the manifest and not in the directory"),
    "a directory": ("foreign", "is a directory, not a regular file"),
    "a pipe": ("foreign", "is a named pipe, not a regular file"),
    "an endless device": ("foreign", "is a symbolic link, not a regular file"),
    "an endless file": ("corrupt", "is not what the shipper wrote: its checksum is another"),
    "later version": ("version", "schema version 2; this rpcmq reads 1"),
    "other Parquet": ("foreign", "Parquet, but no records of a dispatch log"),
    "wrong type": ("columns", "column total_us is string, not int64"),
    "missing column": ("columns", "column service_us is missing"),
    "another count": ("corrupt", "has 29 records, not 30"),
}


def test_whatever_is_wrong_with_a_file_it_is_set_aside_and_the_rest_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = grown(tmp_path, 1, 20)
    bad = {how: grown(tmp_path, 2 + number, SPOILT) for number, how in enumerate(WRONG)}
    last = grown(tmp_path, 2 + len(WRONG), 10)
    for how, path in bad.items():
        spoil(path, how)

    log = SparkLog(spark, Selection(tmp_path))
    records, account = log.records, log.account

    assert seqs(records) == seqs_of(first, last)
    aside = {each.path: each for each in account.set_aside}
    assert len(account.set_aside) == len(bad)
    for how, path in bad.items():
        reason, text = WRONG[how]
        found = aside[f"ready/{path.name}"]
        assert (found.reason, found.rows) == (reason, SPOILT), how
        assert re.fullmatch(text, found.text), how
    assert (account.files, account.counted, account.in_range) == (2, 30, 30)
    assert account.shipped == 30 + SPOILT * len(WRONG)
    assert account.balances


def test_files_that_the_manifest_does_not_name_are_not_read(tmp_path: Path) -> None:
    path = grown(tmp_path, 1, 20)
    shutil.copy(path, path.with_name("copy.parquet"))
    shutil.copy(path, path.with_name(".partial"))
    path.with_name("notes.txt").write_text("mine")
    path.with_name("random.parquet").write_bytes(b"PAR1 and so on")
    pq.write_table(pa.table({"a": [1]}), path.with_name("table.parquet"))

    passed = inspect(tmp_path, None, None, {})

    assert [file.path for file in passed.files] == [f"ready/{path.name}"]
    assert {each.path: (each.reason, each.rows) for each in passed.account.set_aside} == {
        "ready/copy.parquet": ("unlisted", None),
        "ready/notes.txt": ("foreign", None),
        "ready/random.parquet": ("foreign", None),
        "ready/table.parquet": ("foreign", None),
    }
    assert passed.account.shipped == 20


def test_lives_that_ended_without_a_seal_are_in_the_account(tmp_path: Path) -> None:
    # Thirteen numbers in two seconds, the last three without a record; then it was killed.
    whole = len(head()) + len(b"".join(blocks(many(1, 10), given=13)))
    spooled(tmp_path, many(1, 10), given=13, cut=whole)
    ship(tmp_path)
    (life,) = inspect(tmp_path, None, None, {}).account.unsealed
    assert life == Life("r1", BOOT, BOOT / 1000 + 2, 3, 2)

    spooled(tmp_path, many(1, 10), given=17, boot=BOOT + 1000)
    ship(tmp_path)
    account = inspect(tmp_path, None, None, {}).account
    # The one of now may have seven under way.
    assert (account.unsealed, account.holes, account.open, account.lost) == ([life], 10, 7, 2)
    account.counted = account.shipped
    assert account.verdict is Verdict.INCOMPLETE

    spooled(tmp_path, given=17, boot=BOOT + 1000, segment=2, final=True)
    ship(tmp_path)
    account = inspect(tmp_path, None, None, {}).account
    assert (account.unsealed, account.holes, account.open) == ([life], 10, 0)


def test_spool_files_that_nobody_ships_are_in_the_account(tmp_path: Path) -> None:
    grown(tmp_path, 1, 20)
    spooled(tmp_path, many(21, 10), segment=2)
    account = inspect(tmp_path, None, None, {}).account
    assert account.waiting == 1
    shipper = Shipper(tmp_path, Parquet())
    assert inspect(tmp_path, None, None, {}).account.waiting == 0
    shipper.close()


def test_what_the_shipper_set_aside_is_in_the_account(spark: SparkSession, tmp_path: Path) -> None:
    damaged = grown(tmp_path, 1, 20)
    broken = spooled(tmp_path, many(2000, 300), segment=2)
    content = bytearray(broken.read_bytes())
    content[-200] ^= 1
    broken.write_bytes(content)
    spoil(damaged, "flipped byte")
    good = grown(tmp_path, 3, 10)
    expected = seqs_of(good)
    # Compaction finds out.
    ship(tmp_path, NOW + HOUR)
    (tmp_path / "quarantine" / "unheard-of").write_text("?")
    (tmp_path / "quarantine" / "what.json").write_text("{}")

    log = SparkLog(spark, Selection(tmp_path))
    records, account = log.records, log.account

    assert seqs(records) == expected
    aside = {each.path: (each.reason, each.rows) for each in account.set_aside}
    assert aside == {
        f"quarantine/{damaged.name}": ("damaged", 20),
        f"quarantine/{broken.name}": ("corrupt", json.loads(quarantined(tmp_path, broken.name))["rows"]),
        "quarantine/unheard-of": ("quarantined", None),
        "quarantine/what": ("quarantined", None),
    }
    assert account.counted == 10 and account.balances


def quarantined(directory: Path, name: str) -> str:
    return (directory / "quarantine" / f"{name}.json").read_text()


def test_json_lines_are_not_read(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10))
    ship(tmp_path, sink=JsonLines())

    passed = inspect(tmp_path, None, None, {})

    assert passed.files == []
    assert [(each.reason, each.rows) for each in passed.account.set_aside] == [("jsonl", 10)]


# --- nothing twice ------------------------------------------------------------------------------


def test_what_is_compacted_and_still_in_ready_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    old = [grown(tmp_path, 1, 20), grown(tmp_path, 2, 10)]
    ship(tmp_path, NOW + HOUR)
    spooled(tmp_path, many(3000, 5, at=HOUR), segment=3)
    ship(tmp_path, NOW + HOUR)
    # As a compaction leaves it that was cut off before it said so.
    (compacted,) = [path for path in read(tmp_path).live if path.startswith("log/")]
    shutil.copy(tmp_path / compacted, (tmp_path / compacted).with_name("again.parquet"))
    assert all(path.exists() for path in old)

    log = SparkLog(spark, Selection(tmp_path))
    records, account = log.records, log.account

    assert seqs(records) == Counter(row["seq"] for row in rows(tmp_path))
    assert (account.files, account.shipped, account.counted, account.set_aside) == (2, 35, 35, [])


def test_files_that_change_while_they_are_read_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    paths = [grown(tmp_path, 1, 20), grown(tmp_path, 2, 300)]
    expected = seqs_of(*paths)
    log = SparkLog(spark, Selection(tmp_path))
    # The shipper compacts, and removes what it was made of.
    ship(tmp_path, NOW + HOUR, Limits(ready=0))
    ship(tmp_path, NOW + 2 * HOUR, Limits(ready=0))
    assert not any(path.exists() for path in paths)
    asked: list[Counter[int]] = []

    def ask() -> Counter[int]:
        asked.append(Counter())
        # All columns: any byte may be damaged.
        return Counter(row["seq"] for row in log.records.collect())

    assert log.persistently(ask) == expected and len(asked) == 2

    (file,) = read(tmp_path).live.values()
    content = bytearray((tmp_path / file.path).read_bytes())
    content[len(content) // 3] ^= 1
    (tmp_path / file.path).write_bytes(content)
    assert log.persistently(ask) == Counter() and len(asked) == 4
    assert [(each.path, each.reason, each.rows) for each in log.account.set_aside] == [(file.path, "unreadable", 320)]
    assert log.account.balances


# --- what is asked for --------------------------------------------------------------------------


def test_a_range_is_of_receive_times_to_the_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    spooled(tmp_path, [Sent(1, 9.999999), Sent(2, 10.0), Sent(3, 15.0), Sent(4, 19.999999), Sent(5, 20.0)])
    spooled(tmp_path, [Sent(6, 30.0), Sent(7, 31.0)], segment=2)
    ship(tmp_path)

    log = SparkLog(spark, Selection(tmp_path, START + 10, START + 20))

    assert seqs(log.records) == Counter([2, 3, 4])
    # The other file has nothing of it, and is not opened.
    assert (log.account.files, log.account.shipped, log.account.counted, log.account.in_range) == (1, 5, 5, 3)
    assert log.account.balances
    assert (log.first_us, log.last_us) == ((START + 10) * 1_000_000, (START + 20) * 1_000_000 - 1)


def test_filters_and_the_account_of_what_nobody_knows(spark: SparkSession, tmp_path: Path) -> None:
    # Of 40 numbers 30 have records, two more are of calls that had not ended when the router died; two were dropped.
    spooled(tmp_path, many(1, 30), [Sent(35), Sent(36)], given=40, dropped=2)
    spooled(tmp_path, many(1, 1), segment=3, boot=BOOT + 1)
    ship(tmp_path)
    topic = "topic-1"
    expected = [row for row in rows(tmp_path) if row["topic"] == topic]

    log = SparkLog(spark, Selection(tmp_path, where={"topic": topic}))
    records, account = log.records, log.account

    assert seqs(records) == Counter(row["seq"] for row in expected)
    assert records.schema.names == SCHEMA.names
    assert (account.shipped, account.counted, account.in_range) == (33, 33, len(expected))
    assert account.unknown == sum(row["outcome"] == schema.UNKNOWN for row in expected) > 0
    assert (account.holes, account.dropped, account.missing_segments) == (8, 2, 2)


def test_an_empty_log_has_the_columns_and_no_records(spark: SparkSession, tmp_path: Path) -> None:
    log = SparkLog(spark, Selection(tmp_path))
    assert log.records.schema.names == SCHEMA.names and log.records.isEmpty()
    assert (log.account.shipped, log.account.balances, log.first_us, log.last_us) == (0, True, None, None)


def test_what_cannot_be_asked_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="colour: expected one of router, exchange"):
        SparkLog(spark, Selection(tmp_path, where={"colour": "red"}))
    with pytest.raises(UsageError, match="no such directory"):
        SparkLog(spark, Selection(tmp_path / "none"))
    (tmp_path / "manifest.jsonl").write_text("what\n")
    with pytest.raises(ManifestDamaged):
        SparkLog(spark, Selection(tmp_path))
