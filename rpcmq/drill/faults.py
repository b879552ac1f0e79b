"""The faults of a drill. Each is a function that injects a fault, waits, and undoes it; several may run at once."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic

import gevent

from rpcmq.drill.disturbances import RESTART, SILENCE
from rpcmq.drill.mesh import MeshDrill, drill_of
from rpcmq.drill.place import Place
from rpcmq.drill.result import Result
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology
from rpcmq.errors import UsageError

__all__ = ["FAULTS", "NEEDS_PLAIN", "NEEDS_PROXY", "OF_A_MESH", "Fault", "chosen", "open_files", "run_drill"]

#: Called with the drill, where choices come from, and how long it lasts (seconds).
Fault = Callable[[Drill, Random, float], None]
#: The same of one process, and of the router.
_OfProcess = Callable[[Drill, Place, Random, float], None]
_OfRouter = Callable[[Drill, float], None]
#: Time for a process to connect again (seconds).
_RECONNECTED = 3.0


def _process(fault: _OfProcess, *roles: str) -> Fault:
    """``fault`` of a running process with one of ``roles`` (none: of any); of none if there is none."""

    def inject(drill: Drill, rng: Random, seconds: float) -> None:
        places = [p for role in roles for p in drill.named(role)] if roles else list(drill.places.values())
        running = [p for p in places if p.program.exit_code is None and not (p.is_stopped or p.is_starting)]
        if running:
            fault(drill, rng.choice(running), rng, seconds)

    return inject


def _router(fault: _OfRouter) -> Fault:
    """``fault`` of the router, unless it has another one."""

    def inject(drill: Drill, rng: Random, seconds: float) -> None:
        if drill.router_lock.acquire(blocking=False):
            try:
                with drill.router_fault():
                    fault(drill, seconds)
            finally:
                drill.router_lock.release()

    return inject


@contextmanager
def _written(drill: Drill, kind: str, target: str) -> Iterator[None]:
    """Write down when a fault begins, and that it is over."""
    drill.fault(kind, target)
    yield
    drill.healed(kind, target)


# --- of a process --------------------------------------------------------------------------------


def _kill(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    drill.kill(place)
    gevent.sleep(seconds)
    drill.revive(place)


def _kill_plain(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    """Kill it while it computes or sleeps, when all its casts have left it."""
    place.is_starting = True  # nobody else takes it
    place.program.expect("^busy$", drill.topology.timeout + 30.0)
    gevent.sleep(drill.bounds.sent + rng.uniform(0.1, drill.topology.busy_seconds))
    _kill(drill, place, rng, seconds)


def _stop(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    drill.stop(place)
    gevent.sleep(seconds)
    if place.is_stopped:
        drill.resume(place)


def _reset(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    with _written(drill, "reset", place.life):
        drill.proxies[place.name].reset()
        gevent.sleep(_RECONNECTED)


def _cut(to_router: bool, to_process: bool) -> Fault:
    """Block traffic in one direction or both; queued data arrives afterwards."""

    def cut(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
        with _written(drill, "cut", place.life):
            drill.proxies[place.name].partition(to_router, to_process)
            gevent.sleep(seconds)
            drill.proxies[place.name].heal()

    return _process(cut)


def _stall(drill: Drill, rng: Random, seconds: float) -> None:
    """Simulate packet loss: stall and release traffic repeatedly."""
    end = seconds
    while end > 0:
        pause = min(end, rng.uniform(0.05, 0.5))
        _cut(True, True)(drill, rng, pause)
        end -= 2 * pause
        gevent.sleep(pause)


def _delay(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    with _written(drill, "delay", place.life):
        drill.proxies[place.name].delay_seconds = rng.uniform(0.05, 0.5)
        gevent.sleep(seconds)
        drill.proxies[place.name].delay_seconds = 0.0


def _half_open(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    """Close a connection on the router's side only, for a while."""
    with _written(drill, "cut", place.life):
        drill.proxies[place.name].half_open()
        gevent.sleep(seconds)
        drill.proxies[place.name].reset()
        gevent.sleep(_RECONNECTED)


def _hog(drill: Drill, place: Place, rng: Random, seconds: float) -> None:
    """Let a handler block the processor of a service."""
    with _written(drill, "hog", place.life):
        drill.hog(place, seconds)


def _slow_subscriber(drill: Drill, rng: Random, seconds: float) -> None:
    """Add a subscriber to all events that handles one a second."""
    place = drill.add(f"slow-{drill.next_number()}", "subscriber", slow_seconds=1.0)
    drill.expect_ready([place])
    with _written(drill, "slow subscriber", place.life):
        gevent.sleep(seconds)
        drill.stop_place(place)


# --- of the router -------------------------------------------------------------------------------


