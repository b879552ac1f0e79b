"""From the spool to segments: each record once, whatever happens."""

from __future__ import annotations

import errno
import json
import random
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import gevent
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gevent import subprocess

from rpcmq.latency.manifest import LogInUse, read
from rpcmq.latency.parquet import Parquet
from rpcmq.latency.retention import Limits
from rpcmq.latency.schema import as_json, rows_of
from rpcmq.latency.ship import Shipper, account
from rpcmq.latency.sinks import JsonLines, Sink
from rpcmq.log_format import read_spool
from tests.latency.logs import NOW, Killed, names, rows, ship, struck_after, times_seen
from tests.latency.spools import BOOT, Sent, blocks, head, held, many, seqs, spooled
from tests.server.daemons import COMMAND, SECONDS, environment, eventually

HOUR = 3600


def test_a_segment_has_the_records_of_its_spool_file(tmp_path: Path) -> None:
    spool = read_spool(spooled(tmp_path, many(1, 1234)))
    expected = rows_of(spool.head, list(spool))

    ship(tmp_path)

    assert rows(tmp_path) == expected
    assert names(tmp_path, "ready") == [f"7-{BOOT}-00000001.parquet"]
    assert names(tmp_path, "spool") == []


def test_the_same_as_json_lines(tmp_path: Path) -> None:
    spool = read_spool(spooled(tmp_path, many(1, 250)))
    expected = rows_of(spool.head, list(spool))

    state = ship(tmp_path, sink=JsonLines()).state

    (path,) = (tmp_path / "ready").iterdir()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["seq"] for row in found] == seqs(many(1, 250))
    assert found == [as_json(row) for row in expected] and any(row["reply_us"] for row in found)
    assert found[0]["recv_at"] == "2023-11-14T22:13:21.001000Z"
    assert state.live[f"ready/{path.name}"].rows == 250
    ship(tmp_path, NOW + 3 * HOUR, sink=JsonLines())
    assert path.exists()


def test_the_account_says_what_became_of_each_record(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 100))
    spooled(tmp_path, many(105, 96), segment=3, given=205, dropped=4, final=True)

    what = account(ship(tmp_path).state)

    assert what["records"] == {"read": 196, "written": 196, "quarantined": 0, "damaged": 0, "retired": 0, "live": 196}
    (boot,) = what["boots"]
    assert boot == {
        "router": "r1", "router_id": 7, "boot": BOOT, "records": 196, "given": 205, "holes": 9, "dropped": 4,
        "in_flight": 0, "missing_segments": 1, "final": True,
    }  # fmt: skip


def test_a_file_without_records_leaves_no_segment(tmp_path: Path) -> None:
    spooled(tmp_path, given=17)

    state = ship(tmp_path).state

    assert names(tmp_path, "ready") == names(tmp_path, "spool") == []
    assert state.boots[7, BOOT].holes == 17


# --- routers that died --------------------------------------------------------------------------


def test_the_file_that_a_router_is_writing_is_left_alone(tmp_path: Path) -> None:
    path = spooled(tmp_path, many(1, 100), cut=10**9)

    with held(path):
        ship(tmp_path)

    assert path.exists() and not rows(tmp_path)
    ship(tmp_path)
    assert not path.exists() and len(rows(tmp_path)) == 100


@pytest.mark.parametrize("sink", [Parquet(), JsonLines()], ids=["parquet", "jsonl"])
def test_of_the_file_that_it_was_writing_all_is_shipped_up_to_where_it_was_cut_off(tmp_path: Path, sink: Sink) -> None:
    whole = len(head()) + len(b"".join(blocks(many(1, 300))))
    spooled(tmp_path, many(1, 300), cut=whole - 50)

    state = ship(tmp_path, sink=sink).state

    # Blocks have a hundred records each.
    assert state.rows_written == 200
    assert state.bytes_torn > 100
    assert state.boots[7, BOOT].holes == 100
    assert not names(tmp_path, "spool") and not names(tmp_path, "quarantine")


def test_wherever_a_file_was_cut_off_no_record_is_wrong(tmp_path: Path) -> None:
    data = head() + b"".join(blocks(many(1, 150)))
    for cut in [*range(len(head()) + 20), *range(len(head()) + 20, len(data), 397)]:
        directory = tmp_path / str(cut)
        spooled(directory, many(1, 150), cut=cut)
        ship(directory)
        assert [row["seq"] for row in rows(directory)] in ([], seqs(many(1, 100)), seqs(many(1, 150))), cut
        # A file that has not even a whole head says nothing of any router.
        assert bool(names(directory, "quarantine")) == (cut < len(head())), cut


