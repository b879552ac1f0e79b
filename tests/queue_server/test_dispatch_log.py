"""The attempts at items in the dispatch log: which one it was, what it raised, and whether that was the item's end; and
the ends of those of which no worker tells.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import rpcmq
from rpcmq.client.queue.protocol import at_owner
from rpcmq.latency.schema import rows_of
from rpcmq.log_format import read_spool
from rpcmq.queue_server.untold_deaths import death_of
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.queue_server.billing import Billing, message
from tests.queue_server.queue_servers import QueueServerProcess

HOLDER = Path(__file__).parent / "programs" / "holder.py"


def rows_in(directory: Path) -> list[dict[str, Any]]:
    """The records of a router that has ended."""
    found = []
    for path in sorted((directory / "spool").iterdir()):
        spool = read_spool(path)
        found += rows_of(spool.head, list(spool))
    return found


def methods(router: RouterProcess) -> list[dict[str, Any]]:
    """What the router has seen so far, by method."""
    found: list[dict[str, Any]] = router.view("methods")["methods"]
    return found


def test_attempts_and_ends_of_items_are_in_the_dispatch_log(tmp_path: Path) -> None:
    billing = Billing()
    with RouterProcess(dispatch_log_directory=tmp_path / "log") as router:
        with (
            QueueServerProcess(router.url, tmp_path / "queues"),
            rpcmq.Client(router.url) as client,
            rpcmq.Worker("billing", billing, client=client),
        ):
            client.declare_queue("billing", attempts=3, backoff=0.01)
            put = [message("fail", invoice=1), message("fail", invoice=2, times=1), message("reject", invoice=3)]
            receipts = client.put_many(None, "billing", put)
            eventually(lambda: [each.state().name for each in receipts] == ["dead", "ended", "dead"])
        router.signal(15)
        router.wait()
    found = [row for row in rows_in(tmp_path / "log") if row["method"] in ("fail", "reject")]
    assert sorted((row["method"], row["attempt"], row["outcome"], row["error_class"] or "") for row in found) == [
        ("fail", 0, "remote_error", "LookupError"),
        ("fail", 0, "remote_error", "LookupError"),
        ("fail", 1, "ok", ""),
        ("fail", 1, "remote_error", "LookupError"),
        ("fail", 2, "remote_error", "dead: LookupError"),
        ("reject", 0, "remote_error", "dead: Reject"),
    ]


def test_items_that_expire_or_lose_their_worker_have_a_record_of_their_end(tmp_path: Path) -> None:
    with RouterProcess(dispatch_log_directory=tmp_path / "log", link_heartbeat_seconds=0.2) as router:
        with (
            QueueServerProcess(router.url, tmp_path / "queues", "here", "--tell-deaths"),
            rpcmq.Client(router.url) as client,
        ):
            client.declare_queue("billing", attempts=1, on_lost="park")
            expired = [client.put(None, "billing", message("charge", invoice=n), expires=0.01) for n in range(3)]
            held = client.put(None, "billing", message("hold", invoice=4))
            with Program([sys.executable, str(HOLDER), router.url], name="holder") as holder:
                holder.expect("began 4 attempt 1")
                holder.kill()
            eventually(lambda: {each.state().name for each in (*expired, held)} == {"dead"}, 60)
            with rpcmq.Worker("billing", Billing(), client=client):
                told = client.put(None, "billing", message("fail", invoice=5))
                eventually(lambda: told.state().name == "dead")

            def ends() -> list[dict[str, int]]:
                return [row["outcomes"] for row in methods(router) if row["method"] == "died"]

            eventually(lambda: ends() == [{"remote_error": 4}], 60)
        router.signal(15)
        router.wait()
    found = [row for row in rows_in(tmp_path / "log") if row["method"] == "died"]
    assert sorted(row["error_class"] for row in found) == ["dead: Expired"] * 3 + ["dead: WorkerLost"]
    assert {(row["exchange"], row["topic"], row["target_server"]) for row in found} == {
        ("rpcmq.queue", "billing", "here")
    }


def test_nobody_forges_the_record_of_a_death(tmp_path: Path) -> None:
    with RouterProcess(dispatch_log_directory=tmp_path / "log") as router:
        with (
            QueueServerProcess(router.url, tmp_path / "queues", "here", "--tell-deaths"),
            rpcmq.Client(router.url) as client,
        ):
            client.declare_queue("billing")
            for outcome in ("expired", "done"):
                with pytest.raises(PermissionError, match="nobody but the queue server itself"):
                    client.call(None, at_owner("billing", "here"), {"method": "died", "args": {"outcome": outcome}}, 10)
        router.signal(15)
        router.wait()
    found = [row["error_class"] for row in rows_in(tmp_path / "log") if row["method"] == "died"]
    assert found == ["PermissionError"] * 2


def test_an_item_dies_of_what_there_is() -> None:
    with pytest.raises(ValueError, match="outcome must be one of"):
        death_of("billing", "done")
