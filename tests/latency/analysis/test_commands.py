"""The commands that ask a log, from options to text; an engine's part is played by series that are there already."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.latency_compare import compare_command
from rpcmq.cli.latency_policy import policy_command
from rpcmq.cli.latency_report import report_command
from rpcmq.cli.latency_trace import trace_command
from rpcmq.cli.latency_why import why_command
from rpcmq.cli.options import State
from rpcmq.errors import NotInstalled, RpcError, UsageError
from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.series import METHOD, Series, merged
from rpcmq.latency.jobs.engine import Level, Only
from rpcmq.latency.policy import read_policy
from rpcmq.latency.selection import Selection
from tests.latency.analysis.samples import lognormal, series
from tests.latency.analysis.test_waterfall import row
from tests.latency.logs import ship
from tests.latency.spools import many, spooled

Run = Callable[..., tuple[int, str]]
BEGIN = 1_700_000_040


class FakeInput:
    """Cells of which each window, method, server and outcome is a series."""

    coarse_window = window_seconds = 60

    def __init__(self, cells: list[Series], unknown: list[dict[str, Any]]) -> None:
        self.cells = self
        self._cells = cells
        self._unknown = unknown
        records = sum(each.records for each in cells)
        self._account = Account(files=1, shipped=records, counted=records, in_range=records, unknown=len(unknown))
        self.methods = [each.key for each in sorted(merged(cells, METHOD), key=lambda each: -each.total.sum)]

    def account(self, selected: Sequence[Series]) -> Account:
        return self._account

    def series(self, wanted: Mapping[str, Any]) -> dict[str, list[Series]]:
        return {name: self._of(each.by, each.window_seconds, each.only) for name, each in wanted.items()}

    def for_findings(self) -> dict[str, Level]:
        return {
            "methods": Level(METHOD),
            "windows": Level((), 60),
            "method windows": Level(METHOD, 60),
            "servers": Level((*METHOD, "server")),
        }

    def _of(self, by: Sequence[str], window_seconds: int | None, only: Only | None) -> list[Series]:
        cells = [e for e in self._cells if only is None or tuple(e.key[name] for name in METHOD) in only.values]
        return merged(cells, by, windows=window_seconds is not None)

    def raised(self) -> list[ErrorCount]:
        methods = merged(self._cells, METHOD)
        failed = [(tuple(each.key[name] for name in METHOD), each.outcomes.get("timeout", 0) // 3) for each in methods]
        return [ErrorCount(method, "timeout", "KeyError", number) for method, number in failed if number]

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str | None, ...], float]]:
        ok = merged([each for each in self._cells if each.key["outcome"] == "ok"], METHOD)
        return ok, {tuple(each.key[name] for name in METHOD): time.time() - 60 for each in ok}

    def unknown(self, count: int) -> list[dict[str, Any]]:
        return self._unknown[:count]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Directory's name -> its cells; ``rows`` and ``unknown`` are rows of any log."""
    logs: dict[str, Any] = {"rows": [], "unknown": [], "selections": []}

    @contextmanager
    def opened(engine: object, selection: Selection) -> Iterator[FakeInput]:
        logs["selections"].append(selection)
        yield FakeInput(logs[selection.path.name], logs["unknown"])

    class FakeEngine:
        def trace(self, selection: Selection, id: str, count: int) -> tuple[list[Any], Account]:
            return logs["rows"][:count], Account(shipped=5, counted=5)

    inputs, local = ModuleType("inputs"), ModuleType("local")
    vars(inputs).update(opened=opened)
    vars(local).update(Local=FakeEngine)
    for name, module in (("inputs", inputs), ("local", local)):
        monkeypatch.setitem(sys.modules, f"rpcmq.latency.jobs.{name}", module)
        monkeypatch.setattr(f"rpcmq.latency.jobs.{name}", module, raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        # What is read of it is made up; that it is a log is looked at.
        spooled(tmp_path / name, many(1, 1))
        ship(tmp_path / name)
        logs[name] = []
    return logs


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(command: click.Command, *arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = command.main(arguments, obj=State(None), standalone_mode=False)
        return code or 0, capsys.readouterr().out

    return run


def cells(seed: int, times: float = 1.0, method: str = "boot", minutes: int = 30, count: int = 600) -> list[Series]:
    """Three servers, thirty minutes."""
    chance = np.random.default_rng(seed)
    return [
        series(
            lognormal(chance, count // 3, sigma=0.5) * times,
            method,
            window=BEGIN + 60 * minute,
            queue=[50] * (count // 3),
            server=f"node-{n}",
            outcome="ok",
        )
        for minute in range(minutes)
        for n in range(3)
    ]


def with_outcome(made: list[Series], outcome: str = "ok") -> list[Series]:
    for each in made:
        each.key = {**each.key, "outcome": outcome}
        each.outcomes = {outcome: each.records}
    return made


def test_compare_says_what_changed_and_by_how_much(logs: dict[str, Any], run: Run) -> None:
    logs["a"] = with_outcome(cells(1) + cells(2, method="list") + cells(3, method="gone", minutes=1))
    logs["b"] = with_outcome(cells(4, 1.5) + cells(5, method="list"))

    code, text = run(compare_command, "a@-2h..-1h", "b,server=node-1")

    assert code == ExitCode.OK
    lines = text.splitlines()
    assert lines[0] == "A: a@-2h..-1h: 36,600 records shipped = 36,600 counted + 0 set aside; 36,600 in range"
    boot = next(line for line in lines if line.startswith("compute.boot"))
    assert "SLOWER" in boot
    assert "1 of 2 methods changed by 5 % or more, and not by chance" in lines
    assert "only in A: compute.gone" in lines
    first, second = logs["selections"]
    assert first.until - first.since == 3600
    assert second.where == {"server": "node-1"}


def test_a_gate_fails_with_its_own_code(logs: dict[str, Any], run: Run) -> None:
    logs["a"] = with_outcome(cells(1) + cells(2, method="few", minutes=1, count=60))
    logs["b"] = with_outcome(cells(3, 1.5) + cells(4, method="few", minutes=1, count=60))

    code, text = run(
        compare_command, "a", "b", "--fail-if", "p99 > +10%", "--fail-if", "p50>1s", "--fail-if", "errors>+1%"
    )

    assert code == ExitCode.EXCEEDED
    exceeded, not_exceeded, errors = text.splitlines()[-3:]
    assert exceeded.startswith("p99 > +10%: EXCEEDED in 1 of 1 method: compute.boot +")
    assert exceeded.endswith("not checked, n too small: compute.few")
    assert not_exceeded == "p50>1s: not exceeded in 2 methods"
    assert errors.startswith("errors>+1%: not exceeded in 2 methods; rises would have been seen from +0.0")
    assert errors.endswith(" % (compute.boot) to +11 % (compute.few)")
    assert run(compare_command, "a", "b", "--fail-if", "p99 > +80%")[0] == ExitCode.OK
    assert run(compare_command, "a", "b", "--fail-if", "volume.*:p99 > +10%")[0] == ExitCode.OK


def test_compare_for_programs(logs: dict[str, Any], run: Run) -> None:
    logs["a"], logs["b"] = with_outcome(cells(1)), with_outcome(cells(3, 1.5))
    code, text = run(compare_command, "a", "b", "--fail-if", "p99.9 > +10%", "--percentile", "p50", "--json")
    what = json.loads(text)
    assert (code, what["exceeded"]) == (ExitCode.EXCEEDED, True)
    [method] = what["methods"]
    assert [shift["what"] for shift in method["shifts"]] == ["p50", "p99.9", "errors"]
    low, high = method["shifts"][0]["interval"]
    assert low < 0.5 < high
    assert method["shifts"][0]["drawn"] == "windows"
    assert what["limits"][0]["exceeded"][0]["method"] == "boot"


def test_compare_refuses_what_it_cannot_compare(logs: dict[str, Any], run: Run) -> None:
    logs["a"] = with_outcome(cells(1))
    with pytest.raises(RpcError, match="b: no records in that range"):
        run(compare_command, "a", "b")
    with pytest.raises(UsageError, match=r"^'c' is no directory"):
        run(compare_command, "a", "c")
    with pytest.raises(UsageError, match="no '>'"):
        run(compare_command, "a", "b", "--fail-if", "p99")
    with pytest.raises(UsageError, match="'mean' is no percentile"):
        run(compare_command, "a", "b", "--percentile", "mean")
    assert logs["selections"][0].path.name == "a"
    assert len(logs["selections"]) == 2


def test_why_names_the_first_things_and_the_tables(logs: dict[str, Any], run: Run) -> None:
    slow = [each for each in cells(2, 3.0) if each.key["server"] == "node-1"]
    logs["a"] = with_outcome([each for each in cells(1) if each.key["server"] != "node-1"] + slow)
    logs["a"] += with_outcome(cells(3, 0.1, "list", minutes=30, count=60), "timeout")
    logs["unknown"] = [row(7, 0, None, outcome="unknown")]
    logs["a"].append(Series({**row(7, 0, None), "outcome": "unknown"}, BEGIN, {"unknown": 1}))

    code, text = run(why_command, "--log", "a", "--slo", "compute.boot:p99<1s:99%", "--slo", "compute.boot:<2ms:99%")

    assert code == 0
    lines = text.splitlines()
    assert lines[0].endswith("1 of unknown outcome")
    first = lines[lines.index("Look at first") + 1 : lines.index("Look at first") + 7]
    assert any("did not end well: 1,200 timeout, 600 KeyError" in line for line in first)
    assert any("node-1 is slower than its equals" in line for line in first)
    for title in (
        "Methods by total time",
        "Methods by queueing",
        "What did not end well",
        "Servers slower than others",
        "Objectives",
    ):
        assert any(line.startswith(title) for line in lines), title
    assert any(line.startswith("compute.boot:<2ms:99%") and "NOT MET" in line for line in lines)
    assert any(line.startswith("compute.boot:p99<1s:99%") and "NOT MET" not in line for line in lines)
    assert any(line.split() == ["compute.list", "timeout", "KeyError", "600", "33.3%"] for line in lines)
    assert any("compute.m7" in line and "2023-11-14T22:13:20" in line for line in lines)


def test_why_for_programs(logs: dict[str, Any], run: Run) -> None:
    logs["a"] = with_outcome(cells(1))
    _, text = run(why_command, "--cells", "a", "--slo", "compute.*:p99<1ms:99%", "--json")
    what = json.loads(text)
    assert what["by_total_time"][0]["method"] == "boot"
    assert what["by_total_time"][0]["share"] == 1
    assert (what["outliers"], what["unknown"]) == ([], {"methods": [], "newest": []})
    assert what["errors"] == []
    [objective] = what["objectives"]
    assert (objective["good"], objective["all"], objective["is_met"]) == (0, 30, False)
    assert objective["budget_left"] == pytest.approx(-99)
    assert what["findings"][0]["what"].startswith("compute.boot takes 100 % of all time")


def test_why_ranks_no_zeros(logs: dict[str, Any], run: Run) -> None:
    logs["a"] = with_outcome([series([5000] * 10, "m", queue=[0] * 10, server="node-1", window=BEGIN)])
    _, text = run(why_command, "--cells", "a")
    assert "Methods by total time" in text and "Methods by queueing" not in text and "by their tail" not in text
    assert "Nothing waited in a queue." in text.splitlines()


def test_what_cannot_be_written_to_is_said_before_an_engine_starts(
    logs: dict[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcmq.latency.jobs.local.Local", lambda: pytest.fail("an engine was started"))
    (tmp_path / "file").touch()
    for command, out in ((report_command, "file/out"), (policy_command, "file/policy.json")):
        with pytest.raises(RpcError, match=r"file.*: cannot be written to: (Not a directory|File exists)"):
            run(command, "--log", "a", "--out", out)


def test_why_of_nothing_says_so(logs: dict[str, Any], run: Run) -> None:
    code, text = run(why_command, "--log", "a")
    assert code == 0
    assert "1. The log has no records" in text.splitlines()


def test_a_directory_must_be_given(logs: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(click.UsageError, match="Missing option '--log' or '--cells'"):
        run(why_command)
    with pytest.raises(UsageError, match="'yesterday' is no time"):
        run(why_command, "--log", "a", "--since", "yesterday")
    with pytest.raises(click.UsageError, match="--since -1h is not before --until -2h"):
        run(why_command, "--log", "a", "--since", "-1h", "--until", "-2h")
    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        run(why_command, "--log", "a", "--where", "compute")
    monkeypatch.setenv("RPCMQ_DISPATCH_LOG_DIRECTORY", "b")
    run(why_command, "--where", "topic=compute")
    run(why_command, "--cells", "a")
    assert [(each.path.name, each.where) for each in logs["selections"]] == [("b", {"topic": "compute"}), ("a", {})]


def test_trace_draws_a_waterfall(logs: dict[str, Any], run: Run) -> None:
    logs["rows"] = [
        row(1, 0, 100_000, server_process="api:7", server="api"),
        row(2, 20_000, 30_000, client="api:7", outcome="timeout", reply_us=1500),
    ]
    code, text = run(trace_command, "ab" * 16, "--log", "a", "--width", "20")
    assert code == 0
    outer, nested = text.splitlines()[-2:]
    assert " ".join(outer.split()[:-1]) == "compute.m1 0 us 100 ms 10 ms 45 ms 45 ms - api ok"
    assert outer.endswith(" ..----##########----")
    assert nested.startswith("  compute.m2")
    assert "  3 ms  " in nested and nested.split("  3 ms  ")[1].split()[:6] == ["12", "ms", "13.5", "ms", "1.5", "ms"]
    assert "timeout" in nested

    spans = json.loads(run(trace_command, "ab" * 16, "--log", "a", "--json")[1])["spans"]
    assert [(span["method"], span["depth"], span["offset_us"]) for span in spans] == [("m1", 0, 0), ("m2", 1, 20_000)]
    assert [(span["network_us"], span["reply_us"]) for span in spans] == [(45_000, None), (12_000, 1500)]


def test_trace_says_if_there_is_none(logs: dict[str, Any], run: Run) -> None:
    with pytest.raises(RpcError, match="no record of it; 5 records shipped = 5 counted"):
        run(trace_command, "ab" * 16, "--log", "a")
    with pytest.raises(click.UsageError, match="Cells have no single records"):
        run(trace_command, "ab" * 16, "--cells", "a")


def test_a_trace_of_thousands_is_cut(logs: dict[str, Any], run: Run) -> None:
    logs["rows"] = [row(n, n, 10) for n in range(1, 1002)]
    _, text = run(trace_command, "ab" * 16, "--log", "a")
    assert text.splitlines()[-1] == "Only the first 1000 records are shown."


def test_policy_writes_what_a_router_reads(logs: dict[str, Any], run: Run) -> None:
    logs["a"] = with_outcome(cells(1) + cells(2, method="list", minutes=1)) + with_outcome(cells(3, 50), "timeout")

    code, text = run(policy_command, "--log", "a", "--out", "policy.json")

    assert code == 0
    assert text.splitlines()[-1] == "left out: compute.list (600 samples, 1000 are needed)"
    found = read_policy(Path("policy.json"), time.time())
    [entry] = found.entries.values()
    # Those that timed out are not in it.
    assert (entry.method, entry.samples) == ("boot", 18_000)
    assert entry.us[0] == pytest.approx(5000, rel=0.05)
    what = json.loads(run(policy_command, "--log", "a", "--out", "policy.json", "--min-samples", "500", "--json")[1])
    assert [each["method"] for each in what["methods"]] == ["boot", "list"]


def test_policy_writes_nothing_if_there_is_nothing_to_say(
    logs: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs["a"] = with_outcome(cells(1, minutes=1))
    with pytest.raises(RpcError, match=r"policy.json was not written, .*: compute.boot: 600 samples, 1000 are needed"):
        run(policy_command, "--log", "a", "--out", "policy.json")
    assert not Path("policy.json").exists()
    monkeypatch.setattr("rpcmq.log_format.latency_policy.LARGEST_BYTES", 100)
    with pytest.raises(
        RpcError, match=r"^policy.json was not written: policy: has \d+ bytes, more than 100, .*--min-samples"
    ):
        run(policy_command, "--log", "a", "--out", "policy.json", "--min-samples", "500")
    assert not Path("policy.json").exists()
    with pytest.raises(click.BadParameter, match="298"):
        run(policy_command, "--log", "a", "--out", "policy.json", "--min-samples", "298")


def test_a_missing_package_is_said_in_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").mkdir()
    monkeypatch.setitem(sys.modules, "rpcmq.latency.analysis.slo", None)
    monkeypatch.setattr("rpcmq.cli.latency_input._PACKAGES", ("rpcmq",))
    with pytest.raises(NotInstalled, match=r"is not installed: pip install 'rpcmq\[report\]'"):
        run(why_command, "--log", str(tmp_path / "log"))