@pytest.mark.parametrize("sink", [Parquet(), JsonLines()], ids=["parquet", "jsonl"])
def test_calls_in_flight_when_it_died_are_unknown_once_it_is_back(tmp_path: Path, sink: Sink) -> None:
    in_flight = [Sent(901), Sent(902), Sent(903)]
    spooled(tmp_path, many(1, 100), in_flight, given=903)
    spooled(tmp_path, [Sent(902)], segment=2, cut=10**9)
    state = ship(tmp_path, sink=sink).state
    # Nobody knows yet that this life is over: the router may only be slow.
    assert sorted(state.boots[7, BOOT].in_flight) == [901, 903]

    spooled(tmp_path, many(1, 5), boot=BOOT + 1)
    state = ship(tmp_path, sink=sink).state

    assert not state.boots[7, BOOT].in_flight
    assert state.rows_written == 100 + 1 + 2 + 5
    if sink.suffix == ".parquet":
        unknown = [row for row in rows(tmp_path) if row["outcome"] == "unknown"]
        assert [(row["seq"], row["boot"], row["topic"]) for row in unknown] == [
            (901, BOOT, "topic-1"),
            (903, BOOT, "topic-3"),
        ]
        assert {row["total_us"] for row in unknown} == {None}
        assert set(times_seen(tmp_path).values()) == {1}
    assert ship(tmp_path, sink=sink).state.rows_written == state.rows_written


def test_a_live_router_of_a_later_life_tells_too(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10), [Sent(901)])
    with held(spooled(tmp_path, boot=BOOT + 1, cut=10**9)):
        state = ship(tmp_path).state

    assert state.rows_written == 11


def test_routers_of_one_name_are_told_apart_by_their_number(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10), [Sent(901)])
    spooled(tmp_path, many(1, 10), boot=BOOT + 1, router_id=8)
    # The first one is alive: what it had in flight may end yet.
    assert ship(tmp_path).state.boots[7, BOOT].in_flight

    spooled(tmp_path, [Sent(901)], segment=2)

    assert ship(tmp_path).state.rows_written == 21


@pytest.mark.parametrize("sink", [Parquet(), JsonLines()], ids=["parquet", "jsonl"])
def test_a_completion_that_was_dropped_is_not_in_flight_when_the_router_died(tmp_path: Path, sink: Sink) -> None:
    """The disk was full when the call ended, and its router ended later, in good order."""
    spooled(tmp_path, many(1, 10), [Sent(901), Sent(902)], given=902)
    spooled(tmp_path, [Sent(902)], segment=2, dropped=1, final=True)
    spooled(tmp_path, many(1, 5), boot=BOOT + 1)
    noted: list[tuple[str, str]] = []

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        noted.append((event, text))

    state = ship(tmp_path, sink=sink, note=note).state

    assert state.rows_written == 10 + 1 + 5
    assert not list((tmp_path / "ready").glob("*unknown*"))
    assert noted == [("no record", "r1: 1 long calls have no record: it was dropped, or its file set aside")]
    assert not state.boots[7, BOOT].in_flight and state.boots[7, BOOT].dropped == 1
    assert ship(tmp_path, sink=sink, note=note).state.rows_written == state.rows_written
    assert len(noted) == 1


def test_in_a_life_that_had_to_drop_records_unknown_says_so(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10), [Sent(901)], dropped=3)
    spooled(tmp_path, many(1, 5), boot=BOOT + 1)
    noted: list[str] = []

    ship(tmp_path, note=lambda level, event, text, fields: noted.append(text))

    assert noted == [
        "r1: 1 calls were in flight when it died: unknown (or ended before: 3 records of that life were dropped)"
    ]


# --- files that cannot be trusted ---------------------------------------------------------------


