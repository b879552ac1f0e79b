"""A service with forked workers under load: workers are killed and ended, its router is killed and comes back.

A worker may be killed between the acknowledgement of a cast and its first step, or with an acknowledgement that has not
left it: only what a killed worker had may be lost, or begun twice.
"""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from processes import Router, eventually, program

KINDS = pytest.mark.parametrize("kind", ["native", "eventlet", "gevent"])

#: Of programs/workers.py and programs/load.py.
WORKERS, THREADS = 4, 4
CALLERS, MOST = 4, 1_000_000


class Drill:
    """The service, its load and the faults of both.

    Args:
        service: the program: "workers" forks and replaces them itself, "launched" has oslo.service do it.
    """

    def __init__(self, kind: str, folder: Path, router: Router, service: str) -> None:
        self.router = router
        self.tells_of_killed = service == "workers"
        self.journal = folder / "journal"
        self.journal.touch()
        self.killed: set[int] = set()
        self.faults = 0
        self.service = program(service, kind, router.url, str(self.journal), PYTHONWARNINGS="ignore")
        self.workers = [self.next_worker() for _ in range(WORKERS)]
        self.load = program("load", kind, router.url, PYTHONWARNINGS="ignore")
        self.load.expect("^loading$")

    def next_worker(self) -> int:
        return int(self.service.expect(r"^worker (\d+)$", 90)[1])

    def await_progress(self) -> None:
        """Calls and casts of all threads go on; what was said before does not count."""
        before = sum(line == "more" for line in self.load.lines)
        eventually(lambda: sum(line == "more" for line in self.load.lines) >= before + 2, 90)

    def end_worker(self, number: int, by: signal.Signals) -> None:
        pid = self.workers.pop(number)
        if by == signal.SIGKILL:
            self.killed.add(pid)
        self.faults += 1
        os.kill(pid, by)
        if by == signal.SIGTERM or self.tells_of_killed:
            code = self.service.expect(rf"^ended {pid} (-?\d+)$")[1]
            assert code == ("-9" if by == signal.SIGKILL else "0")
        self.workers.append(self.next_worker())

    def kill_router(self) -> None:
        self.faults += 1
        self.router.kill()
        self.router.restart()

    def end(self) -> None:
        """End the load, await what it has sent, and end the service in good order."""
        self.load.signal(signal.SIGTERM)
        casts = [int(n) for n in self.load.expect(r"^casts (.*)$", 120)[1].split()]
        answered, failed = map(int, self.load.expect(r"^calls (\d+) (\d+)$").groups())
        assert self.load.wait() == 0
        failures = [line for line in self.load.lines if line.startswith("failed:")]
        # The calls that were in flight end at once, and say why; none waits for its 90 s.
        assert failed <= CALLERS * self.faults and not any("within 90 s" in line for line in failures), failures
        assert answered
        sent = {number * MOST + n for number, count in enumerate(casts) for n in range(count)}
        eventually(lambda: len(sent - self.runs("end").keys()) <= len(self.killed) * THREADS, 60)
        self.service.signal(signal.SIGTERM)
        assert self.service.expect(r"^codes (.*)$", 90)[1] == str([0] * WORKERS)
        assert self.service.wait() == 0
        self.check(sent)
        print(f"{len(sent)} casts, {answered} calls answered, {len(failures)} failed", *failures, sep="\n")

    def runs(self, what: str) -> dict[int, list[int]]:
        """Number of a cast -> the workers that have begun it, or ended it."""
        found = defaultdict(list)
        for line in self.journal.read_text().splitlines():
            word, n, pid = line.split()
            if word == what:
                found[int(n)].append(int(pid))
        return found

    def check(self, sent: set[int]) -> None:
        begun, ended = self.runs("begin"), self.runs("end")
        assert begun.keys() <= sent
        assert len(sent - begun.keys()) <= len(self.killed) * THREADS, "lost"
        for n, pids in begun.items():
            assert len(pids) == 1 or (len(pids) == 2 and pids[0] in self.killed), f"{n} has run {len(pids)} times"
            for pid in set(pids) - set(ended[n]):
                assert pid in self.killed, f"{n} has not ended in {pid}"
        assert sum(len(pids) > 1 for pids in begun.values()) <= len(self.killed) * THREADS, "doubled"

    def close(self) -> None:
        self.load.close()
        # It forks on while it lives.
        self.service.close()
        for pid in self.workers:
            # Those that have ended in good order are gone.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def drill(kind: str, folder: Path, faults: list[str], service: str = "workers") -> None:
    # On a busy machine workers come back later than usual; one that is not back cannot say what it has begun.
    with Router(router_recovery_seconds="10") as router:
        drill = Drill(kind, folder, router, service)
        try:
            for fault in faults:
                drill.await_progress()
                if fault == "router":
                    drill.kill_router()
                else:
                    drill.end_worker(0, signal.SIGKILL if fault == "kill" else signal.SIGTERM)
            drill.await_progress()
            drill.end()
        finally:
            drill.close()


@KINDS
def test_workers_and_the_router_are_killed(kind: str, tmp_path: Path) -> None:
    drill(kind, tmp_path, ["kill", "router", "term"])


@pytest.mark.parametrize("kind", ["native", "eventlet"])
def test_workers_that_oslo_service_launches_and_the_router_are_killed(kind: str, tmp_path: Path) -> None:
    drill(kind, tmp_path, ["kill", "router", "term"], "launched")


@pytest.mark.long
@pytest.mark.timeout(1200)
@KINDS
def test_workers_and_the_router_are_killed_again_and_again(kind: str, tmp_path: Path) -> None:
    drill(kind, tmp_path, random.Random(15).choices(["kill", "kill", "term", "router"], k=40))
