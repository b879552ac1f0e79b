"""Calls that several servers had: what the report says of them, by both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.latency_report import report_command
from rpcmq.cli.options import State
from rpcmq.errors import Outcome
from rpcmq.latency.analysis.hedging import COUNTS, HedgedCalls
from rpcmq.latency.jobs.batch import report
from rpcmq.latency.jobs.engine import Engine
from rpcmq.latency.jobs.local import Local
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
        # What the loser has is another value than the call's.
        ({"where": {"server": "node-0"}}, []),
        ({"where": {"outcome": "ok"}}, []),
        ({"where": {"kind": "call"}}, []),
    ],
    ids=["method", "nothing", "later", "earlier", "server", "outcome", "kind"],
)
def test_those_of_a_selection(engine: Engine, log: Path, chosen: dict[str, Any], numbers: list[int]) -> None:
    assert [each.hedged for each in hedged(engine, Selection(log, **chosen))] == numbers


def test_the_end_of_a_call_that_is_not_in_the_log_is_not_made_up(engine: Engine, tmp_path: Path) -> None:
    records = [each for each in won_late(7) if each.kind != "call"]
    (show,) = hedged(engine, Selection(hedged_log(tmp_path / "log", [*records, Delivery(9, "call", 1)])))
    assert (show.calls, show.hedged, show.extra, show.won, show.gained.count) == (1, 1, 1, 0, 0)


def test_the_command_says_it(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--log", str(log), "--out", str(tmp_path), "--engine", "duckdb"]
    assert (report_command.main(arguments, obj=State(None), standalone_mode=False) or 0) == ExitCode.OK
    printed = " ".join(capsys.readouterr().out.split())
    assert "Several servers had 12 calls" in printed and "answered 9 of them" in printed
    assert 'id="hedged"' in (tmp_path / "report.html").read_text("utf-8")