def damaged(path: Path, what: str) -> None:
    data = bytearray(path.read_bytes())
    match what:
        case "foreign":
            data = bytearray(b"PK\x03\x04 is something else")
        case "version":
            data[9] = 99
        case "truncated":
            del data[len(data) // 2 :]
        case "truncated seal":
            del data[-3:]
        case "corrupt":
            data[len(data) // 2] ^= 1
        case "corrupt head":
            data[20] ^= 1
        case "empty":
            data.clear()
    path.write_bytes(data)


@pytest.mark.parametrize("sink", [Parquet(), JsonLines()], ids=["parquet", "jsonl"])
@pytest.mark.parametrize(
    "what", ["foreign", "version", "truncated", "truncated seal", "corrupt", "corrupt head", "empty"]
)
def test_a_file_that_cannot_be_trusted_is_set_aside_with_the_reason(tmp_path: Path, what: str, sink: Sink) -> None:
    path = spooled(tmp_path, many(1, 400))
    spooled(tmp_path, many(401, 100), segment=2)
    damaged(path, what)

    state = ship(tmp_path, sink=sink).state

    assert names(tmp_path, "quarantine") == [path.name, f"{path.name}.json"]
    reason = json.loads((tmp_path / "quarantine" / f"{path.name}.json").read_text())
    expected = what.partition(" ")[0].replace("empty", "truncated")
    assert reason["reason"] == expected and reason["file"] == path.name
    assert (state.rows_written, state.files_quarantined) == (100, 1)
    assert account(state)["records"]["read"] == 100 + reason["rows"]
    assert ship(tmp_path, sink=sink).state.files_quarantined == 1


def test_any_byte_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    good = spooled(tmp_path, many(1, 20)).read_bytes()
    for place in range(0, len(good), 41):
        directory = tmp_path / str(place)
        path = spooled(directory, many(1, 20))
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        assert ship(directory).state.rows_written == 0, place
        assert path.name in names(directory, "quarantine"), place


def test_a_second_file_with_the_number_of_another_is_set_aside(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 10))
    ship(tmp_path)
    path = spooled(tmp_path, many(1, 11))

    state = ship(tmp_path).state

    assert state.rows_written == 10
    assert names(tmp_path, "quarantine") == [path.name, f"{path.name}.json"]


def test_a_number_that_occurs_twice_is_no_record(tmp_path: Path) -> None:
    spooled(tmp_path, [Sent(1), Sent(2), Sent(1)])

    assert ship(tmp_path).state.files_quarantined == 1


def test_a_segment_that_is_not_what_was_written_is_set_aside_before_it_is_compacted(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 100))
    spooled(tmp_path, many(101, 50), segment=2)
    ship(tmp_path)
    path = tmp_path / "ready" / names(tmp_path, "ready")[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)

    state = ship(tmp_path, NOW + 2 * HOUR).state

    assert names(tmp_path, "quarantine") == [path.name, f"{path.name}.json"]
    assert state.rows_damaged == 100
    assert len(rows(tmp_path)) == 50


def test_a_segment_copied_under_another_number_is_counted_once(tmp_path: Path) -> None:
    spooled(tmp_path, many(1, 100))
    ship(tmp_path)
    original = tmp_path / "ready" / names(tmp_path, "ready")[0]
    for number in (0, 99):
        shutil.copyfile(original, original.with_name(f"7-{BOOT}-{number:08}.parquet"))
    (tmp_path / "log/v1/dt=2023-11-14/hour=22").mkdir(parents=True)
    shutil.copyfile(original, tmp_path / f"log/v1/dt=2023-11-14/hour=22/7-{BOOT}-00000099.parquet")
    noted: list[tuple[str, dict[str, Any]]] = []

    state = ship(tmp_path, note=lambda level, event, text, fields: noted.append((event, fields))).state

    assert (state.rows_written, state.boots[7, BOOT].rows) == (100, 100)
    assert set(times_seen(tmp_path).values()) == {1}
    assert [event for event, _ in noted] == ["quarantine"] * 3
    assert sorted(fields["reason"] for _, fields in noted) == ["duplicate", "duplicate", "foreign"]
    reason = json.loads((tmp_path / "quarantine" / f"7-{BOOT}-00000000.parquet.json").read_text())
    assert reason["text"] == f"has 100 records that are in ready/{original.name}"


@pytest.mark.parametrize("compacted", [False, True])
def test_a_copy_is_no_record_where_the_manifest_is_lost(tmp_path: Path, compacted: bool) -> None:
    spooled(tmp_path, many(1, 100))
    ship(tmp_path)
    if compacted:
        ship(tmp_path, NOW + 30 * HOUR)
        ship(tmp_path, NOW + 60 * HOUR, Limits(ready=0))
    (original,) = tmp_path.rglob("*.parquet")
    shutil.copyfile(original, original.with_name("0-copy.parquet"))
    for name in ("manifest.jsonl", "totals.json"):
        (tmp_path / name).unlink()

    state = ship(tmp_path, NOW + 60 * HOUR).state

    assert set(times_seen(tmp_path).values()) == {1}
    assert len(rows(tmp_path)) == 100 == state.rows_written
    (aside,) = (tmp_path / "quarantine").glob("*.json")
    assert json.loads(aside.read_text())["reason"] == "duplicate"


