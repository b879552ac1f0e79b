from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from gevent import subprocess

from rpcmq.cli import drill
from rpcmq.drill.checks import Verdict, Violation
from rpcmq.drill.result import Result
from tests.server.daemons import COMMAND, SECONDS, environment, eventually

pytestmark = pytest.mark.integration


@pytest.mark.fault
def test_a_drill(invoke, tmp_path: Path):
    (tmp_path / "t.toml").write_text("services = 1\nrate = 200\nrouter_config = 'router.toml'\n")
    (tmp_path / "router.toml").write_text("[link]\nresume_seconds = 7\n")
    ended = invoke(
        "drill", "--topology", str(tmp_path / "t.toml"), "--faults", "kill", "--for", "1s", "--every", "500ms",
        "--lasts", "100ms", "--seed", "11", "--json", "--keep", str(tmp_path / "kept"),
    )  # fmt: skip
    row = json.loads(ended.stdout)
    assert (ended.returncode, row["violations"]) == (0, [])
    assert row["seed"] == 11 and row["faults"]["kill"] in (1, 2) and row["submitted"]["call"] > 0
    # The drill itself, the router, a caller, and each life of the service.
    assert len(list((tmp_path / "kept").glob("*.history"))) == 4 + row["faults"]["kill"]


def test_faults_of_one_router_are_refused_with_several(invoke):
    result = invoke("drill", "--routers", "3", "--faults", "partition", "--for", "1s")
    assert result.returncode == 2
    assert "not with several routers: partition; these are: kill," in result.stderr


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_drill_with_three_routers(invoke, tmp_path: Path):
    faults = "router,router-restart,router-stop,link-cut,link-reset"
    arguments = ["--faults", faults, "--for", "8s", "--every", "2s", "--lasts", "1s", "--keep", str(tmp_path / "h")]
    result = invoke("drill", "--json", "--routers", "3", "--seed", "3", *arguments)
    row = json.loads(result.stdout)
    assert result.returncode == 0, row
    assert row["violations"] == [] and row["lost"] == row["doubled"] == row["misrouted"] == 0
    assert sum(row["faults"].values()) >= 2


@pytest.mark.fault
def test_a_drill_of_what_init_makes(invoke, tmp_path: Path):
    """It has keys of its own; those of the configuration are not looked at."""
    made = invoke("init", str(tmp_path / "keys"), "--listen", "tcp://0.0.0.0:7700")
    assert made.returncode == 0, made.stderr
    for file in (tmp_path / "keys").glob("**/*.key"):
        file.write_text("not to be read")
    (tmp_path / "t.toml").write_text("services = 1\nrate = 200\nrouter_config = 'keys/router.toml'\n")
    ended = invoke(
        "drill", "--topology", str(tmp_path / "t.toml"), "--faults", "kill,reset,hog", "--for", "2s", "--every",
        "500ms", "--lasts", "100ms", "--seed", "11", "--json", "--keep", str(tmp_path / "kept"),
    )  # fmt: skip
    row = json.loads(ended.stdout)
    assert (ended.returncode, row["violations"]) == (0, [])
    assert row["submitted"]["call"] > 0 and row["ended"]["ok"] > 0
    assert not list((tmp_path / "kept").rglob("*.key"))


@pytest.mark.long
@pytest.mark.fault
def test_a_drill_with_every_option_of_the_load(invoke, tmp_path: Path):
    (tmp_path / "t.toml").write_text(
        "services = 2\nrate = 150\nlarge_sizes = [65536, 300000]\nbusy_seconds = 0.5\n"
        "[router]\nmailbox_unclaimed_seconds = 1\n"
    )
    ended = invoke(
        "drill", "--topology", str(tmp_path / "t.toml"), "--faults", "kill-plain", "--for", "1s", "--every", "1s",
        "--patched", "--nested", "0.1", "--large", "0.1", "--misspelt", "0.2", "--seed", "3", "--json",
        "--keep", str(tmp_path / "kept"),
    )  # fmt: skip
    row = json.loads(ended.stdout)
    assert (ended.returncode, row["violations"]) == (0, [])
    assert row["faults"] == {"kill": 1} and row["dropped"] > 0
    text = "".join(file.read_text() for file in (tmp_path / "kept").glob("*.history"))
    assert all(word in text for word in ('"busy"', '"size":', '"misspelt":true', '"nested":true', '"dropped in all"'))


def _processes_of(folder: Path) -> list[int]:
    """The processes that have ``folder`` in their arguments: those of a drill there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes() and int(process.name) != os.getpid():
                found.append(int(process.name))
        except OSError:
            pass  # it has ended meanwhile
    return found


@pytest.mark.fault
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long), (signal.SIGINT, 130)]
)
# The processes that run when the signal comes: the router starts; services start; there is load, and are faults.
@pytest.mark.parametrize("running", [1, 3, 5])
def test_a_drill_that_is_stopped_leaves_nothing(
    number: signal.Signals, code: int, running: int, tmp_path: Path
) -> None:
    command = [*COMMAND, "drill", "--faults", "kill,stop", "--every", "100ms", "--for", "60s"]
    with subprocess.Popen(
        command, env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as drill:
        eventually(lambda: len(_processes_of(tmp_path)) >= running)
        drill.send_signal(number)
        _, errors = drill.communicate(timeout=SECONDS)
    assert drill.returncode == code
    assert [line for line in errors.decode().splitlines() if line and not line.startswith("seed ")] == []
    assert _processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault
def test_a_drill_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """Not even those that it has stopped."""
    topology = tmp_path / "small.toml"
    topology.write_text("services = 1\ncallers = 1\nsubscribers = 0\n")
    command = [*COMMAND, "drill", "--topology", str(topology), "--faults", "stop", "--every", "50ms", "--for", "60s"]
    with subprocess.Popen(
        command, env=environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as drill:
        eventually(lambda: any(map(_is_stopped, _processes_of(tmp_path))))
        drill.kill()
        eventually(lambda: _processes_of(tmp_path) == [])


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False  # it has ended meanwhile


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--faults", "nonsense"), "unknown faults: nonsense; known: kill"),
        (("--topology", "/nowhere"), "does not exist"),
        (("--for", "soon"), "expected seconds"),
        (("--for", "0s"), "expected seconds"),
        (("--large", "2"), "2.0 is not in the range 0.0<=x<=1.0"),
    ],
)
def test_wrong_arguments(invoke, arguments: tuple[str, ...], problem: str):
    ended = invoke("drill", *arguments)
    assert ended.returncode != 0 and problem in ended.stderr


def test_a_verdict_that_is_not_as_promised(invoke, monkeypatch: pytest.MonkeyPatch):
    verdict = Verdict(violations=[Violation("ended twice", "c-1 ended twice")], doubled=3)
    monkeypatch.setattr("rpcmq.drill.faults.run_drill", lambda *rest: Result(1, 2.0, verdict, {"kill": 1}))
    ended = invoke("drill", "--seed", "1")
    assert ended.returncode == 1
    assert "1 violations" in ended.stdout and "ended twice: c-1 ended twice" in ended.stdout
    assert drill.drill_command.name == "drill"
