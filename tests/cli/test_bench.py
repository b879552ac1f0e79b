"""``rpcmq bench`` measures and leaves no process behind."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from gevent import subprocess

from rpcmq import Client
from tests.server.daemons import COMMAND, SECONDS, environment, eventually, run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]
SIGNALS = [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long), (signal.SIGINT, 130)]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_bench_with_a_router_of_its_own() -> None:
    ended = run("bench", "--seconds", "0.1", "--concurrency", "1,8", "--payload", "50", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    answer = json.loads(ended.stdout)
    assert answer["payload_bytes"] == 50
    assert [(row["verb"], row["concurrency"]) for row in answer["steps"]] == [("call", 1), ("call", 8), ("cast", 1)]
    for row in answer["steps"]:
        assert row["count"] > 0 and row["per_second"] > 0
    for row in answer["steps"][:2]:
        latency = row["latency_us"]
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]


def test_bench_with_several_routers_is_refused(invoke: Invoke) -> None:
    ended = invoke("bench", "--router", "tcp://127.0.0.1:1,tcp://127.0.0.1:2")
    assert ended.returncode == 2 and "the bench measures one router, and 2 are given: name one" in ended.stderr


def test_bench_over_a_given_router(system: SimpleNamespace) -> None:
    ended = run("bench", "--seconds", "0.1", "--concurrency", "4", "--router", system.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    words = [line.split()[:2] for line in ended.stdout.splitlines()]
    assert ["call", "4"] in words and ["cast", "1"] in words


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_bench_that_is_stopped_leaves_no_process(number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [*COMMAND, "bench", "--seconds", "30"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as bench:
        eventually(lambda: len(children(bench.pid)) == 2)
        pids = children(bench.pid)
        bench.send_signal(number)
        _, errors = bench.communicate(timeout=SECONDS)
    assert bench.returncode == code and errors.strip() == b""
    assert not any(map(is_running, pids))


def test_bench_that_is_killed_leaves_no_process() -> None:
    with subprocess.Popen(
        [*COMMAND, "bench", "--seconds", "30"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as bench:
        eventually(lambda: len(children(bench.pid)) == 2)
        pids = children(bench.pid)
        bench.kill()
        eventually(lambda: not any(map(is_running, pids)))


def bench_rows(client: Client, view: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.query(view)[view]
    return [row for row in rows if row["topic"].startswith("rpcmq-bench")]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_bench_that_is_stopped_leaves_nothing_in_the_router(
    system: SimpleNamespace, number: signal.Signals, code: int
) -> None:
    command = [*COMMAND, "bench", "--seconds", "3", "--concurrency", "1"]
    with Client(system.url) as client:
        before = sum(row["casts"] for row in bench_rows(client, "methods"))
        with subprocess.Popen(
            command, env=environment(**system.env), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as bench:
            eventually(lambda: sum(row["casts"] for row in bench_rows(client, "methods")) > before + 2000)
            bench.send_signal(number)
            _, errors = bench.communicate(timeout=SECONDS)
        assert (bench.returncode, errors.strip().decode()) == (code, "")
        assert bench_rows(client, "topics") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_where_it_waits_and_never_within_another_greenlet(number: signal.Signals) -> None:
    """The signal comes while another greenlet computes; that one goes on."""
    program = dedent(f"""
        import os, gevent
        from rpcmq.cli.stopping import ended_by_signals

        def compute():
            os.kill(os.getpid(), {number})
            for _ in range(1000):
                pass
            print("computed", flush=True)

        try:
            with ended_by_signals():
                gevent.spawn(compute)
                gevent.sleep(60)  # until the signal
        except BaseException as error:
            print("ended by", type(error).__name__)
    """)
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    error = "KeyboardInterrupt" if number == signal.SIGINT else "SystemExit"
    assert (ended.stdout.decode(), ended.stderr) == (f"computed\nended by {error}\n", b"")


def test_bench_to_its_end_leaves_nothing_in_the_router(system: SimpleNamespace) -> None:
    assert run("bench", "--seconds", "0.1", "--concurrency", "1", env=system.env).returncode == 0
    with Client(system.url) as client:
        assert bench_rows(client, "topics") == []


def test_wrong_widths_are_code_2(invoke: Invoke) -> None:
    for widths in ("0", "1,x", ""):
        assert invoke("bench", "--concurrency", widths).returncode == 2
