"""Two routers of one name, each with items of its own: one queue server serves the name, the other says why not."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from rpcmq import Client, Worker
from tests.server.daemons import Daemon, eventually, router
from tests.server.test_queue_daemon import Billing, is_serving, page, queue

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long]


def message(invoice: int) -> dict[str, Any]:
    return {"method": "charge", "args": {"invoice": invoice}}


def flags(path: Path, name: str) -> tuple[str, ...]:
    return ("--http", "127.0.0.1:0", "--queue-dir", str(path / name))


def is_linked(daemon: Daemon) -> bool:
    return [row["state"] for row in page(daemon, "/mesh")["routers"]] == ["answering"]


def test_the_queue_server_that_comes_later_is_refused_and_its_items_wait_for_another_name(tmp_path: Path) -> None:
    with router(*flags(tmp_path, "x"), "--name", "alone") as alone, Client(alone.url) as client:
        # Items that are to be there still when all is well.
        client.put(None, "billing", message(1))
        alone.signal(signal.SIGTERM)
        assert alone.exit_code() == 0
    billing = Billing()
    billing.leave.set()
    with router(*flags(tmp_path, "y"), "--name", "twin") as first:
        eventually(lambda: is_serving(first))
        with router(*flags(tmp_path, "x"), "--name", "twin", "--peer", first.url) as second:
            failed = second.wait_for("queue server failed")
            assert "another queue server of this mesh (pid " in failed["message"]
            assert "serves the items of 'twin'" in failed["message"] and "router.name" in failed["message"]
            assert queue(second)["state"] == "unavailable" and is_serving(first)
            eventually(lambda: is_linked(first))
            with Client(first.url) as near, Client(second.url) as far:
                receipts = [each.put(None, "billing", message(2)) for each in (near, far)]
            # Both in one store, by one sequence of numbers.
            assert [receipt.number for receipt in receipts] == [1, 2]
            second.signal(signal.SIGTERM)
            assert second.exit_code() == 0
        with (
            router(*flags(tmp_path, "x"), "--name", "other", "--peer", first.url) as second,
            Worker("billing", billing, router=second.url),
        ):
            eventually(lambda: sorted(billing.done) == [1, 2, 2])


def test_where_two_parts_of_a_mesh_meet_the_one_that_has_served_longer_stays(tmp_path: Path) -> None:
    with router(*flags(tmp_path, "x"), "--name", "twin") as first:
        eventually(lambda: is_serving(first))
        with router(*flags(tmp_path, "y"), "--name", "twin") as second:
            eventually(lambda: is_serving(second))
            with router("--name", "between", "--peer", first.url, "--peer", second.url):
                second.wait_for("queue server failed")
                assert is_serving(first)
