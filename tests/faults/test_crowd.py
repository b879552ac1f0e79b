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
#: Files of the three routers that may be open beside those before: connections of who looks at them. They are counted
#: together: a link between two of them takes more files at the one that has dialed, which may be the other one later.
_FEW = 6


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
        before = {router: (kinds_of_files(router.pid), links(router)) for router in mesh}
        callers = [
            stack.enter_context(
                Program([*_PROGRAM, "clients", str(n), str(clients), ",".join(mesh.urls)], name=f"c{n}")
            )
            for n in range(1, processes + 1)
        ]
        for caller in callers:
            caller.expect("^ready$", _PATIENCE)
        figures: dict[str, Any] = {"clients": sum(links(router) - before[router][1] for router in mesh)}
        figures["descriptors beside connections"] = beside_at_last(before)
        for caller in callers:
            caller.tell(f"load {seconds} {count}")
        seen: Counter[str] = Counter()
        sent: set[int] = set()
        for caller in callers:
            said = json.loads(caller.expect("^seen (.*)", seconds + _PATIENCE)[1])
            first, number = said.pop("sent")
            sent |= set(range(first, first + number))
            seen.update(said)
        figures["descriptors beside connections, after the load"] = beside_at_last(before)
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


Before = dict[RouterProcess, tuple[Counter[str], int]]


def beside_at_last(before: Before) -> list[int]:
    """For each router the files that it has opened since, without one for each new connection, once these rest."""
    try:
        eventually(lambda: abs(sum(beside(before))) <= _FEW, 60.0)
    except AssertionError:
        pass  # the figures say so
    return beside(before)


def beside(before: Before) -> list[int]:
    return [open_files(router.pid) - files.total() - links(router) + had for router, (files, had) in before.items()]


def left_at_last(before: Before) -> dict[str, int]:
    """The files that routers have opened since, by their kinds, once they are few."""
    try:
        eventually(lambda: left(before).total() <= _FEW, 60.0)
    except AssertionError:
        pass  # the figures say so
    return dict(left(before))


def left(before: Before) -> Counter[str]:
    now, then = Counter[str](), Counter[str]()
    for router, (files, _) in before.items():
        now += kinds_of_files(router.pid)
        then += files
    return now - then


def kinds_of_files(pid: int) -> Counter[str]:
    """How many files of each kind a process has open."""
    kinds: Counter[str] = Counter()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            name = os.readlink(entry.path)
        except FileNotFoundError:
            continue  # closed meanwhile
        kinds["/proc" if name.startswith("/proc") else name.partition(":[")[0]] += 1
    return kinds


def check(figures: dict[str, Any], clients: int) -> None:
    assert figures["clients"] == clients
    assert figures["answers"] + figures["casts"] == figures["sent"], "each call has its answer"
    assert figures.get("misrouted", 0) == figures["started twice"] == figures["started, and not sent"] == 0
    assert sum(figures["descriptors left"].values()) <= _FEW, figures["descriptors left"]
    for name in ("descriptors beside connections", "descriptors beside connections, after the load"):
        assert abs(sum(figures[name])) <= _FEW, name


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