@pytest.mark.parametrize(
    "source",
    [None, "", "[]", '{"name": 1}', '{"name": "a", "crc32": "b"}'],
    ids=["no Parquet", "foreign", "no source", "another source", "source of wrong types"],
)
def test_foreign_parquet_is_set_aside_with_the_reason(tmp_path: Path, source: str | None) -> None:
    spooled(tmp_path, many(1, 100))
    ship(tmp_path)
    path = tmp_path / "ready" / "export.parquet"
    if source is None:
        path.write_text("PAR1, more or less")
    else:
        pq.write_table(pa.table({"a": [1, 2]}, metadata={"rpcmq:source": source} if source else None), path)
    noted: list[str] = []

    state = ship(tmp_path, note=lambda level, event, text, fields: noted.append(event)).state

    assert noted == ["quarantine"]
    assert json.loads((tmp_path / "quarantine" / "export.parquet.json").read_text())["reason"] == "foreign"
    assert state.rows_written == 100 == len(rows(tmp_path))


# --- kills --------------------------------------------------------------------------------------


def in_all_stages(directory: Path) -> Counter[tuple[str, int, int]]:
    """A log with something to do in every step; which records it is to have in the end."""
    spooled(directory, many(1, 20))
    ship(directory)
    spooled(directory, many(21, 20), [Sent(901)], segment=2)
    spooled(directory, many(41, 20), segment=3, cut=10**9)
    spooled(directory, many(1, 20), boot=BOOT + 1)
    damaged(spooled(directory, many(21, 20), boot=BOOT + 1, segment=2), "corrupt")
    (directory / "spool" / "readme.txt").write_text("not a spool file")
    first = [("r1", BOOT, seq) for seq in [*range(1, 61), 901]]
    return Counter(first + [("r1", BOOT + 1, seq) for seq in range(1, 21)])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_before_any_change_of_a_file_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Ship, compact and retire; each step of each is the last one once."""
    limits = Limits(ready=10)
    for changes in range(10_000):
        directory = tmp_path / str(changes)
        expected = in_all_stages(directory)
        times = [NOW, NOW + HOUR, NOW + HOUR + 60]
        with struck_after(changes, Killed()) as executioner:
            for now in times:
                ship(directory, now, limits)
        seen = times_seen(directory)
        assert not seen - expected, changes
        for now in times:
            state = ship(directory, now, limits).state
            assert not times_seen(directory) - expected, changes
        assert times_seen(directory) == expected, changes
        assert state.rows_written == expected.total(), changes
        assert state.files_quarantined == 2, changes
        assert len(names(directory, "quarantine")) == 4, changes
        assert names(directory, "ready") == names(directory, "spool") == [], changes
        assert names(directory, "log") and not any(name.startswith(".") for name in names(directory, "")[1:]), changes
        if not executioner.struck:
            break
    assert changes > 50


def has_got_to(directory: Path, lines: int) -> bool:
    return read(directory).lines >= lines or not names(directory, "spool")


@pytest.mark.fault
@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_processes_that_are_killed_at_work_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(4)
    for segment in range(1, 61):
        spooled(tmp_path, many(segment * 300, 300), segment=segment)
        if segment == 20:
            # Of an hour that is over: to be compacted.
            ship(tmp_path, time() - 2 * HOUR)
    expected = Counter(("r1", BOOT, seq) for seq in range(300, 61 * 300))
    command = [*COMMAND, "ship", "--log", str(tmp_path), "--interval", "0.05", "--log-level", "error"]
    kills = 0
    while names(tmp_path, "spool"):
        process = subprocess.Popen(command, env=environment())
        eventually(partial(has_got_to, tmp_path, read(tmp_path).lines + chance.randint(1, 4)))
        # Anywhere in what comes next.
        gevent.sleep(chance.uniform(0, 0.04))
        process.kill()
        process.wait(SECONDS)
        kills += 1
        assert not times_seen(tmp_path) - expected
    ship(tmp_path, time())
    assert times_seen(tmp_path) == expected
    assert names(tmp_path, "log")
    assert kills > 3


def test_only_one_process_ships_a_log(tmp_path: Path) -> None:
    shipper = Shipper(tmp_path, Parquet())
    with pytest.raises(LogInUse):
        Shipper(tmp_path, Parquet())
    shipper.close()
    ship(tmp_path)


# --- a disk that fails --------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_disk_that_fails_at_any_change_costs_nothing_but_time(tmp_path: Path) -> None:
    for changes in range(10_000):
        directory = tmp_path / str(changes)
        expected = in_all_stages(directory)
        shipper = Shipper(directory, Parquet(), clock=lambda: NOW)
        with struck_after(changes, OSError(errno.ENOSPC, "no room")) as executioner:
            shipper.run_once()
        shipper.run_once()
        shipper.close()
        assert times_seen(directory) == expected, changes
        assert shipper.state.rows_written == read(directory).rows_written == expected.total()
        if not executioner.struck:
            break
    assert changes > 30
