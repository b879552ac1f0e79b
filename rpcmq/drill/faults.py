"""The faults of a drill. Each is a function that injects a fault, waits, and undoes it; several may run at once."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import gevent

from rpcmq.drill.disturbances import RESTART, SILENCE
from rpcmq.drill.place import Place
from rpcmq.drill.process_usage import open_files
from rpcmq.drill.result import Result
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology
from rpcmq.errors import UsageError

__all__ = ["FAULTS", "NEEDS_PLAIN", "NEEDS_PROXY", "Fault", "chosen", "run_drill"]

#: Called with the drill, where choices come from, and how long it lasts (seconds).
Fault = Callable[[Drill, Random, float], None]


def kill(drill: Drill, rng: Random, seconds: float) -> None:
    """Kill a service, and replace it after a while."""
    place = _pick(rng, drill.services)
    if place is None:
        return
    drill.kill(place)
    gevent.sleep(seconds)
    drill.revive(place)


def kill_plain(drill: Drill, rng: Random, seconds: float) -> None:
    """Kill a plain program while it computes or sleeps, when all its casts have left it."""
    place = _pick(rng, drill.named("plain"))
    if place is None:
        return
    place.is_starting = True  # nobody else takes it
    place.program.expect("^busy$", drill.topology.timeout + 30.0)
    gevent.sleep(drill.bounds.sent + rng.uniform(0.1, drill.topology.busy_seconds))
    drill.kill(place)
    gevent.sleep(seconds)
    drill.revive(place)


def stop(drill: Drill, rng: Random, seconds: float) -> None:
    """Stop a service or a caller (SIGSTOP), and resume it."""
    place = _pick(rng, [*drill.services, *drill.callers])
    if place is None:
        return
    drill.stop(place)
    gevent.sleep(seconds)
    if place.is_stopped:
        drill.resume(place)


def router(drill: Drill, rng: Random, seconds: float) -> None:
    """Kill the router, and restart it on its port."""
    if not drill.router_lock.acquire(blocking=False):
        return
    try:
        drill.kill_router()
        gevent.sleep(seconds)
        drill.restart_router()
    finally:
        drill.router_lock.release()


def router_restart(drill: Drill, rng: Random, seconds: float) -> None:
    """Stop the router in order (SIGTERM), and restart it on its port."""
    if not drill.router_lock.acquire(blocking=False):
        return
    try:
        drill.end_router()
        gevent.sleep(seconds)
        drill.restart_router(RESTART)
    finally:
        drill.router_lock.release()


def router_stop(drill: Drill, rng: Random, seconds: float) -> None:
    """Stop the router (SIGSTOP), and resume it."""
    _stop_router(drill, "stop", seconds)


def router_silent(drill: Drill, rng: Random, seconds: float) -> None:
    """The router is stopped for longer than ``link.unresponsive_seconds``: its processes must say so."""
    _stop_router(drill, SILENCE, drill.bounds.unresponsive + drill.bounds.noticed + seconds)


def router_lost(drill: Drill, rng: Random, seconds: float) -> None:
    """The router is stopped for longer than ``link.lost_seconds``: its processes must give the connection up."""
    _stop_router(drill, SILENCE, drill.bounds.lost + drill.bounds.noticed + seconds)


def _stop_router(drill: Drill, kind: str, seconds: float) -> None:
    if not drill.router_lock.acquire(blocking=False):
        return
    try:
        drill.router.pause()
        drill.fault(kind, "router")
        gevent.sleep(seconds)
        drill.healed(kind, "router")
        drill.router.resume()
    finally:
        drill.router_lock.release()


def reset(drill: Drill, rng: Random, seconds: float) -> None:
    """Reset the connections of a process."""
    place = _pick(rng, list(drill.places.values()))
    if place is not None:
        drill.fault("reset", place.life)
        drill.proxies[place.name].reset()
        # Until it has had the time to connect again.
        gevent.sleep(3.0)
        drill.healed("reset", place.life)


def partition(drill: Drill, rng: Random, seconds: float) -> None:
    """Cut a process off from the router, both ways; queued data arrives afterwards."""
    _cut(drill, rng, seconds, True, True)


def cut_to_router(drill: Drill, rng: Random, seconds: float) -> None:
    """Block traffic from a process to the router."""
    _cut(drill, rng, seconds, True, False)


def cut_to_process(drill: Drill, rng: Random, seconds: float) -> None:
    """Block traffic from the router to a process."""
    _cut(drill, rng, seconds, False, True)


def stall(drill: Drill, rng: Random, seconds: float) -> None:
    """Simulate packet loss: stall and release traffic repeatedly."""
    end = seconds
    while end > 0:
        pause = min(end, rng.uniform(0.05, 0.5))
        _cut(drill, rng, pause, True, True)
        end -= 2 * pause
        gevent.sleep(pause)


def _cut(drill: Drill, rng: Random, seconds: float, to_router: bool, to_process: bool) -> None:
    place = _pick(rng, list(drill.places.values()))
    if place is None:
        return
    life = place.life
    drill.fault("cut", life)
    drill.proxies[place.name].partition(to_router, to_process)
    gevent.sleep(seconds)
    drill.proxies[place.name].heal()
    drill.healed("cut", life)


def delay(drill: Drill, rng: Random, seconds: float) -> None:
    """Delay traffic between a process and the router by 50 to 500 ms."""
    place = _pick(rng, list(drill.places.values()))
    if place is None:
        return
    life, proxy = place.life, drill.proxies[place.name]
    drill.fault("delay", life)
    proxy.delay_seconds = rng.uniform(0.05, 0.5)
    gevent.sleep(seconds)
    proxy.delay_seconds = 0.0
    drill.healed("delay", life)


def half_open(drill: Drill, rng: Random, seconds: float) -> None:
    """Close a connection on the router's side only, for a while."""
    place = _pick(rng, list(drill.places.values()))
    if place is None:
        return
    life = place.life
    drill.fault("cut", life)
    drill.proxies[place.name].half_open()
    gevent.sleep(seconds)
    drill.proxies[place.name].reset()
    gevent.sleep(3.0)
    drill.healed("cut", life)


