"""Items that expire while the process is stopped in whose socket they lie: real ones are stopped, and go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

import rpcmq
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.queue_server.billing import message
from tests.queue_server.queue_servers import QueueServerProcess

HOLDER = Path(__file__).parent / "programs" / "holder.py"
#: Seconds for which the item is wanted, and after which the stopped process goes on.
EXPIRES, STOPPED = 1.0, 4.0


@pytest.fixture
def router() -> Iterator[RouterProcess]:
    """A router daemon."""
    with RouterProcess() as router:
        yield router


@pytest.fixture
def queue_server(router: RouterProcess, tmp_path: Path) -> Iterator[QueueServerProcess]:
    """A queue server."""
    with QueueServerProcess(router.url, tmp_path / "queues") as server:
        yield server


@pytest.fixture
def client(router: RouterProcess, queue_server: QueueServerProcess) -> Iterator[rpcmq.Client]:
    """A client of the router."""
    with rpcmq.Client(router.url) as client:
        yield client


@pytest.fixture
def worker(router: RouterProcess, client: rpcmq.Client) -> Iterator[Program]:
    """A worker that has had items of this queue server that expire."""
    with Program([sys.executable, str(HOLDER), router.url], name="worker") as worker:
        worker.expect("works")
        for invoice in range(5):
            client.put(None, "billing", message("check", invoice=invoice), expires=3600)
            worker.expect(f"checked {invoice} attempt 1", timeout=60.0)
        yield worker


# The end of its time is no event: nobody counts it but the process that is stopped.


@pytest.mark.long
def test_one_that_has_lain_in_a_socket_of_a_stopped_worker_is_not_begun(client, worker):
    worker.pause()
    stale = client.put(None, "billing", message("check", invoice="stale"), expires=EXPIRES)
    wanted = client.put(None, "billing", message("check", invoice="wanted"), expires=3600)
    gevent.sleep(STOPPED)
    worker.resume()
    _check(worker, stale, wanted)


@pytest.mark.long
def test_one_that_has_lain_in_a_socket_of_a_stopped_router_is_not_begun(client, router, worker):
    options = {"delay": 0.5, "expires": 0.5 + EXPIRES}
    stale = client.put(None, "billing", message("check", invoice="stale"), **options)
    wanted = client.put(None, "billing", message("check", invoice="wanted"), delay=0.5, expires=3600)
    router.pause()
    gevent.sleep(STOPPED)
    router.resume()
    _check(worker, stale, wanted)


def _check(worker, stale, wanted):
    worker.expect("checked wanted attempt 1", timeout=60.0)
    eventually(lambda: stale.state().name == "dead", 60)
    assert "nobody wanted it any more" in stale.state().text
    assert not any("stale" in line for line in worker.lines)
