"""A program that waits for its service: the first signal lets what runs finish, and a second one ends it at once."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import rpcmq
from rpcmq.testing import InProcessRouter
from rpcmq.testing.processes import Program

SERVICE = Path(__file__).parent / "programs" / "service.py"


@pytest.mark.parametrize("shell", ["gevent", "threads", "asyncio"])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_program_whose_service_waits(
    router: InProcessRouter, shell: str, second: signal.Signals
) -> None:
    with (
        Program([sys.executable, str(SERVICE), shell, router.url], name=f"service in {shell}") as program,
        rpcmq.Client(router.url) as client,
    ):
        program.expect("serves")
        client.cast(None, "held", {"method": "hold", "args": {}})
        client.cast(None, "held", {"method": "hold", "args": {}})
        program.expect("runs")
        program.expect("runs")
        program.signal(signal.SIGTERM)
        program.expect(r"stops when what runs has ended \(hold x 2\), in 30 s at the latest; a second signal ends")
        program.signal(second)
        assert program.wait(10.0) == -second
