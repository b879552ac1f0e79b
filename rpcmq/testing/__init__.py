"""For the tests of programs that use rpcmq: a router inside the test process, and bounded waits.

::

    def test_add():
        with rpcmq.testing.router() as router:
            with rpcmq.Service("calculator", Calculator(), router=router.url):
                assert rpc.call(None, "calculator", {"method": "add", "args": {"a": 1, "b": 2}}) == 3

With pytest the fixtures ``rpcmq_router`` and ``rpcmq_client`` give the same without the ``with``.

The router runs in the gevent hub of the thread that made it, so it makes progress whenever that
thread waits for something of gevent's; code that blocks the whole thread blocks the router too.

Importing this package loads neither gevent nor ZeroMQ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from rpcmq.errors import ConfigError, ProtocolError, UsageError

if TYPE_CHECKING:
    from rpcmq.config import RouterConfig
    from rpcmq.server.embedded import EmbeddedRouter

__all__ = ["InProcessRouter", "eventually", "router", "routers"]

T = TypeVar("T")

_POLL = 0.005
_VARIABLE = "RPCMQ_ROUTER"


class InProcessRouter:
    """A router in this process; made by :func:`router`."""

    def __init__(self, embedded: EmbeddedRouter) -> None:
        self._embedded = embedded

    @property
    def url(self) -> str:
        """The URL it listens on, for the ``router`` argument of clients and services."""
        return self._embedded.url

    @property
    def config(self) -> RouterConfig:
        """Its settings."""
        return self._embedded.config

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the router's watchdog found. Anything but 0 is a bug of rpcmq."""
        return self._embedded.shell.lost_wakeups

    def query(self, view: str = "overview") -> dict[str, Any]:
        """The router's own state, as :meth:`rpcmq.Client.query` gives it.

        Args:
            view: ``overview``, ``summary``, ``processes``, ``topics``, ``calls`` or ``methods``.

        Raises:
            UsageError: there is no such view.
        """
        from rpcmq.core.router.views import overview

        try:
            return overview(self._embedded.engine, monotonic(), view)
        except ProtocolError as error:
            raise UsageError(str(error)) from None

    def check(self) -> None:
        """Assert that the router's tables agree with each other and that it missed no wake-up."""
        self._embedded.engine.dispatch.check()
        assert self.lost_wakeups == 0, f"the router missed {self.lost_wakeups} wake-ups"


@contextmanager
def router(**config: Any) -> Iterator[InProcessRouter]:
    """Run a router in this process, on a loopback port that the system picks.

    While it runs, ``RPCMQ_ROUTER`` names it and :mod:`rpcmq.rpc` uses it; afterwards both are as they
    were before.

    Args:
        config: settings of the router by section and name, as the environment has them but in
            lower case: ``queue_max_messages=10``, ``link_heartbeat_seconds=0.1``.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    from rpcmq.server.embedded import EmbeddedRouter

    embedded = EmbeddedRouter(_router_config(config))
    try:
        with _used_by_default(embedded.url):
            yield InProcessRouter(embedded)
    finally:
        embedded.close()


@contextmanager
def routers(count: int = 3, **config: Any) -> Iterator[list[InProcessRouter]]:
    """Run several routers in this process that are linked with each other as one mesh.

    They are named ``a``, ``b``, ``c`` ... While they run, ``RPCMQ_ROUTER`` names all of them, as :func:`router` does
    with its one.

    Args:
        count: of routers.
        config: settings of all of them, as those of :func:`router`.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    from rpcmq.server.embedded import EmbeddedRouter

    with ExitStack() as running:
        embedded: list[EmbeddedRouter] = []
        for number in range(count):
            own = {
                "router_name": chr(ord("a") + number),
                "router_id": number + 1,
                "mesh_peers": ",".join(each.url for each in embedded),
            }
            embedded.append(EmbeddedRouter(_router_config(own | config)))
            running.callback(embedded[-1].close)
        running.enter_context(_used_by_default(",".join(each.url for each in embedded)))
        for each in embedded:
            eventually(lambda each=each: _usable(each) == count - 1, what="each router is linked to each other one")  # type: ignore[misc]
        yield [InProcessRouter(each) for each in embedded]


def _usable(embedded: EmbeddedRouter) -> int:
    return sum(neighbour.is_usable for neighbour in embedded.engine.mesh.neighbours)


@contextmanager
def _used_by_default(urls: str) -> Iterator[None]:
    """Have ``RPCMQ_ROUTER`` name ``urls``, and :mod:`rpcmq.rpc` use them."""
    from rpcmq import rpc

    variable = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = urls
    default = rpc.configure(None)
    try:
        yield
    finally:
        used = rpc.configure(default)
        if used is not None:
            used.close()
        if variable is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = variable


def _router_config(settings: dict[str, Any]) -> RouterConfig:
    from rpcmq.config import describe_fields, load_router_config

    # This router has no previous life whose casts could arrive twice.
    chosen = {"router.listen": "tcp://127.0.0.1:0", "router.recovery_seconds": 0.0}
    keys = {info.key.replace(".", "_"): info.key for info in describe_fields()}
    for name, value in settings.items():
        chosen[keys.get(name, name.replace("_", ".", 1))] = value
    try:
        return load_router_config(flags=chosen)
    except ConfigError as error:
        raise ConfigError(str(error).replace("command line: ", "rpcmq.testing.router: ")) from None


def eventually(predicate: Callable[[], T], timeout: float = 20.0, what: str = "") -> T:
    """Wait until ``predicate()`` is true, letting other greenlets run meanwhile.

    Args:
        predicate: what is waited for; an AssertionError counts as "not yet".
        timeout: seconds.
        what: says in the error what did not come true.

    Returns:
        What ``predicate`` returned.

    Raises:
        AssertionError: it has not come true; shows the last value or assertion.
    """
    import gevent

    deadline = monotonic() + timeout
    while True:
        problem: AssertionError | None = None
        value: T | None = None
        try:
            value = predicate()
            if value:
                return value
        except AssertionError as error:
            problem = error
        if monotonic() >= deadline:
            seen = str(problem) if problem is not None else repr(value)
            raise AssertionError(f"not within {timeout:g} s: {what or predicate}; last seen: {seen}") from problem
        gevent.sleep(_POLL)
