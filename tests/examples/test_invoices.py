"""The example that charges invoices exactly once, as a reader starts it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program, RouterProcess

CHECKOUT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.fault]


@pytest.mark.long
def test_invoices_are_charged_once_though_their_workers_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.invoices", "--database", str(tmp_path / "accounts.db")]
    options = ["--count", "120", "--kills", "3"]
    with (
        RouterProcess(queue_dir=tmp_path / "queue") as router,
        Program([*command, *options, "--router", router.url], {"PYTHONPATH": str(CHECKOUT)}, "invoices") as example,
    ):
        ran = example.expect(r"120 invoices ran (\d+) times; 0 of them were charged twice")
        assert int(ran[1]) > 120  # or nothing was tried
        assert example.wait() == 0 and example.said().count("kill -9") == 4
