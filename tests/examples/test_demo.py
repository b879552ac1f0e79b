"""The demo in a small size, as a newcomer starts it, but without a terminal."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from rpcmq.testing import eventually
from rpcmq.testing.processes import Program

CHECKOUT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def demo(tmp_path: Path, *arguments: str) -> Program:
    env = {"PYTHONPATH": str(CHECKOUT), "TMPDIR": str(tmp_path)}
    return Program([sys.executable, "-m", "examples.demo", *arguments], env, name="demo")


def pids(program: Program) -> dict[str, int]:
    """Processes by name, as the demo prints them."""
    found = (re.match(r"  (\S+) +pid (\d+)", line) for line in program.lines)
    return {each[1]: int(each[2]) for each in found if each}


def is_gone(pid: int) -> bool:
    """No such process, or none but a zombie that this machine's init has not collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def table_rows(program: Program) -> dict[tuple[str, str], list[str]]:
    """The router's table: (topic, method) -> calls, casts, errors, p50, p90, p99."""
    rows = {}
    for line in program.lines:
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        if len(cells) == 8:
            rows[cells[0], cells[1]] = cells[2:]
    return rows


@pytest.mark.long
def test_books_agree_though_a_router_a_biller_and_a_node_are_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--instances", "60", "--users", "12", "--no-report") as program:
        code = program.wait(100)
        assert code == 0, program.said()
        processes = pids(program)
        text = "\n".join(program.lines)
    assert set(processes) == {
        "router-a", "router-b", "router-c", "network", "scheduler", "api", "node-1", "node-2", "node-3", "biller-1",
        "biller-2", "router-a.queues", "router-b.queues", "router-c.queues",
    }  # fmt: skip
    assert f"kill -9 {processes['router-a']}: router-a is gone after 24 boots" in text
    assert f"kill -9 {processes['node-2']}: node-2 is gone after 36 boots" in text
    assert f"kill -9 {processes['biller-1']}: biller-1 is gone after 30 boots" in text
    assert re.search(r"billing: (\d+) bills put = \1 done \+ 0 dead, at 3 queue servers", text)
    assert re.search(r"billing: \d+ instances charged, each once", text)
    assert "boots: 60 started = " in text
    assert "WRONG" not in text
    assert re.search(r"lost calls: 0 of \d+", text) and re.search(r"doubled calls and casts: 0 of \d+", text)
    assert re.search(r"\d+ boots were under way when the router was killed: they took [\d.]+ s at most", text)
    rows = table_rows(program)
    # The others were counted by the router that is dead.
    assert 0 < int(rows["api", "create_instance"][0]) < 60
    calls, casts, errors, p50, p90, p99 = rows["compute.node-1", "run_instance"]
    assert int(calls) > 0 and (casts, errors) == ("0", "0")
    assert 20 <= float(p50) <= float(p90) <= float(p99)
    assert all(map(is_gone, processes.values()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [pytest.param(2, 130, id="SIGINT"), pytest.param(15, 143, id="SIGTERM", marks=pytest.mark.long)],
)
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, number: int, expected: int) -> None:
    with demo(tmp_path, "--instances", "100000") as program:
        program.expect("router-c.queues +pid", 60)
        processes = pids(program)
        os.kill(program.pid, number)
        assert program.wait(60) == expected, program.said()
    assert len(processes) == 14
    eventually(lambda: all(map(is_gone, processes.values())), 10, "all processes are gone")
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_does_not_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "rpcmq").mkdir()
    (tmp_path / "rpcmq" / "__init__.py").write_text("raise SystemExit('no rpcmq for you')")
    env = {"PYTHONPATH": str(CHECKOUT)}
    code = "import sys; sys.argv[1:] = []; import rpcmq, examples.demo.cluster as cluster\n"
    code += f"cluster._CHECKOUT = {str(tmp_path)!r}\n"
    code += "from examples.demo.__main__ import main; sys.exit(main())"
    with Program([sys.executable, "-c", code], env, name="demo") as program:
        assert program.wait(60) == 1, program.said()
        assert "router-a did not start" in program.said()
        assert "no rpcmq for you" in program.said()
