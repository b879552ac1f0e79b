"""The scenarios that docs/guarantees.md reports: each a load, its faults, and what is measured beside the verdict.

Each takes the figures that a short and a long run differ in, and a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import gevent

from rpcmq.drill.faults import FAULTS, open_files
from rpcmq.drill.history import What
from rpcmq.drill.result import Result
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology
from rpcmq.testing import eventually
from tests.faults.process_usage import cpu_seconds, rss_bytes

__all__ = [
    "churn",
    "disk_full",
    "large_payloads",
    "misspelt",
    "partitioned",
    "plain_programs",
    "routers_killed",
    "routers_restarted",
    "routers_silent",
    "services_killed",
    "slow_subscriber",
    "soak",
    "stopped",
]

#: Has roles of its own beside those of a drill.
_PROGRAM = "tests.faults.roles"
#: Longest duration of a load (seconds).
_PATIENCE = 7200.0


def _when_sent(drill: Drill, count: int) -> None:
    """Wait until about ``count`` messages are sent."""
    eventually(lambda: drill.sent >= count or all(c.program.exit_code is not None for c in drill.callers), _PATIENCE)


def _is_loaded(drill: Drill) -> bool:
    return any(caller.program.exit_code is None for caller in drill.callers)


def routers_killed(seed: int, kills: int, count: int, folder: Path | None = None, **topology: Any) -> Result:
    """The router is killed and comes back, ``kills`` times while ``count`` messages are sent."""
    chosen: dict[str, Any] = {"services": 3, "callers": 1, "workers": 32} | topology
    with Drill(Topology(**chosen), seed, folder) as drill:
        drill.load(count)
        for number in range(kills):
            _when_sent(drill, count * (number + 1) // (kills + 2))
            FAULTS["router"](drill, drill.rng, drill.rng.choice((0.0, 0.1, 0.5, 1.5)))
        drill.wait_sent(_PATIENCE)
        return drill.finish()


def routers_restarted(seed: int, restarts: int, count: int, **topology: Any) -> Result:
    """The router is stopped in order and comes back, ``restarts`` times while ``count`` messages are sent."""
    chosen: dict[str, Any] = {
        "services": 3, "callers": 2, "workers": 40, "handler_seconds": (0.0, 0.0, 0.002, 0.02), "mandatory": 0.5,
        "nested": 0.25, "concurrency": 64,
    }  # fmt: skip
    with Drill(Topology(**chosen | topology), seed) as drill:
        drill.load(count)
        for number in range(restarts):
            _when_sent(drill, count * (number + 1) // (restarts + 2))
            FAULTS["router-restart"](drill, drill.rng, drill.rng.choice((0.0, 0.1, 0.5, 1.5)))
        drill.wait_sent(_PATIENCE)
        return drill.finish()


def routers_silent(seed: int, times: int, router: dict[str, Any], **topology: Any) -> Result:
    """The router is stopped for longer than its processes wait before they say so, or before they give it up, by turns.

    Args:
        router: its settings, ``link_unresponsive_seconds`` and ``link_lost_seconds`` among them.
    """
    chosen: dict[str, Any] = {"services": 2, "callers": 2, "subscribers": 1, "workers": 8, "router": router}
    with Drill(Topology(**chosen | topology), seed) as drill:
        drill.load()
        for number in range(times):
            # Each is judged by itself: after the one before, everybody has been back for long enough.
            gevent.sleep(drill.bounds.unresponsive + drill.bounds.recovery)
            FAULTS[("router-silent", "router-lost")[number % 2]](drill, drill.rng, drill.rng.choice((0.0, 0.5, 1.0)))
        gevent.sleep(drill.bounds.recovery)
        return drill.finish()


def plain_programs(seed: int, kills: int, **topology: Any) -> Result:
    """Programs of threads without gevent call and cast, then compute and sleep; they are killed meanwhile."""
    chosen: dict[str, Any] = {"services": 2, "callers": 1, "workers": 4, "rate": 50.0, "plain": 2}
    with Drill(Topology(**chosen | topology), seed) as drill:
        drill.load()
        # One after the other is watched until it has been busy for as long as it should.
        for _ in range(kills):
            FAULTS["kill-plain"](drill, drill.rng, 0.0)
        return drill.finish()


def large_payloads(seed: int, count: int, **topology: Any) -> Result:
    """Programs that gevent has patched send and get some large payloads among small ones."""
    chosen: dict[str, Any] = {
        "services": 2, "callers": 2, "workers": 8, "large": 0.05, "patched": True, "handler_seconds": (0.0,),
    }  # fmt: skip
    with Drill(Topology(**chosen | topology), seed) as drill:
        drill.load(count)
        drill.wait_sent(_PATIENCE)
        result = drill.finish()
    result.figures["median_after_large_ms"] = round(result.verdict.after_large * 1000, 1)
    return result


def misspelt(seed: int, count: int, unclaimed_seconds: float, **topology: Any) -> Result:
    """Casts to topics that nobody has, among others: each is accounted for.

    Args:
        unclaimed_seconds: how long the router keeps them.
    """
    chosen: dict[str, Any] = {
        "services": 2, "callers": 2, "workers": 8, "misspelt": 0.3, "verbs": {"call": 1, "cast": 3},
        "router": {"mailbox_unclaimed_seconds": unclaimed_seconds},
    }  # fmt: skip
    with Drill(Topology(**chosen | topology), seed) as drill:
        drill.load(count)
        drill.wait_sent(_PATIENCE)
        result = drill.finish()
    result.figures["accounted"] = result.verdict.accounted
    return result


def services_killed(seed: int, services: int, count: int, every: float = 1.0, **topology: Any) -> Result:
    """One of the services is killed every second, and comes back."""
    chosen: dict[str, Any] = {
        "services": services, "callers": 1, "workers": 32, "handler_seconds": (0.0, 0.002, 0.05), "idempotent": 0.3,
    }  # fmt: skip
    with Drill(Topology(**chosen | topology), seed) as drill:
        drill.load(count)
        running: list[gevent.Greenlet[..., None]] = []
        while _is_loaded(drill):
            running.append(gevent.spawn(FAULTS["kill"], drill, Random(drill.rng.random()), 0.0))
            gevent.sleep(every)
        gevent.joinall(running, raise_error=True)
        return drill.finish()


def stopped(seed: int, count: int, lasts: tuple[float, float], every: float, **topology: Any) -> Result:
    """Stop services and callers (SIGSTOP), and resume them."""
    chosen: dict[str, Any] = {"services": 3, "callers": 2, "workers": 16, "timeout": 30.0} | topology
    return _while_loaded(seed, count, ("stop",), lasts, every, Topology(**chosen))


def partitioned(seed: int, count: int, lasts: tuple[float, float], every: float, **topology: Any) -> Result:
    """Callers and services are cut off, one way or both, and healed; connections are reset, delayed, half-open."""
    faults = ("partition", "partition", "cut-to-router", "cut-to-process", "reset", "half-open", "delay", "stall")
    chosen: dict[str, Any] = {"services": 3, "callers": 2, "workers": 16, "timeout": 30.0, "direct": False}
    return _while_loaded(seed, count, faults, lasts, every, Topology(**chosen | topology))


def _while_loaded(
    seed: int, count: int, faults: tuple[str, ...], lasts: tuple[float, float], every: float, topology: Topology
) -> Result:
    with Drill(topology, seed) as drill:
        drill.load(count)
        running: list[gevent.Greenlet[..., None]] = []
        while _is_loaded(drill):
            rng = Random(drill.rng.random())
            running.append(gevent.spawn(FAULTS[drill.rng.choice(faults)], drill, rng, drill.rng.uniform(*lasts)))
            gevent.sleep(every)
        gevent.joinall(running, raise_error=True)
        return drill.finish()


def slow_subscriber(seed: int, seconds: float, rate: float) -> Result:
    """A subscriber handles one event a second of ``rate`` that are published; what does another one notice?"""
    topology = Topology(services=0, callers=0, rate=rate)
    figures: dict[str, Any] = {"published_a_second": rate}
    with Drill(topology, seed, program=_PROGRAM) as drill:
        drill.expect_ready([drill.add("publisher", "publisher")])
        for phase in ("alone", "beside a slow one"):
            quick = drill.add(f"quick {phase}", "listener")
            drill.expect_ready([quick])
            if phase != "alone":
                before = rss_bytes(drill.router.pid)
                slow = drill.add("slow", "subscriber", slow_seconds=1.0)
                drill.expect_ready([slow])
                began = monotonic()
                eventually(lambda: _is_slow(drill, "slow"), 60.0)
                figures["named_after_seconds"] = round(monotonic() - began, 2)
            gevent.sleep(seconds)
            if phase != "alone":
                figures["router_rss_growth_mib"] = round((rss_bytes(drill.router.pid) - before) / 2**20, 1)
                slow.program.kill()
                drill.fault("kill", slow.life)
                del drill.places["slow"]
            drill.stop_place(quick)
        result = drill.finish()
        for event in drill.events():
            if event.what == What.COUNTED and event.process.startswith("quick"):
                name = "p99_alone_ms" if "alone" in event.process else "p99_beside_ms"
                figures[name] = round(event.fields["p99"] * 1000, 2)
                figures[name.replace("p99", "lost").removesuffix("_ms")] = event.fields["events lost"]
    result.figures |= figures
    return result


def _is_slow(drill: Drill, name: str) -> bool:
    rows = drill.router.view("processes")["processes"]
    return any(row["identity"] == name and row.get("slow") for row in rows)


def churn(seed: int, connects: int, warm: int, processes: int = 2) -> Result:
    """Connect and disconnect clients, every third without GOODBYE; check what they leave behind.

    What as many as ``warm`` of them leave is not counted: a router's tables and its allocator's pools grow at first.
    """
    topology = Topology(
        services=1,
        callers=0,
        router={"link_resume_seconds": 2, "mailbox_max_seconds": 2, "mailbox_unclaimed_seconds": 2},
    )
    with Drill(topology, seed, program=_PROGRAM) as drill:
        router = drill.router
        for phase, count in (("warm", warm), ("churn", connects)):
            places = [drill.add(f"{phase}-{n}", "churn", count=count // processes) for n in range(processes)]
            for place in places:
                if (code := place.program.wait(_PATIENCE)) != 0:
                    raise AssertionError(f"{place.name} ended with {code}: {place.program.said()}")
            eventually(lambda: router.varz()["links"] == 1, 30.0, "links that nobody has any more")
            eventually(lambda: router.varz()["topics"] <= 2, 30.0, "topics that nobody uses any more")
            if phase == "warm":
                rss, files = rss_bytes(router.pid), open_files(router.pid)
        # One that answers a look at /varz may still be open.
        eventually(lambda: open_files(router.pid) <= files, 30.0, "descriptors that nobody uses any more")
        figures = {
            "connects": connects,
            # Before the next look.
            "files_left": open_files(router.pid) - files,
            "links_left": router.varz()["links"] - 1,
            "rss_growth_percent": round((rss_bytes(router.pid) / rss - 1) * 100, 1),
        }
        return drill.finish(figures)


def soak(seed: int, seconds: float, settle_seconds: float, rate: float, idle_seconds: float = 20.0) -> Result:
    """All verbs at an even rate for long; does memory grow, is anything stuck, and is it quiet afterwards?"""
    topology = Topology(
        services=2, callers=1, subscribers=1, workers=16, rate=rate,
        verbs={"call": 4, "cast": 3, "fanout": 1, "publish": 2}, sizes=(50, 500, 40_000), hogging=0.001,
        handler_seconds=(0.0, 0.002, 0.02), idempotent=0.2,
    )  # fmt: skip
    with Drill(topology, seed) as drill:
        drill.load()
        gevent.sleep(settle_seconds)
        pids = {"router": drill.router.pid} | {place.name: place.program.pid for place in drill.places.values()}
        settled = {name: rss_bytes(pid) for name, pid in pids.items()}
        stuck, end = 0, monotonic() + seconds - settle_seconds
        while monotonic() < end:
            gevent.sleep(min(5.0, max(0.1, end - monotonic())))
            stuck = max(stuck, drill.router.varz()["stuck"])
        drift = {name: round((rss_bytes(pid) / settled[name] - 1) * 100, 1) for name, pid in pids.items()}
        drill.end_load()
        eventually(lambda: drill.is_idle, 60.0)
        quiet = {name: pid for name, pid in pids.items() if not name.startswith("c")}
        before = {name: cpu_seconds(pid) for name, pid in quiet.items()}
        gevent.sleep(idle_seconds)
        idle = {name: round((cpu_seconds(pid) - before[name]) / idle_seconds * 100, 2) for name, pid in quiet.items()}
        return drill.finish({"rss_drift_percent": drift, "stuck": stuck, "idle_cpu_percent": idle})


def disk_full(seed: int, count: int, spool: Path, fill: Callable[[Drill], Callable[[], None]]) -> Result:
    """Fill the disk under the dispatch log for a while; only the log may be affected.

    Args:
        spool: the folder of the dispatch log.
        fill: makes it full; returns what makes room again.
    """
    topology = Topology(
        services=2, callers=1, workers=16, rate=500.0,
        router={
            "dispatch_log_directory": str(spool), "dispatch_log_segment_seconds": 0.2,
            "dispatch_log_segment_records": 1000,
        },
    )  # fmt: skip
    with Drill(topology, seed) as drill:
        drill.load(count)
        _when_sent(drill, count // 4)
        empty = fill(drill)
        drill.fault("disk full", "router")
        eventually(lambda: drill.router.varz()["dispatch_log"]["dropped"] > 0, 60.0, "records that were dropped")
        problem = drill.router.varz()["dispatch_log"]["problem"]
        _when_sent(drill, count // 2)
        drill.healed("disk full", "router")
        empty()
        written = drill.router.varz()["dispatch_log"]["records"]
        drill.wait_sent(_PATIENCE)
        eventually(lambda: drill.router.varz()["dispatch_log"]["records"] > written, 60.0, "records that are written")
        log = drill.router.varz()["dispatch_log"]
        return drill.finish({"log_dropped": log["dropped"], "log_written": log["records"], "log_problem": problem})
