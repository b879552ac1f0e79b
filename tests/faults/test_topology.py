from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.drill.faults import FAULTS, NEEDS_PROXY, chosen
from rpcmq.drill.topology import Topology, load_topology
from rpcmq.errors import ConfigError, UsageError


def load(tmp_path: Path, text: str) -> Topology:
    (tmp_path / "t.toml").write_text(text)
    return load_topology(tmp_path / "t.toml")


def test_an_empty_file_is_the_default(tmp_path: Path):
    assert load(tmp_path, "") == Topology()


def test_all_that_can_be_said(tmp_path: Path):
    topology = load(
        tmp_path,
        "services = 6\ncallers = 2\nrate = 500\nsizes = [10, 1000]\nhandler_seconds = [0, 0.5]\ndirect = false\n"
        'router_config = "router.toml"\n[verbs]\ncall = 1\npublish = 2.5\n[router]\nlink_resume_seconds = 5\n',
    )
    assert (topology.services, topology.callers, topology.rate, topology.sizes) == (6, 2, 500.0, (10, 1000))
    assert topology.handler_seconds == (0, 0.5) and not topology.direct
    assert topology.verbs == {"call": 1, "publish": 2.5} and topology.router == {"link_resume_seconds": 5}
    assert topology.router_config == str(tmp_path / "router.toml"), "beside the file that names it"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("servces = 3", "'servces' is unknown; known: services"),
        ("services = 0", "services = 0: expected an integer >= 1"),
        ("services = true", "services = True: expected an integer"),
        ('rate = "fast"', "rate = 'fast': expected a number >= 0"),
        ("direct = 1", "direct = 1: expected a flag"),
        ("sizes = []", r"sizes = \[\]: expected a list of numbers"),
        ("sizes = [1.5]", r"sizes = \[1.5\]: expected an integer"),
        ("verbs = 3", "verbs = 3: expected a table"),
        ("[verbs]\nshout = 1", "'shout' is none of call, cast, fanout, publish"),
        ("[verbs]\ncall = 0", "one of them must be above 0"),
        ("services = ", "Invalid value"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, problem: str):
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, text)


def test_a_file_that_is_not_there():
    with pytest.raises(ConfigError, match="No such file"):
        load_topology("/nowhere/t.toml")


def test_faults_by_name():
    assert chosen("kill, stop") == ("kill", "stop")
    assert chosen(",".join(FAULTS)) == tuple(FAULTS)
    assert set(NEEDS_PROXY) <= set(FAULTS)
    with pytest.raises(UsageError, match=r"unknown faults: kil; known: kill, stop"):
        chosen("kil")
    with pytest.raises(UsageError, match="no faults"):
        chosen(" , ")
