"""Three routers that die, stop and drain at random, under load, with services and subscribers at all of them."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any

import gevent
import pytest

from rpcmq.client import Client, Service
from rpcmq.errors import CallError
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import consumers, message

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

QUICK: dict[str, Any] = {
    "link_heartbeat_seconds": 0.1, "link_unresponsive_seconds": 1.5, "link_lost_seconds": 4,
    "router_recovery_seconds": 0.5,
}  # fmt: skip
_FAULTS = 12


class Endpoint:
    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    def work(self, ctx: Any, key: str) -> str:
        self.runs[key] += 1
        gevent.sleep(0.005)
        return key


class Caller:
    """Calls until it is told to end; counts what ended how."""

    def __init__(self, name: str, retry: int, *urls: str) -> None:
        self.client = Client(urls, shell="gevent", reconnect_max_seconds=0.1)
        self.ended: list[str] = []
        self.failed: Counter[str] = Counter()
        self._name, self._retry = name, retry
        self._goes_on = True
        self._greenlets = [gevent.spawn(self._run, number) for number in range(4)]

    def _run(self, number: int) -> None:
        calls = 0
        while self._goes_on:
            calls += 1
            key = f"{self._name}/{number}/{calls}"
            try:
                assert self.client.call(None, "compute", message("work", key=key), 30, retry=self._retry) == key
                self.ended.append(key)
            except CallError as error:
                self.failed[type(error).__name__] += 1

    def more(self) -> None:
        """Wait until 50 more calls have ended."""
        until = len(self.ended) + 50
        eventually(lambda: len(self.ended) >= until, 30)

    def end(self) -> None:
        self._goes_on = False
        gevent.joinall(self._greenlets, timeout=60, raise_error=True)
        self.client.close()


@pytest.fixture
def routers() -> Iterator[list[RouterProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RouterProcess(**QUICK)) for _ in range(3)]


@pytest.mark.parametrize("seed", range(2))
def test_routers_that_fail_one_after_the_other_stop_nobody(routers: list[RouterProcess], seed: int) -> None:
    random = Random(seed)
    urls = [router.url for router in routers]
    endpoints = [Endpoint(), Endpoint()]
    events: list[int] = []
    with ExitStack() as stack:
        for number, endpoint in enumerate(endpoints):
            service = Service(
                "compute", endpoint, host=f"node-{number}", router=urls, shell="gevent", reconnect_max_seconds=0.1
            )
            stack.enter_context(service)
        listener = stack.enter_context(Client(urls, shell="gevent", reconnect_max_seconds=0.1))
        listener.subscribe("ticks", lambda ctx, topic, payload: events.append(payload))
        # The first router never fails: who uses that one sees nothing of all this.
        steady = Caller("steady", 0, urls[0])
        moving = [Caller("plain", 0, *urls), Caller("retry", 5, *urls)]
        publisher = stack.enter_context(Client(urls[0], shell="gevent"))
        for tick in range(_FAULTS):
            victim = random.choice(routers[1:])
            fault = random.choice(("kill", "drain", "stop"))
            if fault == "kill":
                victim.kill()
            elif fault == "drain":
                victim.signal(signal.SIGTERM)
                victim.wait()
            else:
                victim.pause()
            gevent.sleep(random.uniform(0.1, 3.0))
            assert publisher.publish(None, "ticks", tick, confirm=True) == 1
            victim.resume() if fault == "stop" else victim.restart()
            for caller in (steady, *moving):
                caller.more()
        for caller in (steady, *moving):
            caller.end()
        assert steady.failed == {} and moving[1].failed == {}
        # The one that asks for no retry is told what may have run.
        assert set(moving[0].failed) <= {"LinkLost"}
        runs = sum((endpoint.runs for endpoint in endpoints), Counter[str]())
        again = {key: count for key, count in runs.items() if count > 1}
        assert all(key.startswith("retry/") for key in again), again
        eventually(lambda: events == [*range(_FAULTS)])
        for url in urls:
            with Client(url, shell="gevent") as client:
                eventually(partial(has_both, client), 30)


def has_both(client: Client) -> bool:
    """Return whether the router of ``client`` has both services."""
    return len(consumers(client)) == 2
