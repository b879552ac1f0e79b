"""Row 3 of the fault matrix: a crowd of clients at three routers; each call ends once, with its own answer."""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rpcmq.drill.faults import open_files
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.testing.router_mesh import RouterMesh

pytestmark = [pytest.mark.integration, pytest.mark.fault]

_PROGRAM = (sys.executable, "-m", "tests.faults.crowd")
_PATIENCE = 600.0
#: Connections of those who look at a router that may be open.
_VIEWS = 2


def started(folder: Path) -> Counter[int]:
    """How often each message was started."""
    counts: Counter[int] = Counter()
    for file in folder.glob("*.started"):
        numbers = array("q")
        numbers.frombytes(file.read_bytes())
        numbers.byteswap()
        counts.update(numbers)
    return counts


def crowd(folder: Path, processes: int, clients: int, seconds: float, count: int, **config: Any) -> dict[str, Any]:
    """Run ``processes`` with ``clients`` each at three routers, and return what was counted.

    Args:
        seconds, count: each process calls and casts for so long, or so often.
        config: of the routers.
    """
    with ExitStack() as stack:
        mesh = stack.enter_context(RouterMesh(3, **config))
        for router in mesh:
            file = folder / f"{router.name}.started"
            command = [*_PROGRAM, "service", router.url, str(file)]
            stack.enter_context(Program(command, name=f"service at {router.name}")).expect("^ready$", 60.0)
        before = {router: (open_files(router.pid), links(router)) for router in mesh}
        callers = [
            stack.enter_context(
                Program([*_PROGRAM, "clients", str(n), str(clients), ",".join(mesh.urls)], name=f"c{n}")
            )
            for n in range(1, processes + 1)
        ]
        for caller in callers:
            caller.expect("^ready$", _PATIENCE)
        figures: dict[str, Any] = {"clients": sum(links(router) - before[router][1] for router in mesh)}
        figures["descriptors beside connections"] = beside(before)
        for caller in callers:
            caller.tell(f"load {seconds} {count}")
        seen: Counter[str] = Counter()
        sent: set[int] = set()
        for caller in callers:
            said = json.loads(caller.expect("^seen (.*)", seconds + _PATIENCE)[1])
            first, number = said.pop("sent")
            sent |= set(range(first, first + number))
            seen.update(said)
        figures["descriptors beside connections, after the load"] = beside(before)
        # Of a cast nobody waits for the end.
        eventually(lambda: started(folder).keys() >= sent, 60.0, "all that was sent is started")
        for caller in callers:
            caller.tell("end")
            caller.expect("^closed$", _PATIENCE)
        eventually(lambda: all(links(r) <= had for r, (_, had) in before.items()), 60.0, "no link is left")
        figures["descriptors left"] = left_at_last(before)
    counts = started(folder)
    figures["submitted"] = {"call": len(sent) - seen["casts"], "cast": seen["casts"]}
    figures |= seen
    figures["sent"] = len(sent)
    figures["started twice"] = sum(number > 1 for number in counts.values())
    figures["started, and not sent"] = len(counts.keys() - sent)
    return figures


def links(router: RouterProcess) -> int:
    return int(router.varz()["links"])


def beside(before: dict[RouterProcess, tuple[int, int]]) -> list[int]:
    """For each router the files that it has opened since, without one for each new connection."""
    return [open_files(router.pid) - files - links(router) + had for router, (files, had) in before.items()]


def left(before: dict[RouterProcess, tuple[int, int]]) -> list[int]:
    """For each router the files that it has opened since."""
    return [open_files(router.pid) - files for router, (files, _) in before.items()]


def left_at_last(before: dict[RouterProcess, tuple[int, int]]) -> list[int] | dict[str, Counter[str]]:
    """What :func:`left` says once that is little; if it stays much, how many of each kind there are in all."""
    try:
        eventually(lambda: max(left(before)) <= _VIEWS, 60.0)
    except AssertionError:
        return {router.name: kinds_of_files(router.pid) for router in before}
    return left(before)


def kinds_of_files(pid: int) -> Counter[str]:
    """How many files of each kind a process has open."""
    return Counter(os.readlink(entry.path).partition("[")[0] for entry in os.scandir(f"/proc/{pid}/fd"))


def check(figures: dict[str, Any], clients: int) -> None:
    assert figures["clients"] == clients
    assert figures["answers"] + figures["casts"] == figures["sent"], "each call has its answer"
    assert figures.get("misrouted", 0) == figures["started twice"] == figures["started, and not sent"] == 0
    assert isinstance(figures["descriptors left"], list), figures["descriptors left"]
    for name in ("descriptors beside connections", "descriptors beside connections, after the load"):
        assert max(map(abs, figures[name])) <= _VIEWS, name


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_small_crowd(tmp_path: Path) -> None:
    check(crowd(tmp_path, processes=2, clients=30, seconds=60.0, count=300), 60)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ten_thousand_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("CROWD_SECONDS", "1800"))
    # With as many signs of life as a mesh has by default the clients alone would take two cores.
    slow = {"link_heartbeat_seconds": 20, "link_unresponsive_seconds": 50, "mesh_lost_seconds": 60}
    figures = crowd(tmp_path, processes=10, clients=1000, seconds=seconds, count=10**9, **slow)
    with capsys.disabled():
        print("\nresult", json.dumps({"scenario": "crowd at three routers", **figures}))
    check(figures, 10_000)
