"""Messages to the service manager, and the cases without any."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcmq.server.sd_notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(5)
        listening.bind(path)
        yield listening, path


def test_states(manager: tuple[socket.socket, str]) -> None:
    listening, path = manager
    notifier = Notifier({"NOTIFY_SOCKET": path})
    notifier.ready("fine")
    notifier.watchdog()
    notifier.status("still fine")
    notifier.stopping("draining")
    notifier.reloading()
    assert [listening.recv(200) for _ in range(4)] == [
        b"READY=1\nSTATUS=fine",
        b"WATCHDOG=1",
        b"STATUS=still fine",
        b"STOPPING=1\nSTATUS=draining",
    ]
    state, _, moment = listening.recv(200).partition(b"\nMONOTONIC_USEC=")
    assert state == b"RELOADING=1" and int(moment) > 0
    notifier.close()
    notifier.watchdog()


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_watchdog_interval(variables: dict[str, str], seconds: float | None) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": "/nonexistent/socket", **variables})
    assert notifier.watchdog_seconds == seconds
    notifier.close()


def test_without_a_service_manager_nothing_is_opened_or_sent() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "500000"})
    assert notifier.watchdog_seconds is None
    notifier.ready("fine")
    notifier.close()


def test_a_service_manager_that_is_gone_is_mentioned_once(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"})
    with caplog.at_level(logging.WARNING):
        notifier.ready("fine")
        notifier.watchdog()
    notifier.close()
    [record] = caplog.records
    assert "NOTIFY_SOCKET: [Errno 2]" in record.getMessage()