def _kill_router(drill: Drill, seconds: float) -> None:
    drill.kill_router()
    gevent.sleep(seconds)
    drill.restart_router()


def _restart_router(drill: Drill, seconds: float) -> None:
    drill.end_router()
    gevent.sleep(seconds)
    drill.restart_router(RESTART)


def _stop_router(drill: Drill, seconds: float, kind: str = "stop") -> None:
    drill.router.pause()
    with _written(drill, kind, "router"):
        gevent.sleep(seconds)
    drill.router.resume()


def _silence_router(drill: Drill, seconds: float) -> None:
    """Stop it for longer than ``link.unresponsive_seconds``: its processes must say so."""
    _stop_router(drill, drill.bounds.unresponsive + drill.bounds.noticed + seconds, SILENCE)


def _lose_router(drill: Drill, seconds: float) -> None:
    """Stop it for longer than ``link.lost_seconds``: its processes must give the connection up."""
    _stop_router(drill, drill.bounds.lost + drill.bounds.noticed + seconds, SILENCE)


def _fill_disk(drill: Drill, seconds: float) -> None:
    """It can write nothing: each write of its dispatch log fails with EFBIG."""
    _limit_router(drill, "disk full", resource.RLIMIT_FSIZE, 0, seconds)


def _take_files(drill: Drill, seconds: float) -> None:
    """It can open no more files and sockets than it has, while others want to connect."""
    if drill.router.exit_code is None:
        _limit_router(drill, "fds", resource.RLIMIT_NOFILE, open_files(drill.router.pid), seconds)


def _limit_router(drill: Drill, kind: str, limit: int, value: int, seconds: float) -> None:
    pid = drill.router.pid
    soft, hard = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (value, hard))
    with _written(drill, kind, "router"):
        gevent.sleep(seconds)
    resource.prlimit(pid, limit, (soft, hard))


def open_files(pid: int) -> int:
    """Return the number of files and sockets a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


# --- of the links between routers -----------------------------------------------------------------


def _link(kind: str) -> Fault:
    """A fault of the link between two routers, unless a router, or a link, has one."""

    def inject(drill: Drill, rng: Random, seconds: float) -> None:
        if isinstance(drill, MeshDrill) and drill.router_lock.acquire(blocking=False):
            try:
                with drill.link_fault(kind):
                    gevent.sleep(seconds)
            finally:
                drill.router_lock.release()

    return inject


FAULTS: dict[str, Fault] = {
    "kill": _process(_kill, "service"),
    "stop": _process(_stop, "service", "caller"),
    "kill-plain": _process(_kill_plain, "plain"),
    "router": _router(_kill_router),
    "router-restart": _router(_restart_router),
    "router-stop": _router(_stop_router),
    "router-silent": _router(_silence_router),
    "router-lost": _router(_lose_router),
    "reset": _process(_reset),
    "partition": _cut(True, True),
    "cut-to-router": _cut(True, False),
    "cut-to-process": _cut(False, True),
    "stall": _stall,
    "delay": _process(_delay),
    "half-open": _process(_half_open),
    "hog": _process(_hog, "service"),
    "slow-subscriber": _slow_subscriber,
    "disk-full": _router(_fill_disk),
    "files": _router(_take_files),
    "link-cut": _link("cut"),
    "link-reset": _link("reset"),
}

#: The faults that a drill with several routers may have.
OF_A_MESH = (
    "kill", "stop", "router", "router-restart", "router-stop", "hog", "slow-subscriber", "link-cut", "link-reset",
)  # fmt: skip

#: The faults that only a drill with several routers may have.
_OF_LINKS = ("link-cut", "link-reset")

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


def check_faults(names: tuple[str, ...], topology: Topology) -> None:
    """Refuse faults, and loads, of one router only.

    Raises:
        UsageError: the topology has several routers, and these are not for such a drill; or the other way round.
    """
    if topology.routers == 1:
        if unfit := [name for name in names if name in _OF_LINKS]:
            raise UsageError(f"only with several routers (--routers 3): {', '.join(unfit)}")
        return
    if unfit := [name for name in names if name not in OF_A_MESH]:
        raise UsageError(f"not with several routers: {', '.join(unfit)}; these are: {', '.join(OF_A_MESH)}")
    if topology.misspelt:
        raise UsageError("not with several routers: misspelt, whose casts the router counts")


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
    with drill_of(topology, seed, folder) as drill:
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

    try:
        due = monotonic()
        for _ in range(max(1, int(seconds / every))):
            begin()
            due += every
            gevent.sleep(max(0.0, due - monotonic()))
        gevent.joinall(running, raise_error=True)
    finally:
        # None starts a process any more when the drill ends early.
        gevent.killall(running)
    for router in drill.routers:
        if router.exit_code is None:
            router.signal(signal.SIGCONT)
