"""The lost-wake-up stress test.

libzmq tells of new messages by an edge on a file descriptor. Whoever misses one sits still although
there is work, until something else happens. Here messages of all sizes go both ways between three
processes, in bursts and with pauses; nobody may sit still, and no watchdog may have found anything.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from time import monotonic

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.testing.processes import Program, RouterProcess
from tests.integration.cluster import message, program

#: Longest time without a message going to or fro (seconds).
_STALL = 10.0


def stress(messages: int, seed: int) -> None:
    with (
        RouterProcess() as router,
        program("stress_service", router.url) as far,
        program("stress_client", router.url, messages, seed) as near,
    ):
        far.expect("serving")
        try:
            found = watch(near)
        except AssertionError as stall:
            raise AssertionError(f"{stall}\n{who_sits_still(near, far, router)}") from None
        words = found[0].split()
        done = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        assert done["done"] >= messages
        assert done["casts"] == done["back"] == done["once"]
        assert near.wait(30) == 0, near.said()
        with Client(router.url) as client:
            health = client.call(None, "far", message("health"))
            assert health == {"lost_wakeups": 0, "casts": done["casts"]}
        assert done["lost_wakeups"] == 0
        varz = router.varz()
        assert varz["process"]["lost_wakeups"] == 0
        assert varz["process"]["internal_errors"] == {}
        assert varz["calls_in_flight"] == 0
        assert varz["counters"].get("late replies", 0) == 0
        print(f"{done['done']} messages, {done['casts']} casts there and back, no wake-up lost")


def watch(near: Program) -> re.Match[str]:
    """Its last line, once it has come there without a stall."""
    at, since = -1, monotonic()
    while True:
        found = near.expect(r"^at (\d+)$|^done .* lost_wakeups (\d+)$", _STALL)
        if found[2] is not None:
            return found
        if int(found[1]) > at:
            at, since = int(found[1]), monotonic()
        assert monotonic() - since < _STALL, f"no message for {_STALL:g} s, after {at}"


def who_sits_still(near: Program, far: Program, router: RouterProcess) -> str:
    """The activity of each of the three."""
    told = []
    for each in (near, far, router):
        before = cpu_seconds(each)
        gevent.sleep(1.0)
        told.append(f"{each.name}: {cpu_seconds(each) - before:.2f} s of CPU in a second")
    for each in (near, far):
        each.signal(signal.SIGUSR1)
    gevent.sleep(0.5)
    told += [f"{each.name} says:\n{each.said()}" for each in (near, far)]
    return "\n".join([*told, str(router.varz())])


def cpu_seconds(process: Program) -> float:
    if process.exit_code is not None:
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.integration
@pytest.mark.long
def test_40_000_messages():
    stress(40_000, seed=1)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(0)
def test_ten_million_messages():
    """As many as RPCMQ_STRESS_MESSAGES says; watched by its own watchdog."""
    stress(int(os.environ.get("RPCMQ_STRESS_MESSAGES", "10000000")), seed=2)
