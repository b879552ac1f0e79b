"""A queue server as a process of its own, beside the router of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rpcmq.testing import InProcessRouter
from tests import from_tasks
from tests.queue_server.queue_servers import QueueServerProcess


@pytest.fixture
def queue_server(router: InProcessRouter, tmp_path: Path) -> Iterator[QueueServerProcess]:
    """A queue server with a store in a directory of its own."""
    with QueueServerProcess(router.url, tmp_path / "queues") as server:
        yield server


@pytest.fixture
def work(router: InProcessRouter, client_shell: str) -> Iterator[Callable[..., Any]]:
    """Starts workers on the router."""
    from rpcmq.client import Worker

    with ExitStack() as stack:

        def work(endpoint: Any, queue: str = "billing", **settings: Any) -> Any:
            if "client" not in settings:
                settings = {"router": router.url, **settings}
            make: Any
            if client_shell == "aio":
                make = from_tasks.worker
            else:
                make = Worker if "client" in settings else partial(Worker, shell=client_shell)  # type: ignore[arg-type]
            worker = make(queue, endpoint, **{"drain_seconds": 2.0, **settings})
            worker.start()
            stack.callback(worker.stop, 2.0)
            return worker

        yield work
