"""``rpcmq purge`` and ``rpcmq kick`` as an operator types them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from gevent import spawn

from rpcmq import Client
from rpcmq.errors import CallCancelled
from tests.server.daemons import eventually, router, run, started

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


def test_purge_empties_a_topic(invoke: Invoke, system: SimpleNamespace) -> None:
    with Client(system.url) as client:
        for _ in range(3000):
            client.cast(None, "compte", {"method": "m", "args": {}})
        call = spawn(client.call, None, "compte", {"method": "m", "args": {}}, timeout=30)
        eventually(lambda: sum(row["queued"] for row in client.query("topics")["topics"]) == 3001)
        process = run("purge", "compte", env=system.env)
        assert (process.returncode, process.stderr) == (0, "")
        assert process.stdout == "purged 'compte': 3000 casts, 1 call\n"
        with pytest.raises(CallCancelled, match="purged 'compte'; the call did not run"):
            call.get(timeout=20)
    ended = invoke("purge", "compte", "--forget", "--json", env=system.env)
    answer = {"topic": "compte", "known": True, "casts": 0, "calls": 0, "forgotten": True}
    assert json.loads(ended.stdout) == answer
    ended = invoke("purge", "compte", env=system.env)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "rpcmq: the router does not know 'compte'\n"
    rows = json.loads(invoke("ls", "--dropped", "--json", env=system.env).stdout)["dropped"]
    counts = {row["verb"]: row["count"] for row in rows if (row["topic"], row["reason"]) == ("compte", "purged")}
    assert counts == {"cast": 3000, "call": 1}


def test_kick_ends_a_process_link_and_it_comes_back(invoke: Invoke, system: SimpleNamespace) -> None:
    serve = ("serve", "tests.cli.endpoints:Compute", "--topic", "kicked", "--host", "here")
    with started(*serve, env=system.env) as service:
        identity = service.wait_for("serving")["identity"]
        process = run("kick", identity, env=system.env)
        assert (process.returncode, process.stdout) == (0, f"ended 1 link of {identity!r}\n")
        told = service.wait_for("rpcmq.client", level="warning")
        assert "kicked by" in told["message"]
        assert invoke("call", "kicked", "add", "a=1", env=system.env).stdout == "3\n", "it has come back"
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0
    ended = invoke("kick", identity, "--json", env=system.env)
    assert ended.returncode == 1 and json.loads(ended.stdout) == {"identity": identity, "links": 0}


def test_without_the_right_controls_are_refused(invoke: Invoke, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    assert invoke("init", str(keys)).returncode == 0
    assert invoke("keys", "add", "viewer", "--allow", "admin:*", "--keys", str(keys)).returncode == 0
    with router("--keys", str(keys)) as daemon:
        env = {"RPCMQ_ROUTER": daemon.url, "RPCMQ_KEY_FILE": str(keys / "viewer.key")}
        assert invoke("ls", env=env).returncode == 0
        for command in (["purge", "compute"], ["kick", "nobody"]):
            ended = invoke(*command, "--json", env=env)
            assert ended.returncode == 9, ended.stderr
            assert json.loads(ended.stderr)["error"] == "AccessDenied"
