"""``rpcmq queue salvage``: a damaged file is saved, and a router goes on with the new one."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from gevent import subprocess

from rpcmq.client import Client, Worker
from rpcmq.store.contract import Lane, Maker, Put
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_pages import PAGE_BYTES
from tests.server.daemons import eventually, router, run

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]
COUNT = 200


class Billing:
    def __init__(self) -> None:
        self.done: list[int] = []

    def charge(self, ctx: None, invoice: int, note: str) -> None:
        self.done.append(invoice)


def test_the_rest_of_a_damaged_file_is_worked_at_by_the_next_router(tmp_path: Path, invoke: Invoke) -> None:
    folder, new = tmp_path / "queue", tmp_path / "saved"
    items = [{"method": "charge", "args": {"invoice": n, "note": f"[{n}]" + "." * 200}} for n in range(COUNT)]
    with router("--queue-dir", str(folder), "--name", "here") as daemon, Client(daemon.url) as client:
        receipts = client.put_many(None, "billing", items)
        in_use = run("queue", "salvage", str(folder), "--to", str(new))
        assert in_use.returncode == 1 and "another process has it open: stop its router first" in in_use.stderr
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    file = folder / "queue.db"
    raw = bytearray(file.read_bytes())
    begin = raw.index(b"[100]") // PAGE_BYTES * PAGE_BYTES
    lost = [n for n in range(COUNT) if b"[%d]" % n in raw[begin : begin + PAGE_BYTES]]
    raw[begin : begin + PAGE_BYTES] = bytes(PAGE_BYTES)
    file.write_bytes(raw)

    told = run("queue", "salvage", str(folder), "--to", str(new))
    assert told.returncode == 1 and file.read_bytes() == raw
    assert f"queue 'billing': lost 0/{lost[0] + 1} to 0/{lost[-1] + 1}" in told.stdout
    assert f"the rest is in {new / 'queue.db'}" in told.stdout.replace("\n", " ")
    again = invoke("queue", "salvage", str(folder), "--to", str(new))
    assert again.returncode == 1 and "is there already" in again.stderr

    billing = Billing()
    with router("--queue-dir", str(new), "--name", "here") as daemon, Client(daemon.url) as client:
        states = [client.receipt(str(receipt)).state().name for receipt in receipts[:: COUNT - 1]]
        assert states == ["ready", "ready"]
        with Worker("billing", billing, router=daemon.url, concurrency=8):
            eventually(lambda: len(billing.done) == COUNT - len(lost))
    assert sorted(billing.done) == [n for n in range(COUNT) if n not in lost]


def test_a_file_that_is_whole_is_copied_and_wrong_arguments_are_refused(tmp_path: Path, invoke: Invoke) -> None:
    with router("--queue-dir", str(tmp_path / "queue")) as daemon, Client(daemon.url) as client:
        client.put(None, "billing", {"method": "charge", "args": {}}, delay=1000)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    source = str(tmp_path / "queue" / "queue.db")
    saved = invoke("queue", "salvage", source, "--to", str(tmp_path / "new"), "--json")
    told = json.loads(saved.stdout)
    assert saved.returncode == 0 and told["whole"] and told["queues"]["billing"]["postponed"] == 1
    for wrong, text in (
        (("queue", "salvage", str(tmp_path / "none"), "--to", "new"), "does not exist"),
        (("queue", "salvage", source), "Missing option '--to'"),
        (("queue", "salvage", source, "--to", str(tmp_path / "x"), "--unplaced", ""), "queue"),
    ):
        refused = invoke(*wrong)
        assert refused.returncode == 2 and text in refused.stderr
    (tmp_path / "text").write_text("no store at all")
    refused = invoke("queue", "salvage", str(tmp_path / "text"), "--to", str(tmp_path / "x"))
    assert refused.returncode == 1 and "it is no store of queue items" in refused.stderr


def test_where_there_is_no_room_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "queue.db")) as store:
        store.apply([Put(Lane("billing", 0), bytes(5000), 1, maker=Maker(1, n + 1)) for n in range(500)])
    new = tmp_path / "new"
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "from rpcmq.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "queue", "salvage", str(tmp_path), "--to", str(new)]
    refused = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1 and "cannot be written, and is not there" in refused.stderr
    assert list(new.iterdir()) == []
