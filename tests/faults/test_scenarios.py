"""The scenarios of docs/guarantees.md with real processes: short here, with the figures of the table where marked long.

Each prints a line ``result {...}``; ``python -m tests.faults.table`` makes the table of them.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

from rpcmq.drill.result import Result
from rpcmq.drill.run import Drill
from tests.faults import scenarios

pytestmark = [pytest.mark.integration, pytest.mark.fault]

#: Heartbeats so quick that short stops show what long ones do.
QUICK = {"link_heartbeat_seconds": 0.3, "link_unresponsive_seconds": 1.5}

Reported = Callable[[str, Result], Result]


@pytest.fixture
def reported(capsys: pytest.CaptureFixture[str]) -> Reported:
    """Prints what was measured, and asserts that all held."""

    def report(name: str, result: Result) -> Result:
        with capsys.disabled():
            print("\nresult", json.dumps(result.row(name)))
        assert [str(violation) for violation in result.verdict.violations] == []
        return result

    return report


def test_the_router_is_killed(reported: Reported):
    result = reported("router killed", scenarios.routers_killed(1, kills=2, count=1800, rate=600.0))
    assert result.faults["kill"] == 2 and result.verdict.recovery > 0


@pytest.mark.long
def test_the_router_is_restarted_in_order(reported: Reported):
    result = reported("router restarted", scenarios.routers_restarted(10, restarts=2, count=6000))
    assert result.faults["restart"] == 2 and result.verdict.recovery > 0
    assert set(result.verdict.ended) == {"ok", "remote_error"}


@pytest.mark.long
def test_the_router_is_silent_rather_than_dead(reported: Reported):
    router = {"link_heartbeat_seconds": 0.2, "link_unresponsive_seconds": 0.8, "link_lost_seconds": 2.5}
    result = scenarios.routers_silent(11, times=2, router=router, rate=120.0, timeout=1.5)
    assert reported("router silent", result).faults["silence"] == 2
    assert result.verdict.ended["timeout"] > 0


@pytest.mark.long
def test_plain_programs_are_killed_while_they_are_busy(reported: Reported):
    router = {"link_heartbeat_seconds": 0.2, "link_unresponsive_seconds": 1.0}
    result = reported("plain programs", scenarios.plain_programs(12, kills=2, router=router, busy_seconds=3.0))
    assert result.faults["kill"] == 2 and result.verdict.submitted["cast"] > 40


@pytest.mark.long
def test_large_payloads_of_patched_programs(reported: Reported):
    result = reported("large payloads", scenarios.large_payloads(13, 1000, rate=200.0, timeout=5.0))
    assert result.figures["median_after_large_ms"] > 0, "no small call came after a large payload"


def test_casts_to_topics_that_nobody_has(reported: Reported):
    result = reported("misspelt topics", scenarios.misspelt(14, 1000, unclaimed_seconds=1.0, rate=300.0))
    assert result.figures["accounted"] == result.verdict.dropped > 100


@pytest.mark.long
def test_services_are_killed(reported: Reported):
    result = reported("services killed", scenarios.services_killed(2, services=3, count=1800, rate=600.0))
    assert result.faults["kill"] >= 2 and result.verdict.ended["ok"] > 800


@pytest.mark.long
def test_services_and_callers_are_stopped(reported: Reported):
    result = scenarios.stopped(3, 1000, lasts=(0.3, 2.5), every=0.8, rate=400.0, services=2, router=QUICK)
    assert reported("stopped", result).faults["stop"] >= 2


@pytest.mark.long
def test_callers_and_services_are_cut_off(reported: Reported):
    result = scenarios.partitioned(4, 1000, lasts=(0.1, 2.0), every=0.4, rate=350.0, services=2, router=QUICK)
    assert sum(reported("partitioned", result).faults.values()) >= 4


@pytest.mark.long
def test_a_slow_subscriber_hurts_itself_only(reported: Reported):
    result = scenarios.slow_subscriber(5, seconds=1.0, rate=1500.0)
    figures = reported("slow subscriber", result).figures
    assert figures["lost_alone"] == figures["lost_beside"] == 0
    assert figures["named_after_seconds"] < 30


@pytest.mark.long
def test_clients_come_and_go(reported: Reported):
    figures = reported("churn", scenarios.churn(6, connects=160, warm=50)).figures
    assert figures["links_left"] == 0 and figures["files_left"] <= 0


@pytest.mark.long
def test_the_disk_is_full(reported: Reported, tmp_path: Path):
    def fill(drill: Drill) -> Callable[[], None]:
        # Writes fail with EFBIG as they would with ENOSPC; it needs no rights.
        limits = resource.prlimit(drill.router.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        return lambda: resource.prlimit(drill.router.pid, resource.RLIMIT_FSIZE, limits) and None

    result = reported("disk full", scenarios.disk_full(7, 2000, tmp_path / "log", fill))
    assert result.figures["log_dropped"] > 0 and result.figures["log_written"] > 0
    assert "File too large" in result.figures["log_problem"]


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_small_file_system_is_full(reported: Reported, tmp_path: Path):
    spool = tmp_path / "log"
    spool.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(spool)], stderr=subprocess.PIPE, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")

    def fill(drill: Drill) -> Callable[[], None]:
        (spool / "filler").write_bytes(b"")
        with pytest.raises(OSError, match="No space left"):
            fill_up(spool / "filler")
        return (spool / "filler").unlink

    try:
        result = reported("disk full", scenarios.disk_full(8, 2000, spool, fill))
    finally:
        subprocess.run(["umount", "--lazy", str(spool)], check=True)
    assert result.figures["log_dropped"] > 0
    assert "No space left" in result.figures["log_problem"]


def fill_up(path: Path) -> None:
    with open(path, "ab", buffering=0) as file:
        file.writelines(b"x" * 1024 for _ in range(10_000))


@pytest.mark.long
def test_all_verbs_for_a_while(reported: Reported):
    figures = reported("soak", scenarios.soak(9, seconds=4.0, settle_seconds=2.0, rate=150.0, idle_seconds=1.0)).figures
    assert figures["stuck"] == 0
    assert set(figures["rss_drift_percent"]) == {"router", "s0", "s1", "e0", "c0"}


# --- with the figures of the table --------------------------------------------------------------

#: Three of four messages are calls: 200,000 or 100,000 of them.
LONG: dict[str, Callable[[], Result]] = {
    "router killed": lambda: scenarios.routers_killed(101, kills=20, count=200_000),
    "router restarted": lambda: scenarios.routers_restarted(108, restarts=12, count=60_000, rate=800.0),
    "router silent": lambda: scenarios.routers_silent(
        109,
        times=6,
        router={"link_heartbeat_seconds": 1.0, "link_unresponsive_seconds": 3.0, "link_lost_seconds": 12.0},
        rate=500.0,
        timeout=8.0,
    ),
    "plain programs": lambda: scenarios.plain_programs(
        110, kills=30, plain=3, callers=2, rate=300.0, busy_seconds=4.0, router=QUICK
    ),
    "large payloads": lambda: scenarios.large_payloads(111, 15_000, rate=150.0),
    "misspelt topics": lambda: scenarios.misspelt(112, 30_000, unclaimed_seconds=10.0, rate=500.0),
    "services killed": lambda: scenarios.services_killed(102, services=6, count=270_000),
    "stopped": lambda: scenarios.stopped(103, 135_000, lasts=(1.0, 20.0), every=5.0, rate=500.0),
    "partitioned": lambda: scenarios.partitioned(104, 135_000, lasts=(0.5, 20.0), every=4.0, rate=500.0),
    "slow subscriber": lambda: scenarios.slow_subscriber(105, seconds=300.0, rate=20_000.0),
    "churn": lambda: scenarios.churn(106, connects=10_000, warm=10_000),
    "soak": lambda: scenarios.soak(107, seconds=1800.0, settle_seconds=300.0, rate=300.0),
}


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", LONG)
def test_with_the_figures_of_the_table(name: str, reported: Reported):
    figures: dict[str, Any] = reported(name, LONG[name]()).figures
    if name == "slow subscriber":
        assert figures["p99_beside_ms"] <= 1.2 * figures["p99_alone_ms"] and figures["named_after_seconds"] <= 5
        # What may wait for one subscriber, and what a router's allocator keeps of it.
        assert figures["router_rss_growth_mib"] <= 2 * 16
    if name == "churn":
        assert figures["links_left"] == 0 and figures["files_left"] <= 0 and figures["rss_growth_percent"] <= 5
    if name == "soak":
        assert max(figures["rss_drift_percent"].values()) < 5 and figures["stuck"] == 0
        assert max(figures["idle_cpu_percent"].values()) < 2
