"""A router that was alone is killed, and its processes go on at one that is in a mesh, of which they were not told."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from gevent.event import Event

from rpcmq.client import Client, Service
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import Proxy, message

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long]

_CASTS = 20
#: Seconds in which a router that has just started waits for those who come back.
_RECOVERY = 8.0


class Worker:
    """Counts the runs of each cast."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()

    def work(self, context: object, number: int) -> None:
        self.runs[number] += 1


class Muffler(Proxy):
    """Passes on what processes say, and from some time on nothing of what the router says."""

    def __init__(self, url: str) -> None:
        self._is_loud = Event()
        self._is_loud.set()
        self._port = int(url.rpartition(":")[2])
        super().__init__(url)

    def muffle(self) -> None:
        """Hold up what the router says."""
        self._is_loud.clear()

    def _pump(self, source: Any, sink: Any) -> None:
        is_of_router = source.getpeername()[1] == self._port
        try:
            while data := source.recv(65536):
                if is_of_router:
                    self._is_loud.wait()
                sink.sendall(data)
        except OSError:
            pass

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._is_loud.set()


@pytest.mark.timeout(120)
def test_no_cast_runs_twice_that_the_killed_router_had_not_acknowledged() -> None:
    with ExitStack() as stack:
        alone = stack.enter_context(RouterProcess(router_name="a", router_recovery_seconds=_RECOVERY))
        other = stack.enter_context(
            # A peer that is not there: it is in a mesh, and alone.
            RouterProcess(router_name="b", router_recovery_seconds=_RECOVERY, mesh_peers="tcp://127.0.0.1:9")
        )
        other.kill()
        worker = Worker()
        for name in ("one", "two"):
            service = Service("compute", worker, router=[alone.url, other.url], host=name, identity=name)
            stack.enter_context(service)
        muffler = stack.enter_context(Muffler(alone.url))
        client = stack.enter_context(Client([muffler.url, other.url], identity="caller"))
        client.cast(None, "compute", message("work", number=-1))
        eventually(lambda: worker.runs[-1] == 1)
        muffler.muffle()
        for number in range(_CASTS):
            client.cast(None, "compute", message("work", number=number))
        eventually(lambda: len(worker.runs) == 1 + _CASTS, 30.0)
        alone.kill()
        other.restart()
        muffler.reset()
        # Sent after the others, so it is given to a service after them.
        client.cast(None, "compute", message("work", number=_CASTS), confirm=True, timeout=60.0)
        eventually(lambda: worker.runs[_CASTS] == 1, 60.0)
        assert set(worker.runs.values()) == {1}, worker.runs
