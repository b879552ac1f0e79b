"""Drops are shown by the commands and pages that an operator uses, and by the sender itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from gevent import subprocess

from rpcmq import Client
from tests.server.daemons import environment, eventually, router, run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


def test_casts_to_a_misspelt_topic_are_found_with_every_tool(invoke: Invoke) -> None:
    with router("--http", "127.0.0.1:0", "--mailbox-unclaimed-seconds", "0.2") as daemon:
        env = {"RPCMQ_ROUTER": daemon.url}
        with Client(daemon.url, identity="api") as client:
            for number in range(30):
                client.cast(None, "compte", {"method": "resize", "args": {"number": number}})
            line = daemon.wait_for("dropped", topic="compte", reason="aged out", level="warning")
            assert line["message"].startswith("30 casts to 'compte' were dropped: aged out")
            eventually(lambda: client.statistics()["dropped"] == {"cast": {"aged out": 30}})
            [row] = client.statistics()["dropped_topics"]
            assert row == {"topic": "compte", "verb": "cast", "reason": "aged out", "count": 30}
            eventually(lambda: client.query("topics")["topics"] == [])

        shown = run("ls", "--dropped", env=env)
        assert shown.returncode == 0
        [row] = [line.split() for line in shown.stdout.splitlines() if line.startswith("compte")]
        assert row[:5] == ["compte", "resize", "cast", "aged", "out"] and row[5] == "30" and row[7] == "api"
        answer = json.loads(invoke("ls", "--dropped", "--json", env=env).stdout)
        assert answer["totals"] == {"cast": {"aged out": 30}} and answer["dropped"][0]["count"] == 30
        assert "dropped: 30 casts aged out; rpcmq ls --dropped says where" in invoke("ls", env=env).stdout
        stats = invoke("ls", "--view", "stats", env=env)
        assert (stats.returncode, stats.stderr) == (0, "") and "outcomes: no_consumer" in stats.stdout

        for page in ("varz", "stats", "dropped"):
            with urlopen(f"{daemon.http}/{page}") as answered:
                value = json.load(answered)
            assert value["totals" if page == "dropped" else "dropped"] == {"cast": {"aged out": 30}}
        with urlopen(f"{daemon.http}/metrics") as answered:
            assert answered.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            metrics = answered.read().decode()
        assert 'rpcmq_dropped_total{verb="cast",reason="aged out"} 30\n' in metrics
        assert "# TYPE rpcmq_links gauge\nrpcmq_links 0\n" in metrics
        assert 'rpcmq_ended_total{outcome="no_consumer"} 30\n' in metrics


def test_nothing_dropped_is_said_as_such(invoke: Invoke) -> None:
    with router() as daemon:
        ended = invoke("ls", "--dropped", env={"RPCMQ_ROUTER": daemon.url})
        assert ended.returncode == 0 and "nothing was dropped" in ended.stdout
        assert invoke("ls", "--dropped", "--stuck", env={"RPCMQ_ROUTER": daemon.url}).returncode == 2


def test_a_sender_logs_what_it_let_go_and_what_it_lost() -> None:
    program = (
        "import logging, sys; from rpcmq import Client; from rpcmq.testing import eventually\n"
        "logging.basicConfig(stream=sys.stderr)\n"
        "with Client(cast_kept=100) as client:\n"
        "    for n in range(250): client.cast(None, 'compte', {'method': 'm', 'args': {}})\n"
        # As soon as the router has said that it has them.
        "    eventually(lambda: client.statistics()['casts_let_go'] == 150)\n"
    )
    with router() as daemon:
        command = [sys.executable, "-c", program]
        env = environment(RPCMQ_ROUTER=daemon.url)
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "150 casts waiting for a consumer are held by the router only" in ended.stderr
