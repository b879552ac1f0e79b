"""The inputs of the commands, with Spark, and two of them from end to end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.latency_compare import compare_command
from rpcmq.cli.latency_trace import trace_command
from rpcmq.cli.options import State
from rpcmq.latency.analysis.series import METHOD
from rpcmq.latency.jobs.engine import Engine, Level, of_methods
from rpcmq.latency.jobs.inputs import opened
from rpcmq.latency.selection import Selection
from tests.latency.logs import rows, ship
from tests.latency.spools import BOOT, Sent, many, spooled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 600
START = BOOT / 1000


def counted(found: Any, by: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    return Counter({tuple(each.key[name] for name in by): each.records for each in found})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two minutes, some of them of calls whose end nobody knows."""
    directory = tmp_path_factory.mktemp("log")
    spooled(directory, [*many(1, COUNT // 2), *many(COUNT // 2 + 1, COUNT // 2, at=61.0)], segment=1)
    ship(directory)
    return directory


def test_cells_of_a_log_answer_as_its_records_do(engine: Engine, log: Path) -> None:
    expected = rows(log)
    with opened(engine, Selection(log)) as found:
        assert (found.account([]).counted, len(found.methods)) == (
            COUNT,
            len({(r["topic"], r["method"]) for r in expected}),
        )
        # A log of a minute has windows of a second.
        assert (found.window_seconds, found.coarse_window) == (1, 2)
        seen = [int(r["recv_at"] // 1e6) for r in expected]
        assert (found.begin, found.end) == (min(seen), max(seen) + 1)
        wanted = {
            "methods": Level(METHOD),
            "windows": Level((), 60),
            "some": Level((*METHOD, "server"), 60, of_methods(found.methods[:2])),
            "none": Level(METHOD, only=of_methods([])),
        }
        answered = found.cells.series(wanted)
        assert counted(answered["methods"], METHOD) == Counter(tuple(r[name] for name in METHOD) for r in expected)
        assert {each.window for each in answered["windows"]} == {second // 60 * 60 for second in seen}
        assert sum(each.records for each in answered["windows"]) == COUNT
        busiest = sorted(answered["methods"], key=lambda each: -each.total.sum)[:2]
        assert found.methods[:2] == [each.key for each in busiest]
        assert sum(each.records for each in answered["some"]) == sum(each.records for each in busiest)
        assert [each.window for each in answered["some"]] == sorted(each.window or 0 for each in answered["some"])
        assert answered["none"] == []

        calls, newest = found.answered_calls()
        ok = [r for r in expected if (r["kind"], r["outcome"]) == ("call", "ok")]
        assert counted(calls, METHOD) == Counter(tuple(r[name] for name in METHOD) for r in ok)
        for name, end in newest.items():
            last = max(r["recv_at"] for r in ok if tuple(r[part] for part in METHOD) == name) / 1e6
            assert end - found.window_seconds <= last < end


def test_a_selection_is_of_time_and_values(engine: Engine, log: Path) -> None:
    with opened(engine, Selection(log, until=START + 30, where={"topic": "topic-1"})) as found:
        expected = [r for r in rows(log) if r["recv_at"] < (START + 30) * 1e6 and r["topic"] == "topic-1"]
        assert counted(found.cells.series({"": Level(METHOD)})[""], METHOD) == Counter(
            tuple(r[name] for name in METHOD) for r in expected
        )
    with opened(engine, Selection(log, since=START + 3600)) as found:
        assert (found.methods, found.begin, found.end) == ([], 0, 0)


def test_stored_cells_answer_as_the_log_does(engine: Engine, log: Path, tmp_path: Path) -> None:
    with engine.log(Selection(log)) as records:
        records.make_cells(1, tmp_path / "cells")
    with opened(engine, Selection(tmp_path / "cells", where={"topic": "topic-2"})) as found:
        assert (found.account([]).counted, found.records, found.window_seconds) == (COUNT, None, 1)
        assert found.unknown(5) == []
        expected = [r for r in rows(log) if r["topic"] == "topic-2"]
        assert counted(found.cells.series({"": Level(METHOD)})[""], METHOD) == Counter(
            tuple(r[name] for name in METHOD) for r in expected
        )


def test_compare_of_stored_cells_says_how_many_records_are_in_range(
    engine: Engine, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = tmp_path / "cells"
    with engine.log(Selection(log)) as records:
        records.make_cells(1, cells)
    assert run(compare_command, str(cells), f"{cells}@{START:.0f}..{START + 30:.0f}", "--json") == ExitCode.OK
    what = json.loads(capsys.readouterr().out)
    accounts = [what[side]["account"] for side in "ab"]
    first = [r for r in rows(log) if r["recv_at"] < (START + 30) * 1e6]
    assert [account["counted"] for account in accounts] == [COUNT, COUNT]
    assert [account["in_range"] for account in accounts] == [COUNT, len(first)]
    assert run(compare_command, str(cells), str(cells)) == ExitCode.OK
    assert capsys.readouterr().out.count(f"{COUNT} in range") == 2


def test_a_trace_is_found_by_either_id(engine: Engine, log: Path) -> None:
    row = next(row for row in rows(log) if row["trace_id"])
    by_trace, account = engine.trace(Selection(log), row["trace_id"], 10)
    assert by_trace == [row]
    assert account.counted == COUNT
    id = f"{row['origin_router']}:{row['origin_link']}:{row['origin_seq']}"
    assert row in engine.trace(Selection(log), id, 10)[0]


def run(command: click.Command, *arguments: str) -> int:
    return command.main(arguments, obj=State(None), standalone_mode=False) or 0


def test_compare_and_trace_from_end_to_end(
    spark: SparkSession, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The same calls with ten times the time at the server.
    slow = [Sent(s.seq, s.at, s.queued, s.served * 10, s.outcome) for s in many(1, 12_000)]
    fast = [Sent(s.seq, s.at, s.queued, s.served, s.outcome) for s in many(1, 12_000)]
    for name, records in (("slow", slow), ("fast", fast)):
        spooled(tmp_path / name, records)
        ship(tmp_path / name)

    assert (
        run(compare_command, str(tmp_path / "fast"), str(tmp_path / "slow"), "--fail-if", "p99 > +100%", "--json") == 11
    )
    what = json.loads(capsys.readouterr().out)
    assert what["limits"][0]["checked"] == len(what["limits"][0]["exceeded"]) == 35
    assert run(compare_command, str(tmp_path / "slow"), str(tmp_path / "fast"), "--fail-if", "p99 > +1%") == ExitCode.OK
    assert "quicker" in capsys.readouterr().out

    row = next(row for row in rows(log) if row["trace_id"])
    assert run(trace_command, row["trace_id"], "--log", str(log)) == ExitCode.OK
    assert f"{row['topic']}.{row['method']}" in capsys.readouterr().out
