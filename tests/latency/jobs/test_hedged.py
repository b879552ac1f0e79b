"""Calls that several servers had: what the report says of them, by both engines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.latency_report import report_command
from rpcmq.cli.options import State
from rpcmq.errors import Outcome
from rpcmq.latency.analysis.hedging import COUNTS, HedgedCalls, total_of
from rpcmq.latency.jobs.batch import CELLS, report, report_of_cells
from rpcmq.latency.jobs.cells import CellsDamaged
from rpcmq.latency.jobs.engine import Engine
from rpcmq.latency.jobs.local import Local
from rpcmq.latency.report import summary
from rpcmq.latency.selection import Selection
from rpcmq.log_format import NOT_REPORTED
from tests.latency.hedges import Delivery, hedged_log, lost, won_late
from tests.latency.spools import BOOT


def numbers(each: HedgedCalls) -> dict[str, Any]:
    return {name: getattr(each, name) for name in COUNTS}


def hedged(engine: Engine, selection: Selection) -> list[HedgedCalls]:
    with engine.log(selection) as records:
        return records.hedged()


@pytest.fixture(scope="module", params=["duckdb", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "duckdb":
        return Local()
    from rpcmq.latency.jobs.spark import Spark

    return Spark(request.getfixturevalue("spark"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ``show`` 100 calls that one server had and ten that two had; of ``list`` one each; and one that three had."""
    records = [Delivery(number, "call", 0.01) for number in range(1, 101)]
    for number in range(5):
        records += won_late(200 + number, took=0.06, first=1.0 + number / 10)
    records += won_late(300, outcome=Outcome.OK)
    records += won_late(301, outcome=Outcome.OK, error="differs")
    records += won_late(302, outcome=Outcome.REMOTE_ERROR, error="differs: KeyError")
    # The first was lost, so that the other one's answer was later than its end.
    records += won_late(303, took=0.5, first=0.2, outcome=Outcome.LINK_LOST, handler_us=NOT_REPORTED)
    records += lost(304)
    records += [each._replace(method="list", at=2.0) for each in [Delivery(400, "call", 0.1), *lost(401, took=0.0)]]
    records += [*lost(500), Delivery(500, "hedge", 0.07, Outcome.CANCELLED, server=1)]
    return hedged_log(tmp_path_factory.mktemp("log") / "log", records)


@pytest.fixture(scope="module")
def cells(engine: Engine, log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cells")
    assert report(engine, Selection(log), out, window_seconds=1).hedged
    return out / CELLS


def test_what_further_servers_bought_and_cost(engine: Engine, log: Path, tmp_path: Path) -> None:
    made = report(engine, Selection(log), tmp_path)
    show, other = made.hedged
    assert dict(show.key) == {"exchange": "", "topic": "catalogue", "method": "show"}
    assert numbers(show) == {
        "calls": 111, "hedged": 11, "extra": 12, "won": 9, "not_begun": 2, "ran_on": 6, "finished": 3, "differing": 2,
        "failed": 1, "extra_us": show.extra_us,
    }  # fmt: skip
    # Five of the first took 1 to 1.4 s, three 1 s, one was lost after 0.2; and there were those that won nothing.
    assert show.extra_us == pytest.approx(6.0e6 + 3.0e6 + 0.2e6 + 2 * 0.011e6 + 0.07e6, rel=0.01)
    # The one whose first server was lost is no gain of time.
    assert (show.answered.count, show.first.count, show.gained.count) == (8, 8, 8)
    assert show.answered.max == pytest.approx(60_000, abs=2)
    assert show.first.min == pytest.approx(1e6, abs=2)
    assert show.first.max == pytest.approx(1.4e6, abs=2)
    assert show.gained.sum == pytest.approx(9.0e6 - 8 * 0.06e6, abs=20)
    assert numbers(other) == dict.fromkeys(COUNTS, 0) | {
        "calls": 2, "hedged": 1, "extra": 1, "not_begun": 1, "extra_us": other.extra_us,
    }  # fmt: skip
    assert [each.count for each in (other.answered, other.first, other.gained)] == [0, 0, 0]
    # They are no calls: the other figures are without them.
    assert made.whole.records == 113


def test_without_any_there_is_nothing(engine: Engine, tmp_path: Path) -> None:
    log = hedged_log(tmp_path / "log", [Delivery(number, "call", 0.01) for number in range(1, 20)])
    assert hedged(engine, Selection(log)) == []


def test_where_the_first_server_always_won_nothing_was_gained(engine: Engine, tmp_path: Path) -> None:
    records = [record for number in range(1, 20) for record in lost(number)]
    (show,) = hedged(engine, Selection(hedged_log(tmp_path / "log", records)))
    assert (show.hedged, show.extra, show.won, show.not_begun, show.gained.count) == (19, 19, 0, 19, 0)


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ({"where": {"method": "list"}}, [1]),
        ({"where": {"client": "nobody"}}, []),
        ({"since": BOOT / 1000 + 1.5}, [1]),
        ({"until": BOOT / 1000 + 1.5}, [11]),
        ({"where": {"server": "node-0"}}, [1, 11]),
        ({"where": {"server": "node-1"}}, [0]),
        ({"where": {"server": "nobody"}}, []),
        # What the loser has is another value than the call's.
        ({"where": {"outcome": "ok"}}, []),
        ({"where": {"kind": "call"}}, []),
    ],
    ids=["method", "nothing", "later", "earlier", "winner", "loser", "nobody", "outcome", "kind"],
)
def test_those_of_a_selection(engine: Engine, log: Path, chosen: dict[str, Any], numbers: list[int]) -> None:
    assert [each.hedged for each in hedged(engine, Selection(log, **chosen))] == numbers