def hog(drill: Drill, rng: Random, seconds: float) -> None:
    """Let a handler block the processor of a service."""
    place = _pick(rng, drill.services)
    if place is not None:
        life = place.life
        drill.fault("hog", life)
        drill.hog(place, seconds)
        drill.healed("hog", life)


def slow_subscriber(drill: Drill, rng: Random, seconds: float) -> None:
    """Add a subscriber to all events that handles one a second."""
    place = drill.add(f"slow-{drill.next_number()}", "subscriber", slow_seconds=1.0)
    drill.expect_ready([place])
    drill.fault("slow subscriber", place.life)
    gevent.sleep(seconds)
    drill.dismiss(place)
    drill.healed("slow subscriber", place.life)


def disk_full(drill: Drill, rng: Random, seconds: float) -> None:
    """The router can write nothing: each write of its dispatch log fails with EFBIG."""
    _limit_router(drill, "disk full", resource.RLIMIT_FSIZE, 0, seconds)


def files(drill: Drill, rng: Random, seconds: float) -> None:
    """The router can open no more files and sockets than it has, while others want to connect."""
    if drill.router.exit_code is None:
        _limit_router(drill, "fds", resource.RLIMIT_NOFILE, open_files(drill.router.pid), seconds)


def _limit_router(drill: Drill, kind: str, limit: int, value: int, seconds: float) -> None:
    if not drill.router_lock.acquire(blocking=False):
        return
    try:
        pid = drill.router.pid
        soft, hard = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (value, hard))
        drill.fault(kind, "router")
        gevent.sleep(seconds)
        drill.healed(kind, "router")
        resource.prlimit(pid, limit, (soft, hard))
    finally:
        drill.router_lock.release()


def _pick(rng: Random, places: list[Place]) -> Place | None:
    """Pick a running process; None if there is none."""
    running = [p for p in places if p.program.exit_code is None and not (p.is_stopped or p.is_starting)]
    return rng.choice(running) if running else None


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "stop": stop,
    "kill-plain": kill_plain,
    "router": router,
    "router-restart": router_restart,
    "router-stop": router_stop,
    "router-silent": router_silent,
    "router-lost": router_lost,
    "reset": reset,
    "partition": partition,
    "cut-to-router": cut_to_router,
    "cut-to-process": cut_to_process,
    "stall": stall,
    "delay": delay,
    "half-open": half_open,
    "hog": hog,
    "slow-subscriber": slow_subscriber,
    "disk-full": disk_full,
    "files": files,
}

#: The faults that need plain programs.
NEEDS_PLAIN = ("kill-plain",)

#: The faults that need a proxy before each process.
NEEDS_PROXY = ("reset", "partition", "cut-to-router", "cut-to-process", "stall", "delay", "half-open")


def chosen(text: str) -> tuple[str, ...]:
    """The faults that a list with commas names.

    Raises:
        UsageError: one is unknown.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in names if name not in FAULTS]:
        raise UsageError(f"unknown faults: {', '.join(unknown)}; known: {', '.join(FAULTS)}")
    if not names:
        raise UsageError(f"no faults; known: {', '.join(FAULTS)}")
    return names


def run_drill(
    seed: int,
    topology: Topology,
    faults: tuple[str, ...],
    seconds: float,
    every: float,
    lasts: tuple[float, float],
    folder: Path | None = None,
) -> Result:
    """Run a drill: the load of ``topology``, and ``faults`` as :func:`_inject` says."""
    with Drill(topology, seed, folder) as drill:
        drill.load()
        _inject(drill, faults, seconds, every, lasts)
        return drill.finish()


def _inject(drill: Drill, names: tuple[str, ...], seconds: float, every: float, lasts: tuple[float, float]) -> None:
    """Inject a fault every ``every`` seconds for ``seconds``; return when the last is over.

    Args:
        lasts: the shortest and the longest time that one lasts (seconds).
    """
    running: list[gevent.Greenlet[..., None]] = []

    def begin() -> None:
        name = drill.rng.choice(names)
        rng = Random(drill.rng.random())
        running.append(gevent.spawn(FAULTS[name], drill, rng, drill.rng.uniform(*lasts)))

    drill.every(every, max(1, int(seconds / every)), begin)
    gevent.joinall(running, raise_error=True)
    if drill.router.exit_code is None:
        drill.router.signal(signal.SIGCONT)
