"""Several routers of one mesh for tests, each in a process of its own.

::

    with RouterMesh(3) as mesh, Client(mesh.urls) as client:
        a, b, c = mesh
        b.kill()
        assert client.call(None, "calculator", message) == 3
        b.restart()
        mesh.wait_until_linked()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import gevent

from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess

__all__ = ["RouterMesh"]


class RouterMesh:
    """Routers that are linked with each other, on ports of the loopback interface that the system picks.

    They are named ``a``, ``b``, ``c`` ... and each is a :class:`~rpcmq.testing.processes.RouterProcess`, which can be
    killed, stopped, resumed and started again. None outlives the ``with`` block.

    Args:
        count: of routers; all are linked when it returns.
        config: settings of all of them by section and name: ``mesh_silence_seconds=1.0``.
    """

    def __init__(self, count: int = 3, **config: Any) -> None:
        self._config = config
        self.routers: list[RouterProcess] = []
        self._running = ExitStack()
        with self._running:
            self.add()
            self._add(count - 1)
            self.wait_until_linked()
            self._running = self._running.pop_all()

    def add(self) -> RouterProcess:
        """Start one more router, whose peers all others are, and which is a peer of theirs when they start again."""
        self._add(1)
        return self.routers[-1]

    def _add(self, count: int) -> None:
        before = len(self.routers)
        starting = [gevent.spawn(self._start, number) for number in range(before, before + count)]
        gevent.joinall(starting)
        # Also if one of them has failed: the others are to end with this.
        for each in starting:
            if each.value is not None:
                self._running.enter_context(each.value)
        self.routers += [each.get() for each in starting]
        for router in self.routers:
            others = (self._endpoint(each) for each in self.routers if each is not router)
            router.configure(mesh_peers=",".join(others))

    def _start(self, number: int, **more: Any) -> RouterProcess:
        name = chr(ord("a") + number)
        settings = {"router_name": name, "router_id": number + 1, "mesh_peers": ",".join(self.urls), **self._config}
        settings |= more
        started = RouterProcess(**settings)
        started.name = f"router {name}"
        return started

    @property
    def urls(self) -> list[str]:
        """The endpoints of all of them, for clients and services."""
        return [self._endpoint(router) for router in self.routers]

    def _endpoint(self, router: RouterProcess) -> str:
        """The endpoint at which others reach ``router``."""
        return router.url

    def wait_until_linked(self, *routers: RouterProcess, timeout: float = 20.0) -> None:
        """Wait until each of ``routers``, by default all that run, is linked to the others and hears them.

        Args:
            timeout: seconds.

        Raises:
            AssertionError: they are not; says which of them misses which.
        """
        concerned = routers or [router for router in self.routers if router.exit_code is None]
        names = {_name(router) for router in concerned}

        def are_linked() -> bool:
            missing = {router: sorted(names - {_name(router), *self.neighbours(router)}) for router in concerned}
            texts = [
                f"{_name(router)} misses {', '.join(others)} ({_problems(router)})"
                for router, others in missing.items()
                if others
            ]
            assert not texts, "; ".join(texts)
            return True

        eventually(are_linked, timeout, "each router is linked to each other one")

    def neighbours(self, router: RouterProcess) -> list[str]:
        """The names of the routers that ``router`` is linked to and hears; none while it does not answer."""
        return sorted(row["name"] for row in _view(router)["routers"] if row["state"] == "answering")

    def __iter__(self) -> Iterator[RouterProcess]:
        return iter(self.routers)

    def __getitem__(self, name: str) -> RouterProcess:
        return self.routers[ord(name) - ord("a")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()


def _view(router: RouterProcess) -> dict[str, Any]:
    try:
        return router.view("mesh", timeout=2.0)
    except OSError as error:
        return {"routers": [], "problems": [{"text": f"its view: {error}"}]}


def _problems(router: RouterProcess) -> str:
    return "; ".join(row["text"] for row in _view(router)["problems"]) or "it knows of no problem"


def _name(router: RouterProcess) -> str:
    return router.name.removeprefix("router ")
