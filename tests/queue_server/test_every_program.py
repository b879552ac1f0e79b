"""Items are put by programs of every kind, through deaths of the queue server, and worked at over several routers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import gevent
import pytest

import rpcmq
from rpcmq import testing
from rpcmq.client.queue.queue_servers import QueueServers
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program
from tests.queue_server.billing import Billing, message
from tests.queue_server.queue_servers import QueueServerProcess

PUTS = Path(__file__).parent / "programs" / "puts.py"
QUIET = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("plain", ["main"]),
        ("threads", ["main", *(f"thread {n}" for n in range(4))]),
        ("patched", ["main", *(f"thread {n}" for n in range(4))]),
        ("forked", ["main", "parent", "child"]),
    ],
)
def test_items_are_put_by_programs_of_every_kind(router, queue_server, kind, names):
    billing = Billing()
    with (
        rpcmq.Worker("billing", billing, router=router.url),
        Program([sys.executable, str(PUTS), kind, router.url], QUIET, name=kind) as program,
    ):
        program.expect("all were put")
        assert program.wait() == 0
        eventually(lambda: sorted(billing.charged) == sorted(f"{name} {n}" for name in names for n in range(5)))


@pytest.mark.parametrize("kind", ["exits", "exits at once"])
def test_what_was_put_is_there_though_the_program_ends_right_after(router, queue_server, kind):
    with Program([sys.executable, str(PUTS), kind, router.url], QUIET, name=kind) as program:
        assert program.wait() == 0
    billing = Billing()
    with rpcmq.Worker("billing", billing, router=router.url):
        eventually(lambda: sorted(billing.charged) == [f"main {n}" for n in range(5)])


@pytest.mark.parametrize("kind", ["gevent", "gthread"])
def test_a_web_application_puts_in_its_workers(router, queue_server, kind):
    billing = Billing()
    options = ["--bind", "127.0.0.1:0", "--workers", "2", "--no-control-socket", "--worker-class", kind]
    options += ["--threads", "4"] if kind == "gthread" else []
    environment = QUIET | {"ROUTER": router.url, "PYTHONPATH": str(PUTS.parent)}
    command = [sys.executable, "-m", "gunicorn", *options, "wsgi_puts:app"]
    with (
        rpcmq.Worker("billing", billing, router=router.url),
        Program(command, environment, name=f"gunicorn {kind}") as program,
    ):
        site = program.expect(r"Listening at: (http://127\.0\.0\.1:\d+)")[1]
        fetch = partial(gevent.get_hub().threadpool.apply, _fetch)
        answers = gevent.joinall([gevent.spawn(fetch, (f"{site}/{n}",)) for n in range(20)], 60, raise_error=True)
        assert all(b'"billing"' in each.get() for each in answers) and len(answers) == 20
        eventually(lambda: sorted(billing.charged, key=int) == [str(n) for n in range(20)])


def _fetch(url: str) -> bytes:
    with urlopen(url, timeout=50) as answer:
        return bytes(answer.read())


def test_what_is_put_while_the_queue_server_dies_is_there_once(router, rpcmq_client, queue_server):
    def put_all() -> list[rpcmq.Receipt]:
        return [rpcmq_client.put(None, "billing", message("charge", invoice=n), timeout=60) for n in range(300)]

    putting = gevent.spawn(put_all)
    for _ in range(3):
        gevent.sleep(0.1)
        queue_server.kill()
        queue_server.restart()
    receipts = putting.get(timeout=120)
    assert len({receipt.id for receipt in receipts}) == 300
    row = QueueServers(rpcmq_client, 20.0).look("here", "show", queue="billing")
    assert row["ready"] + row["running"] == 300


def test_a_worker_at_several_routers_knows_the_lease_of_each_item(tmp_path):
    billing = Billing()
    with (
        testing.router() as first,
        testing.router() as second,
        QueueServerProcess(first.url, tmp_path / "first", "first"),
        QueueServerProcess(second.url, tmp_path / "second", "second"),
        rpcmq.Client(first.url) as to_first,
        rpcmq.Client(second.url) as to_second,
        rpcmq.Worker("billing", billing, router=[first.url, second.url]),
    ):
        to_first.put(None, "billing", message("wait", invoice=1))
        to_second.put(None, "billing", message("wait", invoice=2))
        eventually(lambda: len(billing.items) == 2)
        assert {item.owner for item in billing.items} == {"first", "second"}
        assert all(20 < item.remaining() < 30 for item in billing.items)
        billing.go_on.set()
        eventually(lambda: sorted(billing.charged) == [1, 2])