def test_the_end_of_a_call_that_is_not_in_the_log_is_not_made_up(engine: Engine, tmp_path: Path) -> None:
    records = [each for each in won_late(7) if each.kind != "call"]
    (show,) = hedged(engine, Selection(hedged_log(tmp_path / "log", [*records, Delivery(9, "call", 1)])))
    assert (show.calls, show.hedged, show.extra, show.won, show.gained.count) == (1, 1, 1, 0, 0)


def figures(found: list[HedgedCalls]) -> list[Any]:
    """All that is known of each method, as values that can be compared."""
    durations = ("answered", "first", "gained")
    return [(each.key, numbers(each), [getattr(each, name).to_dict() for name in durations]) for each in found]


def test_a_server_is_told_of_by_what_it_did(engine: Engine, log: Path) -> None:
    of = {name: hedged(engine, Selection(log, where={"server": name})) for name in ("node-0", "node-1", "node-2")}
    other, show = of["node-0"]
    # It ended all calls, nine of them though another one had them first, and no delivery of its own was in vain.
    assert numbers(show) == dict.fromkeys(COUNTS, 0) | {"calls": 111, "hedged": 11, "won": 9}
    assert (show.answered.count, show.gained.count) == (8, 8)
    assert numbers(other) == dict.fromkeys(COUNTS, 0) | {"calls": 2, "hedged": 1}
    (show,) = of["node-1"]
    assert numbers(show) == dict.fromkeys(COUNTS, 0) | {
        "extra": 10, "ran_on": 6, "finished": 3, "differing": 2, "failed": 1, "extra_us": show.extra_us,
    }  # fmt: skip
    assert show.extra_us == pytest.approx(9.2e6 + 0.07e6, rel=0.01)
    assert [(each.extra, each.not_begun) for each in of["node-2"]] == [(1, 1), (2, 2)][::-1]
    # Servers together are the whole.
    whole = total_of(hedged(engine, Selection(log)))
    parts = total_of(each for found in of.values() for each in found)
    assert numbers(parts) == numbers(whole)
    assert parts.gained.to_dict() == whole.gained.to_dict()


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"where": {"method": "list"}},
        {"where": {"server": "node-1"}},
        {"where": {"client": "api", "topic": "catalogue"}},
        {"where": {"client": "nobody"}},
    ],
    ids=["all", "method", "server", "client and topic", "nothing"],
)
def test_cells_say_the_same_as_the_log(engine: Engine, log: Path, cells: Path, chosen: dict[str, Any]) -> None:
    found = figures(hedged(engine, Selection(log, **chosen)))
    assert bool(found) == (chosen.get("where", {}).get("client") != "nobody")
    made = report_of_cells(engine, Selection(cells, **chosen))
    assert figures(made.hedged) == found
    assert (made.hedged_left_out, made.server) == ("", chosen.get("where", {}).get("server"))


