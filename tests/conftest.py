"""Fixtures: virtual networks for the engines; a router in this process, clients and services for the rest.

Invariants are checked when a test is over.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import hypothesis
import pytest

from rpcmq.core.common import illegal_events
from rpcmq.core.router.settings import Settings
from rpcmq.testing import InProcessRouter
from rpcmq.testing.checked_states import check_states
from rpcmq.testing.network import Network
from tests import compiled, from_tasks, from_threads, several_routers
from tests.compiled import COMPILED
from tests.from_threads import CLIENT_SHELL
from tests.several_routers import ROUTERS, new_network, routers_of
from tests.store.postgres_fixtures import database, postgres_server, postgres_store, user_session

__all__ = ["database", "postgres_server", "postgres_store", "user_session"]

# The suite starts a thousand programs. Where the environment keeps Python from writing bytecode, each of them would
# compile all that it imports. Tests that need it so set the variable themselves.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A busy machine must not fail a test, so no example has a deadline.
hypothesis.settings.register_profile("rpcmq", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("rpcmq")


#: Bytes of memory that a process of the suite has at most.
_MAX_MEMORY = 6 << 30

illegal_events.raise_illegal_events()
check_states()


@pytest.fixture(autouse=True)
def no_illegal_events() -> Iterator[None]:
    """No engine was told anything that is impossible in its state; a hub only prints what its callbacks raise."""
    illegal_events.raised.clear()
    yield
    assert illegal_events.raised == []


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the suite in the background has it ignore SIGINT, and all its children too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A test that grows without end fails where it does so, before the kernel kills a worker for the machine's memory.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_MEMORY if hard < 0 else min(_MAX_MEMORY, hard), hard))
    # Where the checkout was installed before it had the entry point, or is only on the path.
    from rpcmq.testing import plugin

    manager = config.pluginmanager
    if not manager.is_registered(plugin):
        manager.register(plugin, "rpcmq")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Leave room for the report of a test that has had all the memory of the process."""
    if call.excinfo is not None and call.excinfo.errisinstance(MemoryError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector; what they are made of lives as long as the process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    # Else the last collection of the interpreter would pass over it, and DuckDB report its own objects there as leaked.
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if CLIENT_SHELL != "gevent":
        for item in items:
            if item.get_closest_marker("own_hub"):
                item.add_marker(pytest.mark.skip(reason=from_threads.NOT_OURS))
    for is_so, reason_to_skip in ((COMPILED, compiled.reason_to_skip), (ROUTERS > 1, several_routers.reason_to_skip)):
        for item in items if is_so else ():
            if reason := reason_to_skip(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
    if hasattr(config, "workerinput"):
        from tests.workers import rank

        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.workers import ByFile

    # With -n alone it is "load".
    return ByFile(config, log) if config.getoption("dist").startswith("load") else None


# --- engines ------------------------------------------------------------------------------------


@pytest.fixture
def make_net() -> Iterator[Callable[..., Network]]:
    """Makes networks whose router has the settings given by name."""
    made: list[Network] = []

    def make(**values: Any) -> Network:
        # A router that has just started holds back casts; most tests are not about that.
        made.append(new_network(Settings(**{"recovery_seconds": 0.0} | values)))
        return made[-1]

    yield make
    for network in made:
        for router in routers_of(network):
            router.dispatch.check()
        assert [note.text for note in network.notes if note.event == "internal error"] == []


@pytest.fixture
def net(make_net: Callable[..., Network]) -> Network:
    """A network with default settings, but no recovery window."""
    return make_net()


# --- sockets ------------------------------------------------------------------------------------


@pytest.fixture
def router(rpcmq_router: InProcessRouter) -> Iterator[InProcessRouter]:
    """A router in this process, whose tables must agree with each other at the end."""
    yield rpcmq_router
    rpcmq_router.check()


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port on which nothing listens, nor anybody but this test will: a router of its own may."""
    with socket.socket() as kept:
        # Who listens with this option, as libzmq does, may have a port that another socket has, but does not listen on.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port: int = kept.getsockname()[1]
        yield port


@pytest.fixture
def client(connect: Callable[..., Any]) -> Any:
    """A client of the router."""
    return connect()


@pytest.fixture
def client_shell(request: pytest.FixtureRequest) -> Iterator[str]:
    """The home of the clients and services of a test; a module whose tests run over several shells overrides it."""
    yield from from_threads.over(CLIENT_SHELL, request.node)


@pytest.fixture
def connect(router: InProcessRouter, client_shell: str) -> Iterator[Callable[..., Any]]:
    """Makes clients of the router; none of them may have missed a wake-up."""
    from rpcmq.client import Client

    made: list[Any] = []

    def connect(identity: str | None = None, **settings: Any) -> Any:
        if client_shell == "aio":
            made.append(from_tasks.client(router.url, identity, **settings))
        else:
            made.append(Client(router.url, identity, **{"shell": client_shell, **settings}))
        return made[-1]

    yield connect
    for client in made:
        client.close()
    assert [c.process.connection.lost_wakeups for c in made] == [0] * len(made)


@pytest.fixture
def serve(router: InProcessRouter, client_shell: str) -> Iterator[Callable[..., Any]]:
    """Starts services on the router."""
    from rpcmq.client import Service

    with ExitStack() as stack:

        def serve(endpoint: Any, topic: str = "compute", host: str = "node-7", **settings: Any) -> Any:
            if "client" not in settings:
                settings = {"router": router.url, **settings}
            if client_shell == "aio":
                make: Any = from_tasks.service
            else:
                make = Service if "client" in settings else partial(Service, shell=client_shell)  # type: ignore[arg-type]
            service = make(topic, endpoint, host=host, drain_seconds=2.0, **{"concurrency": 64, **settings})
            service.start()
            stack.callback(service.stop, 2.0)
            return service

        yield serve
