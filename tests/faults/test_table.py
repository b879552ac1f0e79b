from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.table import main, results, table

ROW = {
    "scenario": "router killed", "seed": 1, "seconds": 12.5, "submitted": {"call": 1500, "cast": 500},
    "ended": {"ok": 1500}, "faults": {"kill": 2}, "lost": 0, "doubled": 1, "misrouted": 0, "late": 7,
    "worst_told_seconds": 0.0, "worst_recovery_seconds": 0.358, "violations": 1, "rss_drift_percent": {"router": 1.5},
}  # fmt: skip


def test_rows_are_found_among_other_lines_and_the_last_counts():
    lines = ["....", f"result {json.dumps(ROW | {'lost': 9})}", "PASSED", f"result {json.dumps(ROW)}\n"]
    assert results(lines) == [ROW]


def test_the_table():
    expected = "| router killed | 1,500 call, 500 cast in 12.5 s | 2 kill | 0 | 1 | 0 |  | 0.358 s |"
    (line,) = table([ROW]).splitlines()[2:]
    assert line == expected + " late 7, rss drift percent router 1.5 |"


def test_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "out").write_text(f"result {json.dumps(ROW)}\n")
    main([str(tmp_path / "out")])
    assert "| router killed |" in capsys.readouterr().out
