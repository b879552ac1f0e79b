"""``rpcmq tap`` as an operator types it, at a router that carries calls."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from gevent.subprocess import PIPE, Popen

from rpcmq import Client, Service
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.server.daemons import run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


class Compute:
    def add(self, ctx: object, a: int, b: int) -> int:
        return a + b


@pytest.fixture
def tapped(tmp_path: Path) -> Iterator[RouterProcess]:
    file = tmp_path / "router.toml"
    file.write_text('[[node]]\ntype = "tap"\n')
    with RouterProcess(file=str(file)) as router:
        yield router


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "rpcmq", "tap", *words]


def taps(client: Client) -> int:
    return len(client.query("tap.taps", timeout=20)["taps"])


def test_a_tap_prints_what_passes_and_ends_with_its_budget(tapped: RouterProcess) -> None:
    env = {"RPCMQ_ROUTER": tapped.url}
    with (
        Service("compute", Compute(), router=tapped.url),
        Client(tapped.url) as client,
        Program(command("compute", "--count", "4", "--json"), env, "tap") as tap,
    ):
        eventually(lambda: taps(client) == 1)
        for number in range(3):
            assert (
                client.call(None, "compute", {"method": "add", "args": {"a": number, "b": 1}}, timeout=20) == number + 1
            )
        eventually(lambda: tap.exit_code == 0, what=tap.said())
        copies = [json.loads(line) for line in tap.lines if line.startswith("{")]
        assert [copy["what"] for copy in copies] == ["call", "reply"] * 2
        assert {copy["method"] for copy in copies} == {"add"} and "payload" not in copies[0]
        assert any("4 copies of 'compute'" in line and "budget of 4" in line for line in tap.lines)
        assert taps(client) == 0
    tapped.expect("taps 'compute' for at most 60 s, 100 copies a second")
    tapped.expect("the tap of .* on 'compute' has ended .* its budget of 4 copies is used up")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tap_that_is_interrupted_is_stopped_at_once(tapped: RouterProcess, number: int) -> None:
    env = {"RPCMQ_ROUTER": tapped.url}
    with Client(tapped.url) as client, Program(command("compute"), env, "tap") as tap:
        eventually(lambda: taps(client) == 1)
        tap.signal(number)
        eventually(lambda: tap.exit_code is not None)
        assert tap.exit_code == 130
        assert taps(client) == 0


@pytest.mark.long
def test_a_tap_ends_when_its_process_is_killed_and_nothing_of_it_stays(tapped: RouterProcess) -> None:
    env = {"RPCMQ_ROUTER": tapped.url}
    with Service("compute", Compute(), router=tapped.url), Client(tapped.url) as client:
        with Program(command("compute", "--for", "600", "--rate", "1000"), env, "tap") as tap:
            eventually(lambda: taps(client) == 1, 60)
            tap.signal(signal.SIGKILL)
            eventually(lambda: tap.exit_code is not None, 60)
            # Calls go on, and what they leave for it is bounded and goes with it.
            for number in range(50):
                message = {"method": "add", "args": {"a": number, "b": 1}}
                assert client.call(None, "compute", message, timeout=60) == number + 1
            eventually(lambda: taps(client) == 0, 120)
        (node,) = client.query("nodes", timeout=20)["nodes"]
        assert (node["state"], node["failures"], node["open_asks"]) == ("in", 0, 0)
    # Both are over after 30 s.
    tapped.expect("the tap of .* on 'compute' has ended .*: (its link has ended|nobody has read it)")


def test_the_lines_go_through_jq(tapped: RouterProcess) -> None:
    line = " ".join(command("compute", "--count", "2", "--json")) + " 2>&1 | jq -r .what"
    with Service("compute", Compute(), router=tapped.url), Client(tapped.url) as client:
        shell = Popen(line, shell=True, stdout=PIPE, env=os.environ | {"RPCMQ_ROUTER": tapped.url})
        eventually(lambda: taps(client) == 1)
        client.call(None, "compute", {"method": "add", "args": {"a": 1, "b": 1}}, timeout=20)
        printed = shell.communicate(timeout=60)[0].decode().split()
    assert printed[:2] == ["call", "reply"]


def test_what_cannot_be_tapped_is_said(tapped: RouterProcess, invoke: Invoke, system: SimpleNamespace) -> None:
    ended = run("tap", "compute", "--what", "calls", "--json", env={"RPCMQ_ROUTER": tapped.url})
    assert ended.returncode != 0 and "'calls': expected one of call" in json.loads(ended.stderr)["text"]
    refused = invoke("tap", "compute", "--payload", env={"RPCMQ_ROUTER": tapped.url})
    assert refused.returncode != 0 and "payloads = false" in refused.stderr
    refused = invoke("tap", "compute", env=system.env)
    assert refused.returncode == 1
    assert refused.stderr == (
        'rpcmq: this router has no node of type "tap": add [[node]] with type = "tap" to its configuration\n'
    )


def test_a_pattern_is_no_topic(tapped: RouterProcess, invoke: Invoke) -> None:
    for pattern in ("compute.#", "*.node-7"):
        ended = invoke("tap", pattern, env={"RPCMQ_ROUTER": tapped.url})
        assert ended.returncode == 2 and "is a pattern, and a tap is on one topic" in ended.stderr