def test_cells_of_a_range_and_of_several_runs(log: Path, tmp_path: Path) -> None:
    engine = Local()
    whole = figures(report(engine, Selection(log), tmp_path / "whole", window_seconds=1).hedged)
    middle = BOOT / 1000 + 2.0
    for name, since, until in (("early", None, middle), ("late", middle, None)):
        report(engine, Selection(log, since, until), tmp_path / name, window_seconds=1)
        (part,) = report_of_cells(engine, Selection(tmp_path / "whole" / CELLS, since, until)).hedged
        assert part.key["method"] == {"early": "show", "late": "list"}[name]
        assert figures([part]) == figures(report_of_cells(engine, Selection(tmp_path / name / CELLS)).hedged)
    both = report_of_cells(engine, Selection(tmp_path / "early" / CELLS), tmp_path / "late" / CELLS)
    assert figures(both.hedged) == whole


def test_cells_of_a_log_in_which_nothing_was_hedged_say_so(engine: Engine, tmp_path: Path) -> None:
    log = hedged_log(tmp_path / "log", [Delivery(number, "call", 0.01) for number in range(1, 20)])
    report(engine, Selection(log), tmp_path)
    made = report_of_cells(engine, Selection(tmp_path / CELLS))
    assert (made.hedged, made.hedged_left_out, made.whole.records) == ([], "", 19)


def test_cells_that_do_not_have_them_say_that(log: Path, tmp_path: Path) -> None:
    engine = Local()
    report(engine, Selection(log, until=BOOT / 1000 + 1.5), tmp_path / "old")
    report(engine, Selection(log, since=BOOT / 1000 + 1.5), tmp_path / "new")
    rmtree(tmp_path / "old" / CELLS / "_hedged")
    old, new = (Selection(tmp_path / name / CELLS) for name in ("old", "new"))
    made = report_of_cells(engine, old)
    assert made.hedged == [] and made.hedged_left_out.startswith("these cells do not have them")
    assert made.whole.records == 111
    assert "Calls that several servers had are left out: these cells" in " ".join(summary(made).split())
    both = report_of_cells(engine, old, new.path)
    assert [each.hedged for each in both.hedged] == [1]
    assert both.hedged_left_out.startswith("1 of 2 directories of these cells do not have them")
    unlike = report_of_cells(engine, replace(new, where={"outcome": "ok"}))
    assert unlike.hedged == [] and unlike.hedged_left_out.startswith("outcome select")


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_damaged_cells_of_them_are_refused(log: Path, tmp_path: Path, damage: str) -> None:
    report(Local(), Selection(log), tmp_path)
    path = tmp_path / CELLS / "_hedged" / "counts.parquet"
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        pq.write_table(pa.table({"window": [1]}), path)
    with pytest.raises(CellsDamaged, match=re.escape(str(path))):
        report_of_cells(Local(), Selection(tmp_path / CELLS))


def test_readers_of_parquet_pass_over_them(log: Path, tmp_path: Path) -> None:
    report(Local(), Selection(log), tmp_path)
    cells = tmp_path / CELLS
    assert sum(pq.read_table(cells)["records"].to_pylist()) == 113
    assert duckdb.sql(f"SELECT sum(records) FROM '{cells}/*.parquet'").fetchall() == [(113,)]


def test_the_command_says_what_a_server_did(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--log", str(log), "--out", str(tmp_path), "--engine", "duckdb", "--server", "node-1"]
    assert (report_command.main(arguments, obj=State(None), standalone_mode=False) or 0) == ExitCode.OK
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Of calls that several servers had, node-1 ended 0, 0 of them though another one had them first. It had 10 more"
        " that it did not answer, for 9.2"
    ) in printed
    assert "Of one server:" in (tmp_path / "report.html").read_text("utf-8")


def test_the_command_says_it(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--log", str(log), "--out", str(tmp_path), "--engine", "duckdb"]
    assert (report_command.main(arguments, obj=State(None), standalone_mode=False) or 0) == ExitCode.OK
    printed = " ".join(capsys.readouterr().out.split())
    assert "Several servers had 12 calls" in printed and "answered 9 of them" in printed
    assert 'id="hedged"' in (tmp_path / "report.html").read_text("utf-8")
