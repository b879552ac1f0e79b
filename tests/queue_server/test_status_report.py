"""The line that a queue server tells its router each second, and its end without a router."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from rpcmq.queue_server import status_report
from rpcmq.queue_server.router_watch import watch_router
from rpcmq.queue_server.status_report import StatusReport
from rpcmq.server.queue_status import LONGEST_LINE, QueueStatus

SECONDS = 30.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    yield readable, os.dup(writable)
    os.close(writable)
    os.close(readable)


def read(readable: int) -> QueueStatus:
    status = QueueStatus()
    os.set_blocking(readable, False)
    with gevent.Timeout(SECONDS):
        while status.heard is None:
            gevent.sleep(0.001)
            try:
                status.feed(os.read(readable, 1 << 20), 1.0)
            except BlockingIOError:
                pass
    return status


def test_a_line_says_who_it_is_and_how_the_queues_are(pipe: tuple[int, int]) -> None:
    report = StatusReport(pipe[1], lambda: {"waits_for": ""}, lambda: {"billing": {"ready": 3}})
    expected = {"pid": os.getpid(), "waits_for": "", "queues": {"billing": {"ready": 3}}, "queues_left_out": 0}
    assert read(pipe[0]).read() == expected
    report.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pipe[1])


def test_a_line_is_bounded_and_says_what_it_leaves_out(pipe: tuple[int, int]) -> None:
    """Text of others may take six times as much in JSON."""
    queues: dict[str, Any] = {f"{number}" + "\x01" * 190: {"ready": number} for number in range(2000)}
    report = StatusReport(pipe[1], dict, lambda: queues)
    said = read(pipe[0]).read()
    assert len(report.line()) < LONGEST_LINE
    assert said["queues_left_out"] > 0 and len(said["queues"]) + said["queues_left_out"] == 2000
    report.close()


def test_a_pipe_that_nobody_reads_holds_nothing_up(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_report, "_PAUSE", 0.0)
    lines: list[int] = []

    def figures() -> dict[str, Any]:
        lines.append(1)
        return {"billing": {"filling": "x" * 10_000}}

    report = StatusReport(pipe[1], dict, figures)
    with gevent.Timeout(SECONDS):
        while len(lines) < 6:
            gevent.sleep(0.001)
    report.close()
    # What was begun is whole, as far as it came.
    assert json.loads(os.read(pipe[0], 1 << 20).split(b"\n")[0])["queues"]


@pytest.mark.parametrize("orphan_seconds", [0.0, 0.3])
def test_an_orphan_ends_when_no_router_comes(orphan_seconds: float) -> None:
    with gevent.Timeout(SECONDS):
        assert watch_router(1 << 30, orphan_seconds, lambda: False) >= orphan_seconds


def test_an_orphan_goes_on_with_the_next_life_of_its_router_and_a_child_with_its_router() -> None:
    is_linked = True
    orphan = gevent.spawn(watch_router, 1 << 30, 0.3, lambda: is_linked)
    child = gevent.spawn(watch_router, os.getppid(), 0.0, lambda: False)
    orphan.join(1.0)
    assert not orphan.dead and not child.dead
    is_linked = False
    orphan.join(SECONDS)
    assert orphan.dead and not child.dead
    child.kill()
