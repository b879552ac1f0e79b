"""``rpcmq node`` as an operator types it, beside a router with a node that fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import gevent
import pytest
from gevent.subprocess import PIPE, Popen

from rpcmq import Client
from rpcmq.errors import CallError, NoConsumer
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.nodes.distributions import install
from tests.server.daemons import run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]
SOURCE = """
import os
from rpcmq.nodes import Node, ProtocolError

class Fuse(Node):
    kinds = {0x90: "light"}
    controls = ("blow",)

    def take(self, now, ask):
        if ask.payload == b"blow":
            raise RuntimeError("blown by " + ask.peer.identity)
        if ask.payload == b"fork":
            os.fork()
        ask.answer(ask.payload)

    def metrics(self):
        return {"lit": 3}
"""


@pytest.fixture
def fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RouterProcess]:
    install(tmp_path / "site", "fuses", SOURCE, fuse="Fuse")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    file = tmp_path / "router.toml"
    file.write_text('[[node]]\ntype = "fuse"\nmax_bytes = "1MiB"\n')
    with RouterProcess(file=str(file)) as router:
        yield router


def metrics(router: RouterProcess) -> str:
    answer: bytes = gevent.get_hub().threadpool.apply(_page, (f"{router._http}/metrics",))
    return answer.decode()


def _page(url: str) -> bytes:
    from urllib.request import urlopen

    with urlopen(url, timeout=10) as answer:
        page: bytes = answer.read()
        return page


def test_a_node_that_fails_is_seen_everywhere_and_starts_over(
    fused: RouterProcess, invoke: Invoke, tmp_path: Path
) -> None:
    env = {"RPCMQ_ROUTER": fused.url}
    shown = run("node", "ls", env=env)
    assert shown.returncode == 0 and "fuses 1.2" in shown.stdout
    assert fused.view("healthz") == {"status": "ok"}
    with Client(fused.url) as client:
        assert client.ask_node(0x90, b"on", timeout=20) == b"on"
        with pytest.raises(CallError, match="no node that takes messages of kind 0x91"):
            client.ask_node(0x91, timeout=20)
        with pytest.raises(NoConsumer, match=r"node fuse of router .* is out: RuntimeError: blown by"):
            client.ask_node(0x90, b"blow", timeout=20)
        assert client.query("summary", timeout=20)["refused"].get("internal error", 0) == 0
    fused.expect("node fuse .* is out: RuntimeError: blown by")
    ended = invoke("node", "ls", "--json", env=env)
    (row,) = json.loads(ended.stdout)["nodes"]
    assert ended.returncode == 1 and row["state"] == "out" and row["failures"] == 1
    assert list(fused.view("healthz")["nodes_out"]) == ["fuse"]
    assert fused.varz()["nodes"][0]["name"] == "fuse"
    page = metrics(fused)
    assert 'rpcmq_node_up{node="fuse"} 0' in page and 'rpcmq_node_failures_total{node="fuse"} 1' in page
    found = run("doctor", "--config", str(tmp_path / "router.toml"), "--json", env=env)
    about = [each for each in json.loads(found.stdout)["findings"] if each["about"] == "nodes"]
    assert [each["level"] for each in about] == ["ok", "warning"] and "is out" in about[1]["text"]
    assert run("node", "restart", "fuse", env=env).stdout == "node 'fuse' has started over\n"
    assert fused.view("healthz") == {"status": "ok"}
    assert 'rpcmq_node_events_total{node="fuse",what="lit"} 3' in metrics(fused)
    ended = invoke("node", "restart", "fsue", "--json", env=env)
    assert ended.returncode != 0 and "it has: fuse" in json.loads(ended.stderr)["text"]


def test_json_of_nodes_goes_through_jq(fused: RouterProcess) -> None:
    command = f"{os.sys.executable} -m rpcmq node ls --json | jq -r '.nodes[].kinds[]'"  # type: ignore[attr-defined]
    process = Popen(command, shell=True, stdout=PIPE, env=os.environ | {"RPCMQ_ROUTER": fused.url})
    assert process.communicate(timeout=60)[0] == b"0x90\n"


def test_a_router_without_nodes_says_so(invoke: Invoke, system: SimpleNamespace) -> None:
    ended = invoke("node", "ls", env=system.env)
    assert (ended.returncode, ended.stdout) == (
        0, "no node is plugged into this router: its configuration has no [[node]]\n",
    )  # fmt: skip


def test_doctor_and_router_say_the_same_of_a_table_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text('[[node]]\ntype = "tpa"\n')
    found = run("doctor", "--offline", "--config", str(file), "--json")
    failed = [each["text"] for each in json.loads(found.stdout)["findings"] if each["level"] == "fail"]
    started = run("router", "--config", str(file))
    assert found.returncode == 1 and started.returncode == 2
    assert len(failed) == 1 and failed[0] in started.stderr and "node[0].type = 'tpa'" in failed[0]


def test_a_node_that_forks_leaves_one_router(fused: RouterProcess) -> None:
    with Client(fused.url) as client:
        for _ in range(3):
            assert client.ask_node(0x90, b"fork", timeout=20) == b"fork"
        (row,) = client.query("nodes", timeout=20)["nodes"]
        assert row["state"] == "in" and client.ask_node(0x90, b"on", timeout=20) == b"on"
        # The others have ended at the end of their step; the router has not waited for them.
        eventually(lambda: {state_of(pid) for pid in children_of(fused.pid)} <= {"Z"}, 60)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
