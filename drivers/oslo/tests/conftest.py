"""Fixtures: a router in a process of its own, and transports, servers and clients of oslo.messaging over it.

They run in a process of native threads, or in one that is patched: see ``run_as.py``.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_messaging import conffixture


def _load(path: str) -> Any:
    """Load a module, beside this file or below: the tests are no package, and have a root of their own."""
    file = Path(__file__).parent / path
    name = file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


for _path in ("processes.py", "endpoints.py", "topics.py", "programs/hoarding.py"):
    _load(_path)
from processes import Router  # noqa: E402


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    with Router() as router:
        yield router


@pytest.fixture
def conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    # Registers all options with it, also those that oslo.messaging registers with the global one only.
    conffixture.ConfFixture(conf)
    conf([])
    return conf


@pytest.fixture
def transport(conf: cfg.ConfigOpts, router: Router) -> Iterator[Callable[..., Any]]:
    """Makes transports of the router; all are released when the test is over."""
    made = []

    def transport(url: str = "", **options: Any) -> Any:
        made.append(oslo_messaging.get_rpc_transport(conf, url or router.url, **options))
        return made[-1]

    yield transport
    for each in made:
        each.cleanup()


@pytest.fixture
def serve(transport: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Starts RPC servers; all are stopped when the test is over."""
    made = []

    def serve(endpoint: Any, topic: str = "compute", server: str = "node-1", over: Any = None, **target: Any) -> Any:
        address = oslo_messaging.Target(topic=topic, server=server, **target)
        made.append(oslo_messaging.get_rpc_server(over or transport(), address, [endpoint]))
        made[-1].start()
        return made[-1]

    yield serve
    # Together: the executor of each takes a second to end, whatever the driver is.
    ends = [threading.Thread(target=lambda server=server: (server.stop(), server.wait())) for server in made]
    for end in ends:
        end.start()
    for end in ends:
        end.join()


@pytest.fixture
def in_thread() -> Iterator[Callable[..., Future[Any]]]:
    """Calls functions in threads of their own, all of which have ended when the test is over."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


@pytest.fixture
def client(transport: Callable[..., Any]) -> Callable[..., Any]:
    """Makes clients of a target."""

    def client(topic: str = "compute", over: Any = None, **options: Any) -> Any:
        target = oslo_messaging.Target(topic=topic, **options.pop("target", {}))
        return oslo_messaging.get_rpc_client(over or transport(), target, **options)

    return client
