"""A worker knows when another one may be given its item: real processes are stopped and killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest

import rpcmq
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.queue_server.billing import Billing, message
from tests.queue_server.queue_servers import QueueServerProcess

HOLDER = Path(__file__).parent / "programs" / "holder.py"
#: Seconds.
LEASE = 2.0


@pytest.fixture
def router(request: pytest.FixtureRequest) -> Iterator[RouterProcess]:
    """A router daemon that soon notices who is silent, if nothing else is said."""
    patience = getattr(request, "param", {"link_unresponsive_seconds": 1, "link_lost_seconds": 2})
    with RouterProcess(link_heartbeat_seconds=0.2, router_recovery_seconds=0, **patience) as router:
        yield router


@pytest.fixture
def queue_server(router: RouterProcess, tmp_path: Path) -> Iterator[QueueServerProcess]:
    """A queue server with a short lease."""
    with QueueServerProcess(router.url, tmp_path / "queues") as server:
        with rpcmq.Client(router.url) as client:
            client.declare_queue("billing", lease=LEASE, backoff=0.05)
        yield server


@pytest.fixture
def client(router: RouterProcess) -> Iterator[rpcmq.Client]:
    """A client of the router."""
    with rpcmq.Client(router.url) as client:
        yield client


@pytest.fixture
def hold(router: RouterProcess) -> Iterator[Callable[[], Program]]:
    """Starts workers in processes of their own."""
    started: list[Program] = []

    def start() -> Program:
        started.append(Program([sys.executable, str(HOLDER), router.url], name=f"holder {len(started)}"))
        started[-1].expect("works")
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.long
def test_a_lease_renews_itself(client, queue_server, hold):
    holder = hold()
    client.put(None, "billing", message("hold", invoice=1))
    holder.expect("began 1 attempt 1")
    other = hold()
    client.put(None, "billing", message("hold", invoice=2))
    other.expect("began 2 attempt 1")
    with pytest.raises(AssertionError, match="did not say 'lost'"):
        holder.expect("lost", timeout=5.0)
    for each in (holder, other):
        each.tell("go on")
        each.expect("ended")
    assert [line for each in (holder, other) for line in each.lines if "attempt 2" in line] == []


def test_a_worker_knows_that_its_router_is_silent(client, router, queue_server, hold):
    holder = hold()
    client.put(None, "billing", message("hold", invoice=1))
    holder.expect("began 1 attempt 1")
    router.pause()
    holder.expect(r"lost 1: the lease of item '.*' of queue 'billing' \(attempt 1\) is over")
    router.resume()
    holder.expect("began 1 attempt 2")
    holder.tell("go on")
    holder.expect("ended 1")


@pytest.mark.long
def test_a_worker_knows_that_its_queue_server_is_gone(client, queue_server, hold):
    holder = hold()
    client.put(None, "billing", message("hold", invoice=1))
    holder.expect("began 1 attempt 1")
    queue_server.kill()
    holder.expect("lost 1")
    queue_server.restart()
    holder.expect("began 1")
    holder.tell("go on")
    holder.expect("ended 1")


def test_a_worker_that_was_stopped_knows_it_before_it_goes_on(client, queue_server, hold):
    holder = hold()
    client.put(None, "billing", message("hold", invoice=1))
    holder.expect("began 1 attempt 1")
    other = hold()
    holder.pause()
    other.expect("began 1 attempt 2")
    holder.resume()
    holder.expect("lost 1")
    other.tell("go on")
    other.expect("ended 1")
    eventually(lambda: "ended 1" not in holder.lines)


@pytest.mark.parametrize("router", [{"link_unresponsive_seconds": 30, "link_lost_seconds": 60}], indirect=True)
def test_a_worker_that_was_stopped_begins_nothing_whose_lease_is_over(client, queue_server, hold):
    holder = hold()
    client.put(None, "billing", message("check", invoice=1))
    holder.expect("checked 1 attempt 1: held")
    holder.pause()
    receipt = client.put(None, "billing", message("check", invoice=2))
    eventually(lambda: receipt.state().name == "running")
    # The end of its lease is no event: nobody counts it but the worker, which is stopped.
    gevent.sleep(LEASE)
    holder.resume()
    holder.expect("checked 2 attempt 1: held")
    assert len([line for line in holder.lines if line.startswith("checked 2")]) == 1


def test_a_worker_that_stops_ends_what_runs_and_gives_back_the_rest(client, router, queue_server):
    first, second = Billing(), Billing()
    worker = rpcmq.Worker("billing", first, router=router.url, concurrency=1)
    worker.start()
    client.put_many(None, "billing", [message("wait", invoice=n) for n in range(5)])
    assert first.started.wait(20)
    stopping = gevent.spawn(worker.stop, 20.0)
    second.go_on.set()
    with rpcmq.Worker("billing", second, router=router.url):
        eventually(lambda: len(second.charged) == 4)
        assert first.charged == []
        assert not stopping.ready()
        first.go_on.set()
        assert stopping.get(timeout=20) is True
    assert sorted(first.charged + second.charged) == list(range(5))
    assert {item.attempt for item in first.items + second.items} == {1}
