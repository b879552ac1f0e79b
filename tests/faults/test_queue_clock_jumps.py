"""Row 10 of the fault matrix: the clock of a queue server's machine is set again and again while items wait and run."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, NamedTuple

import gevent
import pytest
from gevent import subprocess

import rpcmq
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long, pytest.mark.timeout(900)]

_JUMPS = 50
_MONTH = 30 * 86400
_STEPS = (3600, 43_200, 86_400, 7 * 86_400, _MONTH)

#: Is imported by each Python that starts with its folder on the path: the clock is wrong by the number in a file.
_CLOCK = """
import os, time
right = time.time
def wrong():
    with open(os.environ["WRONG_BY"]) as file:
        return right() + float(file.read())
time.time = wrong
time.time_ns = lambda: int(wrong() * 1e9)
"""


class Machine:
    """Where the queue server runs, and its store's process, with a clock that is set from here."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._offset = folder / "offset"
        (folder / "sitecustomize.py").write_text(_CLOCK)
        self.set(0.0)

    def set(self, offset: float) -> None:
        """Have the clock show so many seconds more than the right time."""
        new = self._offset.with_suffix(".new")
        new.write_text(str(offset))
        new.replace(self._offset)

    @contextmanager
    def server(self) -> Iterator[Program]:
        """The queue server."""
        command = [sys.executable, "-m", "rpcmq.queue_server", "--router", self._url, "--owner", "here"]
        command += ["--store", str(self._folder / "store")]
        with Program(command, name="queue server", env=self._environment()) as process:
            process.expect("are served", 60)
            yield process

    def now(self) -> float:
        """What the clock shows."""
        command = [sys.executable, "-c", "import time; print(time.time())"]
        return float(subprocess.run(command, env=os.environ | self._environment(), check=True, stdout=-1).stdout)

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self._folder), os.environ.get("PYTHONPATH", "")])
        return {"PYTHONPATH": path, "WRONG_BY": str(self._offset)}


class Wanted(NamedTuple):
    """An item: monotonic seconds before and after its put, its delay, and its receipt."""

    asked: float
    accepted: float
    delay: int
    receipt: rpcmq.Receipt


class Work:
    """When each item was begun, and how often."""

    def __init__(self) -> None:
        self.begun: dict[str, float] = {}
        self.runs: Counter[str] = Counter()
        self.ticks: Counter[str] = Counter()

    def run(self, ctx: Any, name: str) -> str:
        self.begun.setdefault(name, monotonic())
        self.runs[name] += 1
        return name

    def tick(self, ctx: Any) -> None:
        item = rpcmq.current_item()
        assert item is not None
        self.ticks[item.id] += 1


@pytest.mark.parametrize("kills", [0.0, 0.15])
def test_no_jump_makes_an_item_early_or_late_or_puts_it_twice(tmp_path: Path, kills: float) -> None:
    random, work = Random(f"{kills}"), Work()
    wanted: dict[str, Wanted] = {}
    killed = 0
    with ExitStack() as stack:
        router = stack.enter_context(RouterProcess())
        client = stack.enter_context(rpcmq.Client(router.url, shell="gevent"))
        machine = Machine(tmp_path, router.url)
        machine.set(_MONTH)
        assert machine.now() > time.time() + _MONTH - 60
        running = stack.enter_context(ExitStack())
        server = running.enter_context(machine.server())
        # Where nothing is killed no worker is to lose an item because the machine was busy.
        client.declare_queue("work", lease=2 if kills else 60, losses=1000, timeout=60)
        client.declare_periodic({}, "work", "tick", "* * * * * *", {"method": "tick", "args": {}}, timeout=60)
        worker = rpcmq.Worker("work", work, router=router.url)
        worker.start(60)
        stack.callback(worker.stop, 5)
        for jump in range(_JUMPS):
            for each in range(3):
                name, delay, asked = f"{jump}-{each}", random.choice((0, 0, 2, 4)), monotonic()
                message = {"method": "run", "args": {"name": name}}
                receipt = client.put({}, "work", message, delay=delay, expires=900, keep_result=900, timeout=60)
                wanted[name] = Wanted(asked, monotonic(), delay, receipt)
            is_killed = random.random() < kills
            if is_killed:
                killed += 1
                server.kill()
            machine.set(random.choice((1, -1)) * random.choice(_STEPS) * random.random())
            if is_killed:
                running.close()
                server = running.enter_context(machine.server())
            gevent.sleep(0.25)
        machine.set(0.0)
        for name, item in wanted.items():
            assert item.receipt.result(60) == name
        eventually(lambda: work.ticks, 60, "periodic items come after all jumps, too")
    waited = {name: begun - wanted[name].asked for name, begun in work.begun.items()}
    assert not {name: seconds for name, seconds in waited.items() if seconds < wanted[name].delay - 0.01}, "early"
    if not killed:
        # Without a kill nothing is in doubt.
        assert max(work.runs.values()) == 1
        late = {name: work.begun[name] - item.accepted - item.delay for name, item in wanted.items()}
        assert not {name: seconds for name, seconds in late.items() if seconds > 60}, "late"
    assert (killed > 0) == (kills > 0)
    assert max(work.ticks.values()) == 1 or killed
