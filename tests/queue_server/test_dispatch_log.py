"""The attempts at items in the dispatch log: which one it was, what it raised, and whether that was the item's end."""

from __future__ import annotations

from pathlib import Path

import rpcmq
from rpcmq.latency.schema import rows_of
from rpcmq.log_format import read_spool
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.queue_server.billing import Billing, message
from tests.queue_server.queue_servers import QueueServerProcess


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
    found = []
    for path in sorted((tmp_path / "log" / "spool").iterdir()):
        spool = read_spool(path)
        found += rows_of(spool.head, list(spool))
    found = [row for row in found if row["method"] in ("fail", "reject")]
    assert sorted((row["method"], row["attempt"], row["outcome"], row["error_class"] or "") for row in found) == [
        ("fail", 0, "remote_error", "LookupError"),
        ("fail", 0, "remote_error", "LookupError"),
        ("fail", 1, "ok", ""),
        ("fail", 1, "remote_error", "LookupError"),
        ("fail", 2, "remote_error", "dead: LookupError"),
        ("reject", 0, "remote_error", "dead: Reject"),
    ]
